"""What is kept: the log, the cursors, the registry, the audit log, and the files and databases below them."""
