"""Cursors of the cluster shape: rows of a PostgreSQL database, which any node reads and moves."""

from ams.cursors.postgres.store import PostgresCursors
from ams.cursors.postgres.time import DatabaseTime

__all__ = ["DatabaseTime", "PostgresCursors"]
