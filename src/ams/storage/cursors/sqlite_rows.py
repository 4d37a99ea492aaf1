"""Cursors as rows in SQLite, and the statements over such rows.

A group is one transaction. Few statements are cheap and many are not, as the database library gives up the interpreter
at each.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.core.names import SubscriptionId
from ams.storage.cursors import sqlite_acks
from ams.storage.cursors.base import Cursor
from ams.storage.cursors.sqlite_acks import AckWrite
from ams.storage.files import make_private
from ams.storage.sqlite import keep_files

Row = tuple[Cursor, Milliseconds, int]
"""A cursor as it is stored, the wall time of its creation or last seek, and the number of the change."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursors (
    subscription TEXT PRIMARY KEY,
    topic TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    sought INTEGER NOT NULL,
    run INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""
_UPSERT = """
INSERT INTO cursors (subscription, topic, "offset", generation, lost, sought) VALUES {}
ON CONFLICT (subscription) DO UPDATE SET
    topic = excluded.topic, "offset" = excluded."offset", generation = excluded.generation,
    lost = excluded.lost, sought = excluded.sought
"""
_AT_ONCE = 64
"""Rows of one statement. It costs a third of one that takes them as JSON, but each number of rows has its own."""
_UPSERTS = [_UPSERT.format(", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)) for rows in range(_AT_ONCE + 1)]
"""By their number of rows."""
_WAL_PAGES = 4000
"""Pages in the WAL (16 MB) before the writer pauses to take them over into the database.

A group that moves far apart cursors writes a page for each, so that many topics would pause it often.
"""
_GONE_SCHEMA = "CREATE TABLE IF NOT EXISTS gone (number INTEGER PRIMARY KEY CHECK (number = 1), lost INTEGER NOT NULL)"
_KEEP_LOST = """
INSERT INTO gone (number, lost)
SELECT 1, coalesce(sum(lost), 0) + ? FROM cursors WHERE subscription IN (SELECT value FROM json_each(?))
ON CONFLICT (number) DO UPDATE SET lost = gone.lost + excluded.lost
"""
_DELETE = "DELETE FROM cursors WHERE subscription IN (SELECT value FROM json_each(?))"


def connect(path: str) -> sqlite3.Connection:
    """Open or make a cursor database. Raises `Unusable` for a file that is none."""
    try:
        make_private(path)  # its journals inherit the mode
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}") from error
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=3 * _AT_ONCE)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SCHEMA)
        connection.execute(_GONE_SCHEMA)
        sqlite_acks.prepare(connection)
        connection.execute("COMMIT")
        keep_files(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise Unusable(f"{path} is not a usable cursor database ({error}); restore it or move it away") from error
    return connection


def store(
    connection: sqlite3.Connection,
    rows: Mapping[SubscriptionId, Row | None],
    lost: int = 0,
    plan: Sequence[AckWrite] = (),
) -> None:
    """Store a group: cursors (None is one that is gone), messages lost beside them, and what is done.

    Raises `sqlite3.Error`; nothing is stored then.
    """
    kept = [(key, row) for key, row in rows.items() if row is not None]
    gone = [key for key, row in rows.items() if row is None]
    if not gone and not lost and not plan and 0 < len(kept) <= _AT_ONCE:
        _upsert(connection, kept)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for start in range(0, len(kept), _AT_ONCE):
            _upsert(connection, kept[start : start + _AT_ONCE])
        if gone or lost:
            connection.execute(_KEEP_LOST, (lost, json.dumps(gone)))
            connection.execute(_DELETE, (json.dumps(gone),))
        if plan:
            sqlite_acks.store(connection, plan)
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _upsert(connection: sqlite3.Connection, rows: Sequence[tuple[SubscriptionId, Row]]) -> None:
    values: list[str | int] = []
    for key, ((topic, offset, generation, _, lost, _), sought, _) in rows:
        values += (key, topic.hex(), offset, generation, lost, sought)
    connection.execute(_UPSERTS[len(rows)], values)
