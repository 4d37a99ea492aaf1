"""The database: transactions as functions of a connection, on SQLite or PostgreSQL, for whoever keeps tables.

schema                 what whoever keeps tables says of them
database               the face: reading, writing, and who is told of what was written
sqlite, postgresql/    the two engines
preparing              making and migrating tables
opening                from a URL to a database that is ours and ready
cache, invalidation    what is kept in memory, and how it is forgotten
failures               what a database's errors mean
"""
