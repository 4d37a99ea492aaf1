"""Stored data: the log, the cursors, the registry, the audit log, and the files and databases below them.

- log/: the messages of each topic: an embedded engine, and one on Kafka
- cursors/: the position of each subscription: in records of the log, or on PostgreSQL
- registry/: projects, users, topics, subscriptions, schemas and so on
- audit/: the audit log of changes and failed logins
- database/: transactions on SQLite and PostgreSQL
- folder: the data folder, its lock and its health check
- files: the disk calls for files of the log and beside the databases
- free_space: limit of growth on a nearly full disk, and reserved space
- document_cache: documents of other services, cached in memory and files
- secrets: tokens and other secrets: creation, encryption, lookup by a keyed hash
- postgresql: connections to PostgreSQL: sessions, timeouts, reconnecting, transient errors
- export_format: the lines of an export
"""
