"""Stored data: the log, the cursors, the registry, the audit log, and the files and databases below them.

log/             the messages of each topic, in order: an embedded engine, and one on Kafka
cursors/         where each subscription stands: in records of the log, and on PostgreSQL
registry/        what exists: projects, users, topics, subscriptions, schemas and the rest
audit/           who did which change, and who failed to log in
database/        transactions of the registry, on SQLite and on PostgreSQL
folder           the data folder: one process owns it, and looks whether it is still usable
files            every call by which log files and files beside the databases touch a disk
free_space       what may grow on a disk that is nearly full, and the reserve for what must go on
document_cache   documents of other services, kept in memory and in files
secrets          tokens and other secrets: made, encrypted, and found by a keyed hash
postgresql       connections to PostgreSQL: sessions, time limits, connecting again, and errors that pass
export_format    the lines of an export
"""
