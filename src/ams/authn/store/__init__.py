"""What the certificate service keeps, on SQLite or PostgreSQL: tables, and the records in them."""

from ams.authn.store.store import Store

__all__ = ["Store"]
