"""The database: transactions as functions of a connection, on SQLite or PostgreSQL, for each that keeps tables.

schema                   the tables of the registry and of the certificate service; making them; what errors mean
database                 the face: opening, reading, writing, and forgetting what was written
sqlite, postgresql       the two engines; postgresql needs the driver and is loaded only where it is used. It also waits
                         for a server that is away, and listens for changes made by other nodes
invalidation             caches, and how they are invalidated
"""
