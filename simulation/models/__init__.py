"""Models of what several nodes share, small enough to be read; each keeps the contract suites that the real one keeps.

postgresql_text      AMS's statements for PostgreSQL as SQLite runs them
postgresql           a server: databases, sessions, transactions, locks, notifications
postgresql_driver    the connections of psycopg that AMS uses, to such a server
"""
