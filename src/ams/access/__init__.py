"""Who may do what: role names, the table of permissions, and the admission of requests."""
