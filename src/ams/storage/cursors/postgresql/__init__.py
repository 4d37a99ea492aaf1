"""Cursors of the cluster shape: rows of a PostgreSQL database, which any node reads and moves."""

from ams.storage.cursors.postgresql.store import PostgresCursors
from ams.storage.cursors.postgresql.time import DatabaseTime

__all__ = ["DatabaseTime", "PostgresCursors"]
