"""Cursors of the cluster shape: rows of a PostgreSQL database, which any node reads and moves."""

from ams.cursors.postgresql.store import PostgresCursors
from ams.cursors.postgresql.time import DatabaseTime

__all__ = ["DatabaseTime", "PostgresCursors"]
