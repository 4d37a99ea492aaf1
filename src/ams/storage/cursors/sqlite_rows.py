"""Cursors, and what is done of parallel subscriptions, as rows in SQLite; and groups of changes on their way there.

A group is one transaction. Few statements are cheap and many are not, as the database library gives up the interpreter
at each. `AckRows` belongs to the thread that writes, and knows what the disk holds.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.core.names import SubscriptionId
from ams.storage.cursors import acks, base, entries
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.base import Cursor
from ams.storage.cursors.entries import Entry, Kept
from ams.storage.database.sqlite import make_file, write_ahead

Row = tuple[Cursor, Milliseconds, int]  # with the wall time of its creation or last seek, and the number of the change

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS cursors (
        subscription TEXT PRIMARY KEY,
        topic TEXT NOT NULL,
        "offset" INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        sought INTEGER NOT NULL,
        run INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    "CREATE TABLE IF NOT EXISTS gone (number INTEGER PRIMARY KEY CHECK (number = 1), lost INTEGER NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS acks (
        subscription TEXT NOT NULL,
        number INTEGER NOT NULL,
        entry BLOB NOT NULL,
        PRIMARY KEY (subscription, number)
    ) WITHOUT ROWID
    """,
)
_UPSERT = """
INSERT INTO cursors (subscription, topic, "offset", generation, lost, sought) VALUES {}
ON CONFLICT (subscription) DO UPDATE SET
    topic = excluded.topic, "offset" = excluded."offset", generation = excluded.generation,
    lost = excluded.lost, sought = excluded.sought
"""
# Statements by their number of rows: one costs a third of one that takes them as JSON.
_MAX_CURSORS, _MAX_ENTRIES = 64, 32
_UPSERTS = [_UPSERT.format(", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)) for rows in range(_MAX_CURSORS + 1)]
_ADD = [
    f"INSERT INTO acks (subscription, number, entry) VALUES {', '.join(['(?, ?, ?)'] * rows)}"  # noqa: S608
    for rows in range(_MAX_ENTRIES + 1)
]
_WAL_PAGES = 4000
"""Pages (16 MB) before the writer pauses to take them into the database: cursors far apart take a page each."""
_KEEP_LOST = """
INSERT INTO gone (number, lost)
SELECT 1, coalesce(sum(lost), 0) + ? FROM cursors WHERE subscription IN (SELECT value FROM json_each(?))
ON CONFLICT (number) DO UPDATE SET lost = gone.lost + excluded.lost
"""
_DELETE = "DELETE FROM cursors WHERE subscription IN (SELECT value FROM json_each(?))"
_CLEAR = "DELETE FROM acks WHERE subscription IN (SELECT value FROM json_each(?))"
_BEGIN_RUN = "UPDATE cursors SET run = ? WHERE subscription = ?"


class AckChange(NamedTuple):
    """Acknowledgements of a subscription that the disk is to hold."""

    progress: Progress | None  # None: the subscription is gone
    anew: bool = False  # whether nothing that is there belongs to it


class AckWrite(NamedTuple):
    """Rows to insert or delete so that the database matches a new acknowledgement state."""

    subscription: SubscriptionId
    run: int | None  # a run that begins
    clears: bool
    entry: Entry | None
    after: Kept | None  # content of the disk afterwards


@dataclass(slots=True, eq=False)
class CursorState:
    """A cursor in memory, and as the disk holds it."""

    cursor: Cursor
    sought: Milliseconds
    change: int  # the number of its last change that the disk is to hold; no two changes have the same
    settled: Cursor  # the cursor as it was when it last stood where the disk says
    settled_sought: Milliseconds
    stored: int = 0  # the number of the change that the disk holds; 0: nothing of it is there
    progress: Progress | None = None  # of a parallel subscription; floor and epoch are those of the cursor
    settled_progress: Progress | None = None

    @property
    def row(self) -> Row:
        """The row that the disk is to hold."""
        return self.cursor, self.sought, self.change

    def move(self, cursor: Cursor, change: int) -> None:
        """Move in memory; the disk follows."""
        if self.change == self.stored:
            self.settled = self.cursor
        self.cursor, self.change = cursor, change

    def settle(self, row: Row) -> None:
        """Take note that a row is on the disk."""
        self.settled, self.settled_sought, self.stored = row

    def fall_back(self) -> None:
        """Stand again where the disk says, in a new generation that only this process knows."""
        self.cursor = self.settled = base.undo(self.settled, self.cursor)
        self.sought, self.change = self.settled_sought, self.stored
        self.progress = self.settled_progress and self.settled_progress._replace(epoch=self.cursor.generation)


@dataclass(slots=True)
class Group:
    """Changes that become durable together; None is a cursor that is gone."""

    rows: dict[SubscriptionId, Row | None] = field(default_factory=dict)
    acks: dict[SubscriptionId, AckChange] = field(default_factory=dict)
    lost: int = 0  # messages that are lost though no cursor counts them
    dropped: set[SubscriptionId] = field(default_factory=set)
    dropped_lost: int = 0  # messages that the dropped cursors had lost
    unknown: bool = False  # whether it failed and may be there after a restart all the same
    waiting: list[asyncio.Future[None]] = field(default_factory=list)  # one for each caller, who may leave

    def end(self, error: Exception | None = None) -> None:
        """Tell all who still wait."""
        for each in self.waiting:
            if each.done():
                continue
            if error is None:
                each.set_result(None)
            else:
                each.set_exception(error)


class AckRows:
    """The entries of each parallel subscription that the disk holds."""

    def __init__(self) -> None:
        self._kept: dict[SubscriptionId, Kept] = {}

    def load(self, connection: sqlite3.Connection) -> dict[SubscriptionId, Progress]:
        """Return the progress of all parallel subscriptions. Raises `Unusable` for an entry that cannot be read."""
        for subscription, start, stored in _stored_entries(connection):
            try:
                self._kept[subscription] = entries.replayed(start, stored)
            except ValueError as error:
                raise Unusable(
                    f"the cursor database holds of subscription {subscription} {error}; restore it or move it away"
                ) from error
        return {each: kept.progress for each, kept in self._kept.items()}

    def plan(self, changes: Mapping[SubscriptionId, AckChange]) -> list[AckWrite]:
        """Return the writes for changes."""
        return [self._write(subscription, change) for subscription, change in changes.items()]

    def written(self, plan: Sequence[AckWrite]) -> None:
        """Take note that a plan is on disk."""
        for each in plan:
            if each.after is None:
                self._kept.pop(each.subscription, None)
            else:
                self._kept[each.subscription] = each.after

    def _write(self, subscription: SubscriptionId, change: AckChange) -> AckWrite:
        kept, progress = self._kept.get(subscription), change.progress
        if progress is None:
            return AckWrite(subscription, None, True, None, None)
        if kept is None:
            return AckWrite(subscription, progress.run, *entries.written(Kept(progress), progress, anew=True))
        write = entries.written(kept, progress, anew=change.anew)
        return AckWrite(subscription, progress.run if progress.run != kept.progress.run else None, *write)


def connect(path: str) -> sqlite3.Connection:
    """Open or make a cursor database. Raises `Unusable` for a file that is none."""
    make_file(path)
    statements = 3 * _MAX_CURSORS
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=statements)
    try:
        write_ahead(connection, path)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            connection.execute(table)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        connection.close()
        raise Unusable(f"{path} is not a usable cursor database ({error}); restore it or move it away") from error
    return connection


def problems(connection: sqlite3.Connection) -> list[str]:
    """Return one line for each subscription with entries that cannot be read."""
    found = []
    for subscription, start, stored in _stored_entries(connection):
        try:
            entries.replayed(start, stored)
        except ValueError as error:
            found.append(f"of subscription {subscription} {error}")
    return found


def store(
    connection: sqlite3.Connection,
    rows: Mapping[SubscriptionId, Row | None],
    lost: int = 0,
    plan: Sequence[AckWrite] = (),
) -> None:
    """Store a group: cursors (None: gone), messages lost beside them, acknowledgements; or nothing of it."""
    kept = [(key, row) for key, row in rows.items() if row is not None]
    gone = [key for key, row in rows.items() if row is None]
    if not gone and not lost and not plan and 0 < len(kept) <= _MAX_CURSORS:
        _upsert(connection, kept)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for start in range(0, len(kept), _MAX_CURSORS):
            _upsert(connection, kept[start : start + _MAX_CURSORS])
        if gone or lost:
            connection.execute(_KEEP_LOST, (lost, json.dumps(gone)))
            connection.execute(_DELETE, (json.dumps(gone),))
        _store_acks(connection, plan)
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


def _store_acks(connection: sqlite3.Connection, plan: Sequence[AckWrite]) -> None:
    cleared = [each.subscription for each in plan if each.clears]
    if cleared:
        connection.execute(_CLEAR, (json.dumps(cleared),))
    for each in plan:
        if each.run is not None:
            connection.execute(_BEGIN_RUN, (each.run, each.subscription))
    added = [(each.subscription, *each.entry) for each in plan if each.entry is not None]
    for start in range(0, len(added), _MAX_ENTRIES):
        rows = added[start : start + _MAX_ENTRIES]
        connection.execute(_ADD[len(rows)], [value for row in rows for value in row])


def _stored_entries(connection: sqlite3.Connection) -> Iterator[tuple[SubscriptionId, Progress, list[Entry]]]:
    """Yield the progress in the row of each parallel subscription's cursor, and its entries."""
    words = 'SELECT subscription, "offset", generation, run FROM cursors'
    starts = {each: acks.unsettled(*row) for each, *row in connection.execute(words)}
    found: dict[SubscriptionId, list[Entry]] = {each: [] for each, start in starts.items() if start.run}
    words = "SELECT subscription, number, entry FROM acks ORDER BY subscription, number"
    for subscription, number, data in connection.execute(words):
        if subscription in starts:
            found.setdefault(subscription, []).append(Entry(number, data))
    for subscription, stored in found.items():
        yield subscription, starts[subscription], stored
