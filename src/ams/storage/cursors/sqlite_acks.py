"""What is done of parallel subscriptions, as rows beside their cursors in SQLite.

`AckRows` belongs to the thread that writes the cursors, and knows what the disk holds: so it can say what is to be
written that a progress is there. The rows of a group are written in the transaction of its cursors.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ams.core.errors import Unusable
from ams.core.names import SubscriptionId
from ams.storage.cursors import acks, entries
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.entries import Entry, Kept

_SCHEMA = """
CREATE TABLE IF NOT EXISTS acks (
    subscription TEXT NOT NULL,
    number INTEGER NOT NULL,
    entry BLOB NOT NULL,
    PRIMARY KEY (subscription, number)
) WITHOUT ROWID
"""
_AT_ONCE = 32
"""Rows of one statement (see `ams.storage.cursors.sqlite`)."""
_ADD = [
    f"INSERT INTO acks (subscription, number, entry) VALUES {', '.join(['(?, ?, ?)'] * rows)}"  # noqa: S608
    for rows in range(_AT_ONCE + 1)
]
"""By their number of rows."""
_CLEAR = "DELETE FROM acks WHERE subscription IN (SELECT value FROM json_each(?))"
_BEGIN_RUN = "UPDATE cursors SET run = ? WHERE subscription = ?"


class AckChange(NamedTuple):
    """What is to be on disk of a subscription."""

    progress: Progress | None
    """None: the subscription is gone."""
    anew: bool = False
    """Whether nothing that is there belongs to it."""


class AckWrite(NamedTuple):
    """What is to be written that it is there."""

    subscription: SubscriptionId
    run: int | None
    """A run that begins."""
    clears: bool
    entry: Entry | None
    after: Kept | None
    """What the disk holds then."""


class AckRows:
    """What the disk holds of each parallel subscription."""

    def __init__(self) -> None:
        self._kept: dict[SubscriptionId, Kept] = {}

    def load(self, connection: sqlite3.Connection) -> dict[SubscriptionId, Progress]:
        """Return what is stored of those that are parallel. Raises `Unusable` for an entry that cannot be read."""
        for subscription, start, stored in _stored(connection):
            try:
                self._kept[subscription] = entries.replayed(start, stored)
            except ValueError as error:
                raise Unusable(
                    f"the cursor database holds of subscription {subscription} {error}; restore it or move it away"
                ) from error
        return {each: kept.progress for each, kept in self._kept.items()}

    def plan(self, changes: Mapping[SubscriptionId, AckChange]) -> list[AckWrite]:
        """Return what is to be written for changes."""
        return [self._write(subscription, change) for subscription, change in changes.items()]

    def written(self, plan: Sequence[AckWrite]) -> None:
        """Take note that a plan is on disk."""
        for each in plan:
            if each.after is None:
                self._kept.pop(each.subscription, None)
            else:
                self._kept[each.subscription] = each.after

    def _write(self, subscription: SubscriptionId, change: AckChange) -> AckWrite:
        kept = self._kept.get(subscription)
        progress = change.progress
        if progress is None:
            return AckWrite(subscription, None, True, None, None)
        if kept is None:
            write = entries.written(Kept(progress), progress, anew=True)
            return AckWrite(subscription, progress.run, *write)
        write = entries.written(kept, progress, anew=change.anew)
        return AckWrite(subscription, progress.run if progress.run != kept.progress.run else None, *write)


def prepare(connection: sqlite3.Connection) -> None:
    """Create the table of entries."""
    connection.execute(_SCHEMA)


def problems(connection: sqlite3.Connection) -> list[str]:
    """Return what cannot be read in a cursor database, a line each."""
    found = []
    for subscription, start, stored in _stored(connection):
        try:
            entries.replayed(start, stored)
        except ValueError as error:
            found.append(f"of subscription {subscription} {error}")
    return found


def store(connection: sqlite3.Connection, plan: Sequence[AckWrite]) -> None:
    """Write a plan, in the transaction that there is, after the cursors' rows."""
    cleared = [each.subscription for each in plan if each.clears]
    if cleared:
        connection.execute(_CLEAR, (json.dumps(cleared),))
    for each in plan:
        if each.run is not None:
            connection.execute(_BEGIN_RUN, (each.run, each.subscription))
    added = [(each.subscription, *each.entry) for each in plan if each.entry is not None]
    for start in range(0, len(added), _AT_ONCE):
        rows = added[start : start + _AT_ONCE]
        connection.execute(_ADD[len(rows)], [value for row in rows for value in row])


def _stored(connection: sqlite3.Connection) -> Iterator[tuple[SubscriptionId, Progress, list[Entry]]]:
    """Return of each parallel subscription what its cursor's row says, and its entries."""
    words = 'SELECT subscription, "offset", generation, run FROM cursors'
    starts = {each: acks.unsettled(*row) for each, *row in connection.execute(words)}
    found: dict[SubscriptionId, list[Entry]] = {each: [] for each, start in starts.items() if start.run}
    words = "SELECT subscription, number, entry FROM acks ORDER BY subscription, number"
    for subscription, number, data in connection.execute(words):
        if subscription in starts:
            found.setdefault(subscription, []).append(Entry(number, data))
    for subscription, stored in found.items():
        yield subscription, starts[subscription], stored
