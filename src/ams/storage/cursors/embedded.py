"""The cursor store of one node: in memory, and durable as records of the log.

Changes are written to the log's journal by group commit: cursors that move during one sync form the next group. The
group shares its sync with the messages of that moment. An acknowledgement is answered when its group is on disk.
Hand-outs are in memory only; `Grace` replaces them after a restart. Acknowledgements of parallel subscriptions
(`ams.storage.cursors.acks`) are part of the same groups.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, Self

import structlog
from pyroaring import BitMap64

from ams.core import errors
from ams.core.clock import Clock, Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.cursors import acks, base
from ams.storage.cursors import embedded_rows as rows
from ams.storage.cursors.acks import AckProgress, AckUpdate
from ams.storage.cursors.base import NO_HAND_OUT, Cursor, Grace, Oldest, Outstanding, Position, TopicOffset
from ams.storage.cursors.embedded_rows import AckChange, CursorChangeGroup, CursorState, OnDisk

PART = "memory of the cursors"
_MAX_QUIET_MS = Milliseconds(2**62)
_CURSORS_PER_TURN = 500  # cursors collected for an image in one turn of the event loop

log = structlog.get_logger("ams.cursors")
Bodies = Callable[[], Iterator[bytes]]


class Journal(Protocol):
    """Ordered journal of bodies, each stored wholly or not at all. An image is a checkpoint: it replaces all before."""

    def read(self) -> Sequence[bytes]:
        """Return all stored bodies, the image first. Call once, after the start."""

    def submit(self, body: bytes, ended: Callable[[errors.LogUnavailable | None], None]) -> None:
        """Store a body; the one before has ended. Raises `LogUnavailable` if the log has failed.

        Args:
            ended: called on the event loop. None: durable. `OutcomeUnknown`: a restart may find it. Else: not stored.
        """

    def collect_by(self, collect: Callable[[], Awaitable[Bodies]]) -> None:
        """Set the source of images. The returned `Bodies` is called on a thread.

        An image holds all that was durable at the call of `collect`, and nothing that is not durable.
        """

    async def store_checkpoint(self) -> None:
        """Store an image: a checkpoint for the next start. Raises `OSError` and `LogUnavailable`."""


class EmbeddedCursors:
    """Implements `ams.storage.cursors.acks.CursorStore` with the journal of an embedded log."""

    def __init__(self, journal: Journal, clock: Clock, supervisor: Supervisor) -> None:
        self._journal, self._clock, self._supervisor = journal, clock, supervisor
        self._loop = asyncio.get_running_loop()
        self._changes = itertools.count(1)
        self._entries: dict[SubscriptionId, CursorState] = {}
        self._dropped: dict[SubscriptionId, CursorState] = {}  # still on disk
        self._gone = self._settled_gone = 0  # lost messages of deleted cursors; the same as on disk
        self._group = CursorChangeGroup()
        self._writing: CursorChangeGroup | None = None
        self._has_failed = False

    @classmethod
    async def open(cls, journal: Journal, ends: Mapping[TopicId, Offset], clock: Clock, supervisor: Supervisor) -> Self:
        """Restore the cursors; those beyond the `ends` of their topics move back to it. Raises `Unusable`."""
        cursors = cls(journal, clock, supervisor)
        try:
            stored, cursors._gone = await asyncio.to_thread(rows.replay, journal.read())
        except ValueError as error:
            raise errors.Unusable(f"the log holds {error}; restore it or move it away") from error
        cursors._settled_gone = cursors._gone
        cursors._load(stored, ends)
        journal.collect_by(cursors._collect)
        if cursors._group.rows:
            try:
                await cursors._join_group()
            except errors.CursorsUnavailable as error:
                raise errors.Unusable("cursors beyond the end of their topics could not be moved back") from error
        return cursors

    async def create(
        self, subscription: SubscriptionId, topic: TopicId, offset: Offset, lost: int = 0, handed: Offset = NO_HAND_OUT
    ) -> None:
        """Create a cursor. With `handed` it counts as created long ago, so that the next start gives it grace."""
        old, now = self._entries.get(subscription), Milliseconds(0) if handed > offset else self._clock.wall()
        cursor = Cursor(topic, offset, lost=lost)
        entry = self._entries[subscription] = CursorState(subscription, cursor, now, next(self._changes), cursor)
        if old is not None:
            entry.settled, entry.disk, entry.settled_progress = old.settled, old.disk, old.settled_progress
        self._reset_acks(entry, old or self._dropped.get(subscription), cursor)
        await self._join(entry)

    async def drop(self, subscription: SubscriptionId) -> None:
        entry = self._entries.pop(subscription, None)
        if entry is None:
            return
        self._dropped.setdefault(subscription, entry)
        if entry.progress is not None:
            self._group.acks[subscription] = AckChange(None)
        self._gone += entry.cursor.lost
        self._group.dropped.add(subscription)
        self._group.lost += entry.cursor.lost
        self._group.rows[subscription] = None
        await self._join_group()

    async def places(self) -> Mapping[SubscriptionId, TopicOffset]:
        return {key: TopicOffset(entry.cursor.topic, entry.cursor.offset) for key, entry in self._entries.items()}

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            cursor = base.follow_topic(entry.cursor, topic)
            self._reset_acks(entry, entry, cursor)
            if self._must_store(entry, cursor):
                await self._join(entry)
        return base.position_of(entry.cursor)

    def cached_position(self, _subscription: SubscriptionId, _topic: TopicId) -> None:
        """Return None: `position` is in memory."""

    async def lost_messages(self, subscription: SubscriptionId, oldest: Oldest) -> int:
        return _lost_messages(self._entry(subscription), oldest)

    async def lost_in_all(self, oldest: Oldest, least: int = 0) -> int:
        found = self._gone + sum([_lost_messages(entry, oldest) for entry in self._entries.values()])
        if found >= least:
            return found
        # No await before both sums are changed: a concurrent call must not count the same loss.
        joined = self._join_group()
        self._gone += least - found
        self._group.lost += least - found
        await joined
        return least

    async def retain(self, subscription: SubscriptionId, generation: int, oldest: Offset) -> Position:
        entry = self._entry(subscription)
        if entry.cursor.generation == generation:
            progress = entry.progress
            if progress is not None and acks.is_parallel(progress):
                cursor = entry.cursor._replace(lost=entry.cursor.lost + acks.count_lost(progress, oldest))
                await self._settle_if_changed(entry, acks.raise_floor(progress, oldest), cursor)
                return base.position_of(entry.cursor)
            cursor = base.retain(entry.cursor, oldest)
            self._reset_acks(entry, entry, cursor)
            if self._must_store(entry, cursor):
                await self._join(entry)
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
        """Acknowledge up to `last`. A repeated id waits for the group that is still being written."""
        entry = self._entry(subscription)
        cursor = base.acknowledge(entry.cursor, last, deadline, self._clock.monotonic())
        if self._must_store(entry, cursor):
            await self._join(entry)

    async def newest_hand_out(self, subscription: SubscriptionId) -> Outstanding | None:
        handed = self._entry(subscription).cursor.handed
        if not handed:
            return None
        return Outstanding(handed[-1].end, Milliseconds(self._clock.monotonic() - handed[-1].time))

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            return False
        cursor = base.seek(entry.cursor, offset)
        self._reset_acks(entry, entry, cursor)
        entry.move(cursor, next(self._changes))
        entry.sought = self._clock.wall()
        await self._join(entry)
        return True

    async def take_over(self, subscription: SubscriptionId, topic: TopicId) -> AckProgress:
        await self.position(subscription, topic)
        entry = self._entry(subscription)
        progress = entry.progress or _start(entry.cursor)
        progress = progress._replace(run=progress.run + 1)
        await self._settle(entry, progress, entry.cursor)
        return acks.copy_progress(progress)

    async def progress(self, subscription: SubscriptionId) -> AckProgress:
        entry = self._entry(subscription)
        return acks.copy_progress(entry.progress or _start(entry.cursor))

    async def settle(self, subscription: SubscriptionId, epoch: int, run: int, change: AckUpdate) -> bool:
        """Store a change of this epoch and run. A repeated change waits for the group that has it."""
        entry = self._entry(subscription)
        progress = entry.progress
        if progress is None or not run or (progress.epoch, progress.run) != (epoch, run):
            return False
        await self._settle_if_changed(entry, acks.apply_update(progress, change), entry.cursor)
        return True

    async def restore(self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: BitMap64) -> int | None:
        entry = self._entry(subscription)
        if entry.cursor.topic != topic:
            return None
        cursor = base.seek(entry.cursor, floor)
        progress = acks.apply_seek(entry.progress or _start(entry.cursor), floor, cursor.generation, done)
        entry.sought = self._clock.wall()
        await self._settle(entry, progress, cursor, anew=True)
        return progress.epoch

    async def close(self) -> None:
        """Write the waiting changes, and an image."""
        while self._writing or self._group.waiting:
            self._send()
            if self._writing:
                await asyncio.wait(self._writing.waiting)
        try:
            await self._journal.store_checkpoint()
        except (OSError, errors.LogUnavailable) as error:  # all is in the records of the log
            log.warning("cursors.no_image", reason=str(error))

    def _entry(self, subscription: SubscriptionId) -> CursorState:
        try:
            return self._entries[subscription]
        except KeyError:
            raise errors.SubscriptionGone from None

    def _must_store(self, entry: CursorState, cursor: Cursor) -> bool:
        """Move in memory. Returns True if the caller must wait for the disk, for this or an earlier move."""
        if cursor is not entry.cursor:
            entry.move(cursor, next(self._changes))
        return not entry.is_stored

    async def _settle_if_changed(self, entry: CursorState, after: AckProgress, cursor: Cursor) -> None:
        """Store a progress. Without a change, wait for earlier changes, which the caller may have seen."""
        if after is not entry.progress:
            await self._settle(entry, after, cursor)
        elif not entry.is_stored:
            await self._join(entry)

    async def _settle(self, entry: CursorState, progress: AckProgress, cursor: Cursor, *, anew: bool = False) -> None:
        """Store a progress and always the row: after a failed seek the disk has an epoch without entries."""
        entry.move(cursor._replace(offset=progress.floor), next(self._changes))
        entry.progress = progress
        self._note_acks(entry.subscription, AckChange(progress, anew))
        await self._join(entry)

    def _reset_acks(self, entry: CursorState, before: CursorState | None, cursor: Cursor) -> None:
        if before is not None and before.progress is not None:
            entry.progress = acks.apply_seek(before.progress, cursor.offset, cursor.generation)
            self._note_acks(entry.subscription, AckChange(entry.progress, anew=True))

    def _note_acks(self, subscription: SubscriptionId, change: AckChange) -> None:
        known = self._group.acks.get(subscription)
        is_anew = change.anew or (known is not None and (known.anew or known.progress is None))
        self._group.acks[subscription] = AckChange(change.progress, is_anew)

    def _join(self, entry: CursorState) -> asyncio.Future[None]:
        self._group.rows[entry.subscription] = entry.row
        return self._join_group()

    def _join_group(self) -> asyncio.Future[None]:
        if self._has_failed:
            raise errors.CursorsUnavailable
        waiter = self._loop.create_future()
        self._group.waiting.append(waiter)
        if self._writing is None and len(self._group.waiting) == 1:
            self._loop.call_soon(self._send)
        return waiter

    def _send(self) -> None:
        """Submit the next group if none is being written. A failure does not raise: waiting callers get it."""
        if self._writing is not None or not self._group.waiting:
            return
        group = self._writing = self._group
        self._group = CursorChangeGroup()
        before = {each: entry.settled_progress for each in group.acks if (entry := self._on_disk(each)) is not None}
        try:
            self._journal.submit(rows.encode_group(group, before, self._gone), partial(self._end_group, group))
        except Exception as error:  # any error: waiting callers must get a result
            self._undo_group(group, error)

    def _end_group(self, group: CursorChangeGroup, error: errors.LogUnavailable | None) -> None:
        if self._writing is not group:  # it was given up
            return
        try:
            self._settle_group(group) if error is None else self._undo_group(group, error)
        except Exception as defect:
            self._supervisor.report_failure(PART, defect, self._give_up)

    def _give_up(self) -> None:
        self._has_failed = True
        written, self._writing = self._writing, None
        waiting, self._group = self._group, CursorChangeGroup()
        if written is not None:
            written.end(errors.CursorsUnavailable(errors.OUTCOME_UNKNOWN))
        waiting.end(errors.CursorsUnavailable())

    def _settle_group(self, group: CursorChangeGroup) -> None:
        self._settled_gone += group.lost
        for subscription in group.dropped:
            self._dropped.pop(subscription, None)
        for subscription, row in group.rows.items():
            entry = self._on_disk(subscription)
            if entry is not None and row is not None:
                entry.settled, entry.disk = row.cursor, row
        for subscription, change in group.acks.items():
            entry = self._on_disk(subscription)
            if entry is not None:
                entry.settled_progress = change.progress
        group.end()
        self._writing = None
        self._send()

    def _on_disk(self, subscription: SubscriptionId) -> CursorState | None:
        """Return the cursor that the row on disk belongs to: a dropped one until the drop is on disk too."""
        return self._dropped.get(subscription) or self._entries.get(subscription)

    def _undo_group(self, group: CursorChangeGroup, error: Exception) -> None:
        """Undo a failed group, and all later changes, which may depend on it."""
        is_unknown = isinstance(error, errors.OutcomeUnknown)
        reason = f"{type(error).__name__}: {error}"
        log.error("cursors.unavailable", reason=reason, cursors=len(group.rows), outcome_unknown=is_unknown)
        later, self._group = self._group, CursorChangeGroup()
        for subscription in group.rows | later.rows:
            entry = self._on_disk(subscription)
            self._dropped.pop(subscription, None)
            self._entries.pop(subscription, None)
            if entry is not None and entry.disk is not None:
                entry.fall_back(entry.disk)
                self._entries[subscription] = entry
        for failed in (group, later):
            self._gone -= failed.lost
            # Callers of the later group may have waited for a change in the failed one.
            failed.end(errors.CursorsUnavailable(errors.OUTCOME_UNKNOWN) if is_unknown else errors.CursorsUnavailable())
        self._writing = None

    async def _collect(self) -> Bodies:
        """Return the bodies of an image. Rows of a later group do no harm: rows are absolute."""
        lost, states = self._settled_gone, dict[SubscriptionId, OnDisk]()
        for number, key in enumerate([*self._entries, *self._dropped]):
            entry = self._on_disk(key)
            if entry is not None and entry.disk is not None:
                states[key] = OnDisk(entry.disk, entry.settled_progress)
            if number % _CURSORS_PER_TURN == _CURSORS_PER_TURN - 1:
                await asyncio.sleep(0)
        return partial(rows.encode_image, states, lost)

    def _load(self, stored: Mapping[SubscriptionId, OnDisk], ends: Mapping[TopicId, Offset]) -> None:
        wall, now = self._clock.wall(), self._clock.monotonic()
        for subscription, (row, known) in stored.items():
            topic = row.cursor.topic
            end = ends.get(topic, Offset(0))
            progress = acks.drop_from(known, end) if known is not None and topic in ends else known
            offset = progress.floor if progress else row.cursor.offset
            is_past = topic in ends and offset > end
            # A time in the future was written before the clock was set back: treat it as long ago.
            quiet = Milliseconds(wall - row.sought) if wall >= row.sought else _MAX_QUIET_MS
            grace = Grace(end, now, quiet) if end > offset else None
            cursor = row.cursor._replace(offset=end if is_past else offset, grace=grace)
            disk = row._replace(change=next(self._changes))
            entry = CursorState(subscription, cursor, row.sought, disk.change, cursor, disk, progress, known)
            self._entries[subscription] = entry
            if not is_past and progress is known:
                continue
            log.warning("cursors.past_the_end", subscription=subscription, offset=row.cursor.offset, end=end)
            if progress is not known:
                self._note_acks(subscription, AckChange(progress, anew=True))
            self._group.rows[subscription] = entry.row


def _start(cursor: Cursor) -> AckProgress:
    return acks.empty_progress(cursor.offset, cursor.generation, run=0)


def _lost_messages(entry: CursorState, oldest: Oldest) -> int:
    if entry.progress is None:
        return base.total_lost(entry.cursor, oldest)
    return entry.cursor.lost + acks.count_lost(entry.progress, oldest.get(entry.cursor.topic, Offset(0)))
