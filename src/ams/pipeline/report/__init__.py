"""Pages with plots, for people who would rather look."""
