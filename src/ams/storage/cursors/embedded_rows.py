"""Cursors of one node in memory and on disk, and the encoding of groups in the journal.

The journal (`ams.storage.log.embedded.journal`) stores bodies in order. A body is a MessagePack array of: rows of
cursors, deleted subscriptions, the total of lost messages of deleted cursors, and entries of parallel subscriptions
(`ams.storage.cursors.entries`). An entry has a flag if it replaces all before. Rows are absolute, so replaying a body
that is already in the image changes nothing.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ams.core.clock import Milliseconds
from ams.core.coalescing import answer_future
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage.cursors import acks, base, entries
from ams.storage.cursors.acks import AckProgress
from ams.storage.cursors.base import Cursor

_SLICE = 256  # subscriptions per body of an image: encoding one holds the GIL


class CursorRow(NamedTuple):
    """A cursor as it is, or will be, on disk."""

    cursor: Cursor
    sought: Milliseconds  # wall time of its creation or last seek
    change: int  # unique number of the change
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
    clears: bool  # whether to drop all earlier entries
    data: bytes  # empty: there is no entry


class _GroupBody(msgspec.Struct, array_like=True, frozen=True):
    rows: Sequence[_StoredRow]
    gone: Sequence[str]
    lost: int
    entries: Sequence[_StoredEntry]


class AckChange(NamedTuple):
    """New acknowledgements of a subscription, to be stored."""

    progress: AckProgress | None  # None: the subscription is deleted
    anew: bool = False  # whether to replace all stored entries


@dataclass(slots=True, eq=False)
class CursorState:
    """A cursor in memory and on disk."""

    subscription: SubscriptionId
    cursor: Cursor
    sought: Milliseconds
    change: int  # number of its last change to be stored
    settled: Cursor  # the last state in memory that matched the disk
    disk: CursorRow | None = None  # None: not on disk
    progress: AckProgress | None = None  # of a parallel subscription; same floor and epoch as the cursor
    settled_progress: AckProgress | None = None

    @property
    def row(self) -> CursorRow:
        """The row to store."""
        return CursorRow(self.cursor, self.sought, self.change, self.progress.run if self.progress else 0)

    @property
    def is_stored(self) -> bool:
        """True if its last change is on disk."""
        return self.disk is not None and self.disk.change == self.change

    def move(self, cursor: Cursor, change: int) -> None:
        """Move in memory; the caller writes the row later."""
        if self.is_stored:
            self.settled = self.cursor
        self.cursor, self.change = cursor, change

    def fall_back(self, disk: CursorRow) -> None:
        """Return to the state on disk, in a new generation that fences off hand-outs of the failed one."""
        self.cursor = self.settled = base.undo(self.settled, self.cursor)
        self.sought, self.change = disk.sought, disk.change
        self.progress = self.settled_progress and self.settled_progress._replace(epoch=self.cursor.generation)


@dataclass(slots=True)
class CursorChangeGroup:
    """Group commit of changes; None is the tombstone of a deleted cursor."""

    rows: dict[SubscriptionId, CursorRow | None] = field(default_factory=dict)
    acks: dict[SubscriptionId, AckChange] = field(default_factory=dict)
    lost: int = 0  # lost messages of the deleted cursors
    dropped: set[SubscriptionId] = field(default_factory=set)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)  # one for each caller; may be cancelled

    def end(self, error: Exception | None = None) -> None:
        """Complete all waiting futures."""
        for each in self.waiting:
            answer_future(each, error)


class OnDisk(NamedTuple):
    """A cursor and its acknowledgements on disk."""

    row: CursorRow
    progress: AckProgress | None


def encode_group(group: CursorChangeGroup, before: Mapping[SubscriptionId, AckProgress | None], lost: int) -> bytes:
    """Return the body of a group; `before` has the stored progress of the subscriptions in `group.acks`."""
    rows = [_encode_row(key, row) for key, row in group.rows.items() if row is not None]
    gone = [key for key, row in group.rows.items() if row is None]
    found = []
    for key, (progress, is_anew) in group.acks.items():
        known = before.get(key)
        if progress is None:
            continue
        if is_anew or known is None or known.epoch != progress.epoch:
            found.append(_StoredEntry(key, True, b"" if acks.is_empty(progress) else entries.image(progress)))
        elif (data := entries.delta(known, progress)) is not None:
            found.append(_StoredEntry(key, False, data))
    return msgspec.msgpack.encode(_GroupBody(rows, gone, lost, found))


def encode_image(states: Mapping[SubscriptionId, OnDisk], lost: int) -> Iterator[bytes]:
    """Yield the bodies of an image, `_SLICE` subscriptions each."""
    keys = list(states)
    for start in range(0, max(len(keys), 1), _SLICE):  # one body even without cursors: it has `lost`
        part = keys[start : start + _SLICE]
        images = [(key, states[key].progress) for key in part]
        found = [
            _StoredEntry(key, True, entries.image(progress))
            for key, progress in images
            if progress is not None and not acks.is_empty(progress)
        ]
        rows = [_encode_row(key, states[key].row) for key in part]
        yield msgspec.msgpack.encode(_GroupBody(rows, [], lost, found))


def replay(bodies: Iterable[bytes]) -> tuple[dict[SubscriptionId, OnDisk], int]:
    """Replay bodies; return the cursors, and the lost messages of deleted ones. Raises `ValueError`."""
    rows: dict[str, _StoredRow] = {}
    found: dict[str, list[bytes]] = {}
    lost = 0
    for body in bodies:
        try:
            group = msgspec.msgpack.decode(body, type=_GroupBody)
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
                own.append(entry.data)
    return {SubscriptionId(key): _decode_row(row, found.get(key, ())) for key, row in rows.items()}, lost


def _encode_row(key: SubscriptionId, row: CursorRow) -> _StoredRow:
    topic, offset, generation, _, lost, _ = row.cursor
    return _StoredRow(key, topic, offset, generation, lost, row.sought, row.run)


def _decode_row(row: _StoredRow, found: Sequence[bytes]) -> OnDisk:
    """Raise `ValueError` that names the subscription, if an entry is damaged."""
    cursor = Cursor(TopicId(row.topic), Offset(row.offset), row.generation, lost=row.lost)
    progress = None
    if row.run or found:
        try:
            start = acks.empty_progress(cursor.offset, cursor.generation, row.run)
            progress = entries.replay_entries(start, found).progress
        except ValueError as error:
            raise ValueError(f"of subscription {row.subscription} {error}") from None
        cursor = cursor._replace(offset=progress.floor)
    return OnDisk(CursorRow(cursor, Milliseconds(row.sought), 0, row.run), progress)
