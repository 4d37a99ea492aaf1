"""The registry in PostgreSQL, which several nodes share. Loaded only where it is used: it needs the driver."""

from ams.storage.database.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
