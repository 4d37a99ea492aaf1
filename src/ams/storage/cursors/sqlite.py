"""Cursors of the embedded shape: in memory, and durable in a SQLite database of their own.

Offsets are written by one thread, as groups: all cursors that moved while the last group was being synced go into the
next one, with one statement (the database library gives up the interpreter at every statement, so few are cheap and
many are not). An acknowledgement is answered when its group is on disk. Hand-outs live in memory only; after a restart
`Grace` stands in for them. Acknowledgements of parallel subscriptions (`ams.storage.cursors.acks`) go into the same
groups.
"""

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Self

import structlog
from pyroaring import BitMap64

from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.errors import OUTCOME_UNKNOWN, CursorsUnavailable, SubscriptionGone, Unusable
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.cursors import acks, base
from ams.storage.cursors.acks import Change, Progress
from ams.storage.cursors.base import NOTHING, Cursor, Grace, Oldest, Outstanding, Position, TopicOffset
from ams.storage.cursors.sqlite_rows import AckChange, AckRows, CursorState, Group, Row, connect, store
from ams.storage.database.sqlite import OVERWRITE, Commits

PART = "writing of the cursors"
_LONG_AGO = Milliseconds(2**62)

log = structlog.get_logger("ams.cursors")


class SqliteCursors:
    """Keeps `ams.storage.cursors.acks.CursorStore` in one SQLite file, WAL and synchronous FULL."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, on_full: Callable[[], bool], supervisor: Supervisor
    ) -> None:
        self._connection, self._clock, self._on_full = connection, clock, on_full
        self._loop = asyncio.get_running_loop()
        self._changes = itertools.count(1)
        self._entries: dict[SubscriptionId, CursorState] = {}
        self._dropped: dict[SubscriptionId, CursorState] = {}  # still on disk
        self._gone = 0  # messages lost that no cursor counts any more
        self._group = Group()
        self._writing: Group | None = None
        self._commits = Commits()
        self._ack_rows = AckRows()
        self._queue: SimpleQueue[Group | None] = SimpleQueue()
        self._supervisor = supervisor
        self._has_failed = False
        self._thread = supervisor.thread(PART, "cursors", self._write_groups, self._give_up)

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        ends: Mapping[TopicId, Offset],
        clock: Clock | None = None,
        on_full: Callable[[], bool] = lambda: False,
        supervisor: Supervisor | None = None,
    ) -> Self:
        """Open or make the database at `path`; `on_full` frees space and returns whether it did. Raises `Unusable`.

        `ends` are the ends of all topics: a cursor beyond the end of its topic goes back to it, and this is logged.
        """
        connection = await asyncio.to_thread(connect, path)
        cursors = cls(connection, clock or SystemClock(), on_full, supervisor or Supervisor())
        try:
            await asyncio.to_thread(cursors._load, ends)
        except Unusable:
            connection.close()
            raise
        cursors._thread.start()
        return cursors

    async def create(
        self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0, handed: Offset = NOTHING
    ) -> None:
        """Make a cursor. One whose messages were handed out elsewhere gets the grace of one made long ago."""
        old, now = self._entries.get(subscription), Milliseconds(0) if handed > offset else self._clock.wall()
        cursor = Cursor(topic, offset, lost=lost)
        entry = self._entries[subscription] = CursorState(cursor, now, next(self._changes), cursor, now)
        if old is not None:
            entry.settle((old.settled, old.settled_sought, old.stored))
            entry.settled_progress = old.settled_progress
        self._leave(subscription, entry, old or self._dropped.get(subscription), cursor)
        await self._join(subscription, entry)

    async def drop(self, subscription: SubscriptionId) -> None:
        entry = self._entries.pop(subscription, None)
        if entry is None:
            return
        self._dropped.setdefault(subscription, entry)
        if entry.progress is not None:
            self._group.acks[subscription] = AckChange(None)
        self._gone += entry.cursor.lost
        self._group.dropped.add(subscription)
        self._group.dropped_lost += entry.cursor.lost
        await self._join(subscription, None)

    async def subscriptions(self) -> frozenset[SubscriptionId]:
        return frozenset(self._entries)

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        return {key: TopicOffset(entry.cursor.topic, entry.cursor.offset) for key, entry in self._entries.items()}

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            cursor = base.meet(entry.cursor, topic)
            self._leave(subscription, entry, entry, cursor)
            if self._is_to_store(entry, cursor):
                await self._join(subscription, entry)
        return base.position_of(entry.cursor)

    def expected(self, _subscription: SubscriptionId, _topic: TopicId) -> None:
        """Return None: `position` is in memory."""

    async def lost(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        return _lost(self._entry(subscription), oldest)

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        found = self._gone + sum([_lost(entry, oldest) for entry in self._entries.values()])
        if found >= least:
            return found
        # At once, so that no other call counts the same, and then durably.
        self._gone += least - found
        self._group.lost += least - found
        try:
            await self._joined()
        except CursorsUnavailable:
            self._gone -= least - found
            raise
        return least

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        entry = self._entry(subscription)
        if entry.cursor.generation == generation:
            progress = entry.progress
            if progress is not None and acks.is_parallel(progress):
                cursor = entry.cursor._replace(lost=entry.cursor.lost + acks.lost(progress, oldest))
                await self._settle_if_changed(subscription, entry, acks.retained(progress, oldest), cursor)
                return base.position_of(entry.cursor)
            cursor = base.retain(entry.cursor, oldest)
            self._leave(subscription, entry, entry, cursor)
            if self._is_to_store(entry, cursor):
                await self._join(subscription, entry)
        return base.position_of(entry.cursor)

    async def hand_out(
        self, subscription: SubscriptionId, generation: int, end: Offset, at: Offset | None = None
    ) -> bool:
        entry = self._entry(subscription)
        if entry.cursor.generation != generation or (at is not None and entry.cursor.offset != at):
            return False
        entry.cursor = base.hand_out(entry.cursor, end, self._clock.monotonic())
        return True

    async def acknowledge(self, subscription: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
        """Acknowledge up to `last`; an id acknowledged by a group still being written waits for it too."""
        entry = self._entry(subscription)
        cursor = base.acknowledge(entry.cursor, last, deadline, self._clock.monotonic())
        if self._is_to_store(entry, cursor):
            await self._join(subscription, entry)

    async def handed(self, subscription: SubscriptionId) -> Outstanding | None:
        handed = self._entry(subscription).cursor.handed
        if not handed:
            return None
        return Outstanding(handed[-1].end, Milliseconds(self._clock.monotonic() - handed[-1].time))

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            return False
        cursor = base.seek(entry.cursor, offset)
        self._leave(subscription, entry, entry, cursor)
        entry.move(cursor, next(self._changes))
        entry.sought = self._clock.wall()
        await self._join(subscription, entry)
        return True

    async def take_over(self, subscription: SubscriptionId, topic: TopicId) -> Progress:
        await self.position(subscription, topic)
        entry = self._entry(subscription)
        progress = entry.progress or _start(entry.cursor)
        progress = progress._replace(run=progress.run + 1)
        await self._settle(subscription, entry, progress, entry.cursor)
        return acks.copied(progress)

    async def progress(self, subscription: SubscriptionId) -> Progress:
        entry = self._entry(subscription)
        return acks.copied(entry.progress or _start(entry.cursor))

    async def settle(self, subscription: SubscriptionId, epoch: int, run: int, change: Change) -> bool:
        """Store a change of this epoch and run; what is done already waits for its group."""
        entry = self._entry(subscription)
        progress = entry.progress
        if progress is None or not run or (progress.epoch, progress.run) != (epoch, run):
            return False
        await self._settle_if_changed(subscription, entry, acks.settled(progress, change), entry.cursor)
        return True

    async def restore(self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: BitMap64) -> int | None:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            return None
        cursor = base.seek(entry.cursor, floor)
        progress = acks.sought(entry.progress or _start(entry.cursor), floor, cursor.generation, done)
        entry.sought = self._clock.wall()
        await self._settle(subscription, entry, progress, cursor, anew=True)
        return progress.epoch

    async def close(self) -> None:
        """Write what is waiting and close the database."""
        while (self._writing or self._group.waiting) and not self._has_failed:
            self._send()
            await asyncio.wait((self._writing or self._group).waiting)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _entry(self, subscription: SubscriptionId) -> CursorState:
        try:
            return self._entries[subscription]
        except KeyError:
            raise SubscriptionGone from None

    def _is_to_store(self, entry: CursorState, cursor: Cursor) -> bool:
        """Move in memory; True when the caller has to wait for the disk, for this move or those before."""
        if cursor is not entry.cursor:
            entry.move(cursor, next(self._changes))
        return entry.change != entry.stored

    async def _settle_if_changed(
        self, subscription: SubscriptionId, entry: CursorState, after: Progress, cursor: Cursor
    ) -> None:
        """Store a progress; without a change, wait for the changes before: the caller may have seen them."""
        if after is not entry.progress:
            await self._settle(subscription, entry, after, cursor)
        elif entry.change != entry.stored:
            await self._join(subscription, entry)

    async def _settle(
        self,
        subscription: SubscriptionId,
        entry: CursorState,
        progress: Progress,
        cursor: Cursor,
        *,
        anew: bool = False,
    ) -> None:
        """Store a progress, and always the row: after a failed seek the disk has an epoch without entries."""
        entry.move(cursor._replace(offset=progress.floor), next(self._changes))
        entry.progress = progress
        self._note_acks(subscription, AckChange(progress, anew))
        await self._join(subscription, entry)

    def _leave(
        self, subscription: SubscriptionId, entry: CursorState, before: CursorState | None, cursor: Cursor
    ) -> None:
        """Forget what was done of a parallel subscription, as its cursor goes elsewhere."""
        if before is not None and before.progress is not None:
            entry.progress = acks.sought(before.progress, cursor.offset, cursor.generation)
            self._note_acks(subscription, AckChange(entry.progress, anew=True))

    def _note_acks(self, subscription: SubscriptionId, change: AckChange) -> None:
        known = self._group.acks.get(subscription)
        is_anew = change.anew or (known is not None and (known.anew or known.progress is None))
        self._group.acks[subscription] = AckChange(change.progress, is_anew)

    def _join(self, subscription: SubscriptionId, entry: CursorState | None) -> asyncio.Future[None]:
        """Put a change into the next group; the future completes when it is on disk."""
        self._group.rows[subscription] = entry.row if entry else None
        return self._joined()

    def _joined(self) -> asyncio.Future[None]:
        if self._has_failed:
            raise CursorsUnavailable
        waiter = self._loop.create_future()
        self._group.waiting.append(waiter)
        if self._writing is None and len(self._group.waiting) == 1:
            self._loop.call_soon(self._send)
        return waiter

    def _send(self) -> None:
        if self._writing is None and self._group.waiting:
            self._writing, self._group = self._group, Group()
            self._queue.put(self._writing)

    def _outcome(self, apply: Callable[[], None]) -> None:
        try:
            apply()
        except Exception as error:
            self._supervisor.failed(PART, error, self._give_up)

    def _give_up(self) -> None:
        self._has_failed = True
        written, self._writing = self._writing, None
        waiting, self._group = self._group, Group()
        if written is not None:
            written.end(CursorsUnavailable(OUTCOME_UNKNOWN))
        waiting.end(CursorsUnavailable())

    def _stored(self, group: Group) -> None:
        for subscription in group.dropped:
            self._dropped.pop(subscription, None)
        for subscription, row in group.rows.items():
            entry = self._on_disk(subscription)
            if entry is not None and row is not None:
                entry.settle(row)
        for subscription, change in group.acks.items():
            entry = self._on_disk(subscription)
            if entry is not None:
                entry.settled_progress = change.progress
        group.end()
        self._writing = None
        self._send()

    def _on_disk(self, subscription: SubscriptionId) -> CursorState | None:
        """Return the cursor of the row on disk: a dropped one until its end is on disk too."""
        return self._dropped.get(subscription) or self._entries.get(subscription)

    def _failed(self, group: Group, reason: str) -> None:
        """Undo a group, and all that came after it and may build on it."""
        log.error("cursors.unavailable", reason=reason, cursors=len(group.rows), outcome_unknown=group.unknown)
        later, self._group = self._group, Group()
        for subscription in group.rows | later.rows:
            entry = self._on_disk(subscription)
            self._dropped.pop(subscription, None)
            self._entries.pop(subscription, None)
            if entry is not None and entry.stored:
                entry.fall_back()
                self._entries[subscription] = entry
        for failed in (group, later):
            self._gone -= failed.dropped_lost
            # Later callers may have waited for what is in this group.
            failed.end(CursorsUnavailable(OUTCOME_UNKNOWN) if group.unknown else CursorsUnavailable())
        self._writing = None

    # In the writer thread.

    def _write_groups(self) -> None:
        while (group := self._queue.get()) is not None:
            try:
                self._write(group)
            except Exception as error:  # any error: waiting callers must get a result, and the thread goes on
                self._tell(partial(self._failed, group, f"{type(error).__name__}: {error}"))
            else:
                self._tell(partial(self._stored, group))

    def _tell(self, apply: Callable[[], None]) -> None:
        # The loop is gone when the service was torn down without `close`; no call waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._outcome, apply)

    def _write(self, group: Group) -> None:
        try:
            self._store(group)
        except sqlite3.Error as error:
            group.unknown = not self._commits.is_undone(error, lambda: self._connection.execute(OVERWRITE))
            raise
        self._commits.succeeded()

    def _store(self, group: Group) -> None:
        plan = self._ack_rows.plan(group.acks)
        try:
            store(self._connection, group.rows, group.lost, plan)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not self._on_full():
                raise
            store(self._connection, group.rows, group.lost, plan)
        self._ack_rows.written(plan)

    def _load(self, ends: Mapping[TopicId, Offset]) -> None:
        wall, now = self._clock.wall(), self._clock.monotonic()
        words = 'SELECT subscription, topic, "offset", generation, lost, sought FROM cursors'
        rows = self._connection.execute(words).fetchall()
        parallel = self._ack_rows.load(self._connection)
        moved: dict[SubscriptionId, Row | None] = {}
        changes: dict[SubscriptionId, AckChange] = {}
        for subscription, topic_hex, stored, generation, lost, sought in rows:
            topic = TopicId(bytes.fromhex(topic_hex))
            end = ends.get(topic, Offset(0))
            known = parallel.get(subscription)
            progress = acks.ended(known, end) if known is not None and topic in ends else known
            offset = progress.floor if progress else stored
            is_past = topic in ends and offset > end
            # A time in the future was written before the clock was set back: long ago, for all we know.
            quiet = Milliseconds(wall - sought) if wall >= sought else _LONG_AGO
            grace = Grace(end, now, quiet) if end > offset else None
            cursor = Cursor(topic, end if is_past else offset, generation, lost=lost, grace=grace)
            change = next(self._changes)
            entry = CursorState(cursor, sought, change, cursor, sought, change, progress, progress)
            self._entries[SubscriptionId(subscription)] = entry
            if is_past or progress is not known:
                log.warning("cursors.past_the_end", subscription=subscription, offset=stored, end=end)
                moved[SubscriptionId(subscription)] = entry.row
            if progress is not known:
                changes[SubscriptionId(subscription)] = AckChange(progress, anew=True)
        self._gone = self._connection.execute("SELECT coalesce(sum(lost), 0) FROM gone").fetchone()[0]
        if moved:
            plan = self._ack_rows.plan(changes)
            store(self._connection, moved, 0, plan)
            self._ack_rows.written(plan)


def _start(cursor: Cursor) -> Progress:
    return acks.unsettled(cursor.offset, cursor.generation, run=0)


def _lost(entry: CursorState, oldest: Oldest) -> int:
    if entry.progress is None:
        return base.lost(entry.cursor, oldest)
    return entry.cursor.lost + acks.lost(entry.progress, oldest.get(entry.cursor.topic, Offset(0)))
