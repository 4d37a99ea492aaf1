"""Background work: writes indexes of sealed segments, deletes old segments.

Retention deletes whole segments: those whose newest message is older than the class's age, and the oldest ones while
the data folder exceeds its limit. A deleted segment's file may become a spare. A topic's own retention only moves its
oldest offset (`ams.storage.log.embedded.log`).
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Ticker
from ams.storage.files import write_whole
from ams.storage.log.base import Owner
from ams.storage.log.embedded import segment_index
from ams.storage.log.embedded.catalog import Segment, TopicState
from ams.storage.log.embedded.committer import Committer
from ams.storage.log.embedded.group_commit import Chore, Control
from ams.storage.log.embedded.journal import Journal
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.record import RecordKind
from ams.storage.log.embedded.scan import scan
from ams.storage.log.embedded.segment import HEAD_BYTES, SEAL_PART, Spares
from ams.storage.log.embedded.segment_index import Directory, IndexHead, KeyFilter, SegmentEntries, TopicExtent
from ams.storage.log.embedded.state import LogFile, LogState

NeededOffsets = Callable[[], Awaitable[Mapping[TopicId, Offset]]]  # the first offset of each topic to protect
logger = structlog.get_logger("ams.log")
T = TypeVar("T")
OwnersOverLimit = Callable[[], Iterable[Owner]]


class SegmentShare(NamedTuple):
    """A topic's part of a segment."""

    topic: TopicId
    reach: Offset  # the offset after its last message there
    bytes: int


Index = SegmentEntries | Directory


def _shares(index: Index) -> Iterable[SegmentShare]:
    if isinstance(index, SegmentEntries):
        return (SegmentShare(topic, each.end, each.bytes) for topic, each in index.topics.items())
    return (SegmentShare(row.topic, row.reach, row.bytes) for row in index.rows() if row.entries)


def _own_reach(entries: SegmentEntries) -> dict[TopicId, TopicExtent]:
    return {topic: TopicExtent(each.end, Milliseconds(each.times[-1])) for topic, each in entries.topics.items()}


class Upkeep:
    """Background work of one log, in `rounds` of `retain`. A closed segment starts a round at once."""

    def __init__(
        self, state: LogState, committer: Committer, place: LogPlace, spares: Spares, journal: Journal
    ) -> None:
        self._state, self._journal, self._committer, self._spares = state, journal, committer, spares
        self._files, self._clock, self._retention_clock = place.files, place.clock, place.retention_clock
        self._options, self._data_folder = place.options, place.options.data_folder or place.folder
        self._reach: dict[int, tuple[int, dict[TopicId, TopicExtent]]] = {}  # by class: last sealed segment, ends
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ams-log-upkeep")
        self._closed = False
        self._turn = asyncio.Lock()
        self.rounds = Ticker("upkeep of the log", self._options.check_interval_ms / 1000, self._round)
        state.on_unsealed = journal.on_due = self.rounds.soon
        self._needed: NeededOffsets | None = None
        self._owners_over_limit: OwnersOverLimit = tuple
        self._uncounted = [each for each in state.catalog if each.head is not None]  # sizes not in `stored` yet
        for segment in state.catalog:
            if segment.entries is not None:
                self._count(_shares(segment.entries))
        self._old_tables: list[str] = []
        self._forgotten: list[Segment] = []  # removed segments whose files are not deleted yet
        self._backups: dict[object, Milliseconds] = {}  # running backups and their start: no file is deleted
        self._unlisted_backups: set[object] = set()  # backups that have not listed the files yet: no index is written

    def keep_needed(self, needed: NeededOffsets, pressed: OwnersOverLimit) -> None:
        """Protect needed messages from retention by size, and free space early for owners over their limits."""
        self._needed, self._owners_over_limit = needed, pressed

    async def _round(self) -> None:
        try:
            await self.retain()
        except (OSError, LogUnavailable) as error:
            logger.warning("log.upkeep_failed", reason=str(error.__cause__ or error))

    async def retain(self) -> None:
        """Seal old segments, write indexes, delete expired segments. Raises `OSError`; then try again later."""
        failure: OSError | None = None
        async with self._turn:
            if self._closed:
                raise LogUnavailable
            await self._chore(seal_all=False)
            if not self._unlisted_backups:
                try:
                    await self._index_sealed()
                    if self._journal.is_due:
                        await self._journal.store_checkpoint()
                except OSError as error:  # on a full disk, retention below may free the space for these
                    failure = error
            while self._uncounted:
                self._count(await self._state.look_up(partial(self._shares_of, self._uncounted[0])))
                self._uncounted.pop(0)
            if not self._backups:
                await self._journal.tidy()
                await self._unlink_forgotten()
                await self._drop_old_table()
                await self._cut_old()
                await self._cut_dropped()
                await self._cut_large()
                await self._cut_for_quotas()
            if self._spares.bytes:
                await self._on_thread(lambda: self._spares.give_up(but=self._recently_written_classes()))
        if failure is not None:
            raise failure

    async def seal(self) -> None:
        """Seal and index every segment, also young ones."""
        async with self._turn:
            await self._seal_all()

    @contextlib.asynccontextmanager
    async def keep_files(self) -> AsyncIterator[Callable[[], Awaitable[Sequence[LogFile]]]]:
        """Delete no file until the block ends; write no index until the yielded function has listed the log's files."""
        copy = object()

        async def parts() -> Sequence[LogFile]:
            try:
                async with self._turn:
                    if self._closed:
                        raise LogUnavailable
                    # Barrier: afterwards the state here includes all that the tables of index files have.
                    await self._chore(seal_all=False)
                    return self._state.parts()
            finally:
                self._end_listing(copy)

        async with self._turn:
            self._backups[copy] = self._clock.monotonic()
            self._unlisted_backups.add(copy)
        try:
            yield parts
        finally:
            del self._backups[copy]
            self._end_listing(copy)

    def kept_for(self) -> Milliseconds | None:
        """Return how long backups have blocked deletions by now; None: no backup is running."""
        if not self._backups:
            return None
        return Milliseconds(self._clock.monotonic() - min(self._backups.values()))

    def _end_listing(self, copy: object) -> None:
        self._unlisted_backups.discard(copy)
        self.rounds.soon()

    async def capacity(self) -> int | None:
        """Return the capacity for messages in bytes, by the folder's limit or the disk; None: the disk is full."""
        stored = sum(each.stored for each in self._state.topics.values())
        if self._options.max_bytes is not None:
            return max(self._options.max_bytes - (await self._used_bytes() - stored), 0)
        free = await self._on_thread(lambda: self._files.free_bytes(self._data_folder))
        room = free - self._options.min_free_bytes
        return stored + room if room > 0 else None  # a full disk refuses all appends anyway

    async def close(self) -> None:
        """Finish current writes. Call before the committer ends."""
        async with self._turn:
            self._closed = True
        await asyncio.to_thread(self._thread.shutdown)

    async def _chore(self, *, seal_all: bool) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committer.submit(Chore(done, seal_all))
        await done

    async def _index_sealed(self) -> None:
        state, unsealed = self._state, self._state.unsealed
        while unsealed:
            segment = unsealed[0]
            if segment.length <= HEAD_BYTES:
                unsealed.pop(0)
                await self._remove(segment)
                continue
            if segment.cursors > self._journal.image:  # a start does not scan segments with an index
                await self._journal.store_checkpoint()
            earlier = [each for each in state.catalog.by_class[segment.kind.code] if each.sequence < segment.sequence]
            head, keys = await self._on_thread(partial(self._write_index, segment, earlier))
            state.catalog.forget_index(segment)
            segment.head, segment.filter, segment.entries = head, keys, None
            if state.table is not None and all(each.index_path != state.table for each in state.catalog):
                self._old_tables.append(state.table)
            state.table = segment.index_path
            logger.info("log.sealed", file=segment.path, bytes=segment.length)
            unsealed.pop(0)

    def _write_index(self, segment: Segment, earlier: Sequence[Segment]) -> tuple[IndexHead, KeyFilter]:
        """Write the index of a segment, durably, on the thread; `earlier`: those before it in its class, in order."""
        assert segment.entries is not None
        reach = self._reach_before(segment, earlier) | _own_reach(segment.entries)
        commit = self._state.commit  # read before the rows: newer ones do no harm
        rows = [topic.row() for topic in list(self._state.topics.values())]
        data, head, keys = segment_index.encode_index(
            segment.kind.code, segment.sequence, segment.length, commit, rows, segment.entries, reach
        )
        write_whole(self._files, segment.index_path, data)
        self._reach[segment.kind.code] = (segment.sequence, reach)
        return head, keys

    def _reach_before(self, segment: Segment, earlier: Sequence[Segment]) -> dict[TopicId, TopicExtent]:
        """Return the ends of topics before a segment: cached, from the previous index, or by a scan."""
        if not earlier:
            return {}
        sequence, reach = self._reach.get(segment.kind.code, (0, {}))
        if sequence == earlier[-1].sequence:
            return reach
        own: list[dict[TopicId, TopicExtent]] = []
        for each in reversed(earlier):
            if each.head is not None:
                with contextlib.suppress(Damaged):  # then scan
                    rows = segment_index.read_directory(self._files, each.index_path, each.head).rows()
                    own.append({row.topic: TopicExtent(row.reach, row.reach_time) for row in rows})
                    break
            content = each.entries or scan(self._files, each.path, each.sequence, each.length, closed=True).content
            own.append(_own_reach(content))
        return {topic: reach for part in reversed(own) for topic, reach in part.items()}

    async def _drop_old_table(self) -> None:
        while self._old_tables:
            await self._on_thread(lambda: self._files.unlink(self._old_tables[-1]))
            self._old_tables.pop()

    async def _seal_all(self) -> None:
        await self._chore(seal_all=True)
        await self._index_sealed()

    async def _cut_segment(self, segment: Segment, reason: str) -> None:
        await self._remove(segment)
        logger.info("log.cut", file=segment.path, bytes=segment.length, reason=reason)

    async def _cut_old(self) -> None:
        now = self._retention_clock.wall()
        for segment in list(self._state.catalog):
            if segment.head is not None and segment.newest < now - segment.kind.age:
                await self._cut_segment(segment, "age")

    async def _cut_dropped(self) -> None:
        """Delete segments with messages of dropped topics only. Else publishing and dropping could fill the disk."""
        if not self._state.has_dropped:
            return
        self._state.has_dropped = False
        for segment in [each for each in self._state.catalog if each.head is not None]:
            if not await self._state.look_up(partial(self._shares_of, segment)):
                await self._cut_segment(segment, "dropped")

    async def _cut_large(self) -> None:
        if self._options.max_bytes is None:
            return
        sealed_all = False
        needed = await self._needed() if self._needed else {}
        while await self._used_bytes() > self._options.max_bytes:
            if await self._cut_oldest("size", needed) or await self._on_thread(self._spares.give_up):
                continue
            if sealed_all:
                return
            sealed_all = True
            await self._seal_all()
            await self._drop_old_table()

    async def _cut_for_quotas(self) -> None:
        """Free space for owners over their limits: delete segments with their messages that nobody needs."""
        if self._options.max_bytes is None or self._needed is None:
            return
        sealed_all = False
        while True:
            topics: set[TopicId] = set()
            for owner in self._owners_over_limit():
                there = [self._state.topics[each] for each in owner.topics if each in self._state.topics]
                if sum(each.stored for each in there) > owner.limit:
                    topics.update(owner.topics)
            if not topics:
                return
            if await self._cut_oldest("quota", await self._needed(), topics):
                continue
            if sealed_all:
                return
            sealed_all = True
            await self._seal_all()

    async def _cut_oldest(
        self, reason: str, needed: Mapping[TopicId, Offset], holding: Collection[TopicId] | None = None
    ) -> bool:
        """Delete the oldest segment without needed messages, if any, and with messages of `holding`."""
        sealed = [each for each in self._state.catalog if each.head is not None]
        for segment in sorted(sealed, key=lambda each: each.sequence):
            if self._needed is not None:
                index = await self._state.look_up(partial(self._index_of, segment))
                if not await self._on_thread(partial(self._is_unneeded, index, needed, holding)):
                    continue
            await self._cut_segment(segment, reason)
            return True
        return False

    def _is_unneeded(self, index: Index, needed: Mapping[TopicId, Offset], holding: Collection[TopicId] | None) -> bool:
        """Return whether a segment has messages of `holding` and no needed ones. Slow: runs on the thread."""
        holds, topics = holding is None, self._state.topics
        for share in _shares(index):
            state = topics.get(share.topic)
            if state is None:
                continue
            if max(needed.get(share.topic, share.reach), state.oldest) < share.reach:
                return False
            holds = holds or share.topic in (holding or ())
        return holds

    def _index_of(self, segment: Segment) -> Index:
        return segment.entries or self._state.catalog.directory(segment)

    def _shares_of(self, segment: Segment) -> list[SegmentShare]:
        topics = self._state.topics
        return [each for each in _shares(self._index_of(segment)) if each.topic in topics]

    def _count(self, shares: Iterable[SegmentShare], sign: int = 1) -> None:
        for share in shares:
            state = self._state.topics.get(share.topic)
            if state is not None:
                state.stored = max(state.stored + sign * share.bytes, 0)

    async def _used_bytes(self) -> int:
        return await self._on_thread(lambda: self._files.used_bytes(self._data_folder))

    async def _remove(self, segment: Segment) -> None:
        """Remove a segment, completely even if cancelled: a half-removed segment would reappear."""
        removing = asyncio.ensure_future(self._forget_and_unlink(segment))
        try:
            await asyncio.shield(removing)
        except asyncio.CancelledError:
            try:
                await removing
            except Exception as error:  # any error: the log is being closed
                logger.warning("log.upkeep_failed", reason=str(error))
            raise

    async def _forget_and_unlink(self, segment: Segment) -> None:
        state = self._state
        shares = await state.look_up(partial(self._shares_of, segment))
        bit = 1 << segment.kind.code
        if state.catalog.by_class[segment.kind.code][0] is segment:
            spread = [each for each in state.topics.values() if each.classes & bit and each.classes != bit]
            ends = {each: await state.look_up(partial(state.catalog.end_in, segment, each.id)) for each in spread}
        else:
            ends = {state.topics[each.topic]: each.reach for each in shares if each.topic in state.topics}
        state.catalog.remove(segment)
        self._count(shares, -1)
        for topic in state.topics.values():
            topic.age_due = Milliseconds(0)
        await self._drop_older_in_other_classes(ends)
        self._forgotten.append(segment)
        await self._unlink_forgotten()

    async def _unlink_forgotten(self) -> None:
        while self._forgotten:
            segment = self._forgotten[0]
            keep, reuse = segment.index_path == self._state.table, segment.kind.code in self._recently_written_classes()
            await self._on_thread(partial(self._unlink, segment, keep_index=keep, reuse=reuse))
            self._forgotten.pop(0)

    async def _drop_older_in_other_classes(self, ends: dict[TopicState, Offset]) -> None:
        """Drop older messages of the topic from other classes too, so that kept offsets have no holes.

        Writes the new oldest offset to the log where needed. Else a restart would find the older messages again.
        """
        catalog = self._state.catalog
        before = {topic: topic.oldest for topic in ends}
        for topic, end in ends.items():
            topic.oldest = max(topic.oldest, end)
        for topic, end in ends.items():
            left = await self._state.look_up(partial(catalog.find, topic, before[topic]))
            if left is not None and left.entries.firsts[left.number] < end:
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._committer.submit(Control(RecordKind.OLDEST, topic, done, oldest=topic.oldest))
                with contextlib.suppress(LogUnavailable):  # on a full disk, freeing space matters more
                    await done

    def _recently_written_classes(self) -> set[int]:
        """Return codes of retention classes with messages so new that a freed segment file is soon used again."""
        now = self._clock.wall()
        segments = self._state.catalog
        return {each.kind.code for each in segments if now - each.newest < each.kind.age // SEAL_PART}

    def _unlink(self, segment: Segment, *, keep_index: bool, reuse: bool) -> None:
        worth = reuse and segment.length > HEAD_BYTES
        # The segment first, then its index: after a power loss a segment without index would be scanned and reappear.
        if not (worth and self._spares.keep(segment.kind.code, segment.sequence, segment.path, segment.length)):
            self._files.unlink(segment.path)
            self._files.sync_folder(os.path.dirname(segment.path))
        if not keep_index:
            self._files.unlink(segment.index_path)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
