"""The database: transactions as functions of a connection, on SQLite or PostgreSQL, for each that keeps tables.

schema                 what the registry and the certificate service tell of their tables; what errors mean
database               the face: reading, writing, and forgetting what was written
sqlite, postgresql/    the two engines
opening                from a URL to a database that is ours and ready: tables made or migrated
invalidation           what is kept in memory, and how it is forgotten
"""
