"""The tables of the certificate service, on SQLite or PostgreSQL, and the records in them."""

from ams.authn.store.store import Store

__all__ = ["Store"]
