"""Administration of the named tokens of users."""
