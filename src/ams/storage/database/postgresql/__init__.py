"""The registry in PostgreSQL, which several nodes share. Loaded only where it is used: it needs the driver.

store         transactions, in threads
connection    connections: none waits long for a silent server
patience      waiting for a database that is away, one attempt on behalf of all calls
listening     changes made by other nodes, so that caches may be used
"""

from ams.storage.database.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
