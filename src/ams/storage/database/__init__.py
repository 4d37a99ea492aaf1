"""Databases on SQLite or PostgreSQL: transactions are functions of a connection.

- schema: tables of the registry and of the certificate service, migrations, and the meaning of errors
- database: the interface: opening, reading, writing, cache invalidation
- sqlite, postgresql: the engines; postgresql needs the driver, so it is imported only where it is used
- invalidation: caches and their invalidation
"""
