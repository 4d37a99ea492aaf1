"""Cursors of the embedded shape: as they are in memory and on disk, and groups of changes as bytes of the journal.

The journal (`ams.storage.log.embedded.journal`) keeps bodies in their order. A body is a MessagePack array: rows of
cursors, subscriptions that are gone, the messages lost that no cursor counts any more, in all, and entries of parallel
subscriptions (`ams.storage.cursors.entries`), each with whether it takes the place of all before. Rows are absolute, so
bodies that are read once more after an image which knows them change nothing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ams.core.clock import Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage.cursors import acks, base, entries
from ams.storage.cursors.acks import Progress
from ams.storage.cursors.base import Cursor
from ams.storage.cursors.entries import Entry

_SLICE = 256  # subscriptions of a body of an image: encoding one keeps the interpreter


class Row(NamedTuple):
    """What the disk holds, or is to hold, of a cursor."""

    cursor: Cursor
    sought: Milliseconds  # wall time of its creation or last seek
    change: int  # the number of the change; no two changes have the same
    run: int = 0  # of a parallel subscription


class _StoredRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    subscription: str
    topic: bytes
    offset: int
    generation: int
    lost: int
    sought: int
    run: int


class _StoredEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    subscription: str
    clears: bool  # whether all entries before go
    data: bytes  # empty: there is no entry


class _Body(msgspec.Struct, array_like=True, frozen=True):
    rows: Sequence[_StoredRow]
    gone: Sequence[str]
    lost: int
    entries: Sequence[_StoredEntry]


class AckChange(NamedTuple):
    """Acknowledgements of a subscription that the disk is to hold."""

    progress: Progress | None  # None: the subscription is gone
    anew: bool = False  # whether nothing that is there belongs to it


@dataclass(slots=True, eq=False)
class CursorState:
    """A cursor in memory, and as the disk holds it."""

    cursor: Cursor
    sought: Milliseconds
    change: int  # the number of its last change that the disk is to hold
    settled: Cursor  # the cursor as it was when it last stood where the disk says
    disk: Row | None = None  # None: nothing of it is there
    progress: Progress | None = None  # of a parallel subscription; floor and epoch are those of the cursor
    settled_progress: Progress | None = None

    @property
    def row(self) -> Row:
        """The row that the disk is to hold."""
        return Row(self.cursor, self.sought, self.change, self.progress.run if self.progress else 0)

    @property
    def is_stored(self) -> bool:
        """Whether the disk holds its last change."""
        return self.disk is not None and self.disk.change == self.change

    def move(self, cursor: Cursor, change: int) -> None:
        """Move in memory; the disk follows."""
        if self.is_stored:
            self.settled = self.cursor
        self.cursor, self.change = cursor, change

    def settle(self, row: Row) -> None:
        """Take note that a row is on the disk."""
        self.settled, self.disk = row.cursor, row

    def fall_back(self, disk: Row) -> None:
        """Stand again where the disk says, in a new generation that only this process knows."""
        self.cursor = self.settled = base.undo(self.settled, self.cursor)
        self.sought, self.change = disk.sought, disk.change
        self.progress = self.settled_progress and self.settled_progress._replace(epoch=self.cursor.generation)


@dataclass(slots=True)
class Group:
    """Changes that become durable together; None is a cursor that is gone."""

    rows: dict[SubscriptionId, Row | None] = field(default_factory=dict)
    acks: dict[SubscriptionId, AckChange] = field(default_factory=dict)
    lost: int = 0  # messages that are lost though no cursor counts them any more
    dropped: set[SubscriptionId] = field(default_factory=set)
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


class OnDisk(NamedTuple):
    """A cursor and what is done of it, as the disk holds them."""

    row: Row
    progress: Progress | None


def encode_group(group: Group, before: Mapping[SubscriptionId, Progress | None], lost: int) -> bytes:
    """Return the body of a group; `before` is what the disk holds of the subscriptions in `group.acks`."""
    rows = [_stored(key, row) for key, row in group.rows.items() if row is not None]
    gone = [key for key, row in group.rows.items() if row is None]
    changes = [(key, change) for key, change in group.acks.items() if change.progress is not None]
    found = [entry for key, change in changes if (entry := _entry(key, before.get(key), change)) is not None]
    return msgspec.msgpack.encode(_Body(rows, gone, lost, found))


def encode_image(states: Mapping[SubscriptionId, OnDisk], lost: int) -> Iterator[bytes]:
    """Yield bodies that hold everything, some subscriptions each."""
    keys = list(states)
    for start in range(0, max(len(keys), 1), _SLICE):  # without cursors too: for what was lost
        part = keys[start : start + _SLICE]
        images = [(key, states[key].progress) for key in part]
        found = [
            _StoredEntry(key, True, entries.image(progress))
            for key, progress in images
            if progress is not None and not acks.remembers_nothing(progress)
        ]
        rows = [_stored(key, states[key].row) for key in part]
        yield msgspec.msgpack.encode(_Body(rows, [], lost, found))


def replay(bodies: Iterable[bytes]) -> tuple[dict[SubscriptionId, OnDisk], int]:
    """Return what bodies hold, one after the other, and the messages lost beside. Raises `ValueError`."""
    rows: dict[str, _StoredRow] = {}
    found: dict[str, list[Entry]] = {}
    lost = 0
    for body in bodies:
        try:
            group = msgspec.msgpack.decode(body, type=_Body)
        except msgspec.DecodeError as error:
            raise ValueError(f"a group that cannot be read: {error}") from None
        lost = group.lost
        for key in group.gone:
            rows.pop(key, None)
            found.pop(key, None)
        rows.update((row.subscription, row) for row in group.rows)
        for entry in group.entries:
            own = found.setdefault(entry.subscription, [])
            if entry.clears:
                own.clear()
            if entry.data:
                own.append(Entry(len(own), entry.data))
    return {SubscriptionId(key): _loaded(row, found.get(key, ())) for key, row in rows.items()}, lost


def _stored(key: SubscriptionId, row: Row) -> _StoredRow:
    topic, offset, generation, _, lost, _ = row.cursor
    return _StoredRow(key, topic, offset, generation, lost, row.sought, row.run)


def _entry(key: SubscriptionId, before: Progress | None, change: AckChange) -> _StoredEntry | None:
    progress = change.progress
    assert progress is not None
    if change.anew or before is None or before.epoch != progress.epoch:
        return _StoredEntry(key, True, b"" if acks.remembers_nothing(progress) else entries.image(progress))
    data = entries.delta(before, progress)
    return None if data is None else _StoredEntry(key, False, data)


def _loaded(row: _StoredRow, found: Sequence[Entry]) -> OnDisk:
    cursor = Cursor(TopicId(row.topic), Offset(row.offset), row.generation, lost=row.lost)
    progress = None
    if row.run or found:
        try:
            start = acks.unsettled(cursor.offset, cursor.generation, row.run)
            progress = entries.replayed(start, found).progress
        except ValueError as error:
            raise ValueError(f"of subscription {row.subscription} {error}") from None
        cursor = cursor._replace(offset=progress.floor)
    return OnDisk(Row(cursor, Milliseconds(row.sought), 0, row.run), progress)
