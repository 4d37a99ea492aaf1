"""Administration of bindings: by which identity at an issuer a user logs in."""
