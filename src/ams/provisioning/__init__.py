"""Users, bindings and access lists made of what GOCDB lists (authn contract 14), through the HTTP APIs only."""
