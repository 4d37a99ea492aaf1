"""Catalog of topics and segments of an open log, and the look-up of records by offset or time.

Used on the event loop only; the committer thread sets `kind` and `tail` of topics. A segment's index is either in
memory (`entries`) or in its index file (`head`). Look-ups raise `NotLoaded` for bytes that are not in memory, and
`IndexDamaged` for a damaged index file.
"""

import asyncio
import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from ams.core.clock import Milliseconds
from ams.core.coalescing import answer_future
from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.storage.files import is_shortage
from ams.storage.log.embedded import segment_index
from ams.storage.log.embedded.pages import NotLoaded, Pages
from ams.storage.log.embedded.segment import CLASSES, CURSORS, RetentionClass, index_path
from ams.storage.log.embedded.segment_index import Directory, Entries, IndexHead, SegmentEntries, TopicExtent, TopicRow

T = TypeVar("T")


class Tail(msgspec.Struct, frozen=True, gc=False):
    """End of the durable messages of a topic."""

    end: Offset = Offset(0)
    time: Milliseconds = Milliseconds(0)  # publish time of the last one
    published: int = 0  # data bytes, in total
    commit: int = 0  # number of the last group commit


@dataclass(slots=True, eq=False)
class TopicState:
    """Mutable state of a topic. The committer thread sets `kind` and `tail`, the event loop all other fields."""

    id: TopicId
    retention: Milliseconds | None  # None: the log's default
    kind: RetentionClass  # of its next messages
    tail: Tail = Tail()
    end: Offset = Offset(0)  # the end that readers see: never beyond the durable end
    stored: int = 0  # bytes of its records in all segments
    classes: int = 0  # bit n: class n may have messages of it
    oldest: Offset = Offset(0)
    age_due: Milliseconds = Milliseconds(0)  # wall time of the next check for expired messages
    hint: int = 0  # sequence of the segment where the last read found messages
    waiter: asyncio.Future[None] | None = None  # completes when the end moves or the topic is dropped
    leaving: bool = False  # being dropped
    under_way: int = 0  # pending appends
    quiet: asyncio.Future[None] | None = None  # completes when no append is pending
    held: asyncio.Future[None] | None = None  # set while appends are blocked; completes at release

    def begin_at(self, first: Offset, published: int) -> None:
        """Start at the offset and byte count of a topic that is moved here."""
        self.oldest = self.end = first
        self.tail = Tail(first, published=published)

    def wake(self) -> None:
        """Wake readers that wait for new messages."""
        if self.waiter is not None:
            answer_future(self.waiter, None)
            self.waiter = None

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Block appends. The block begins when no append is pending."""
        await self.wait_for_release()
        self.held = held = asyncio.get_running_loop().create_future()
        try:
            if self.under_way:
                self.quiet = asyncio.get_running_loop().create_future()
                await asyncio.wait((self.quiet,))
            yield
        finally:
            self.held = None
            held.set_result(None)

    async def wait_for_release(self) -> None:
        """Wait while appends are blocked."""
        while self.held is not None:
            await asyncio.wait((self.held,))

    def settle(self, *, has_failed: bool = False) -> None:
        """Complete `quiet` if no append is pending, or the log has failed."""
        if self.quiet is not None and (has_failed or not self.under_way):
            answer_future(self.quiet, None)
            self.quiet = None

    def row(self) -> TopicRow:
        """Return the row for the table of topics, which outlives the segments."""
        tail = self.tail
        return TopicRow(self.id, tail.end, tail.time, tail.published, tail.commit, self.retention or 0, self.oldest)


@dataclass(slots=True, eq=False)
class Segment:
    """A segment of the log."""

    kind: RetentionClass
    sequence: int
    path: str
    length: int
    entries: SegmentEntries | None = None  # its index, while in memory
    head: IndexHead | None = None  # of its index file, if any
    filter: segment_index.KeyFilter | None = None  # of the keys in its index file; None: missing or damaged
    closed: bool = False  # no more appends
    cursors: int = 0  # commit of its last group of cursors; 0: no group that is missing in the image

    @property
    def index_path(self) -> str:
        """Path of its index file."""
        return index_path(self.path)

    def may_hold(self, hashed: bytes) -> bool:
        """Return False if the key with this hash is certainly not in it."""
        if self.entries is not None:
            return hashed in self.entries.keys
        return self.filter is None or self.filter.may_hold(hashed)

    @property
    def newest(self) -> Milliseconds:
        """Largest time of a record in it."""
        index = self.entries or self.head
        assert index is not None
        return index.newest


class IndexDamaged(Exception):
    """The index file of a segment is damaged and must be rebuilt from the segment."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class IndexPosition(NamedTuple):
    """Record `number` in a topic's `entries` of one segment."""

    segment: Segment
    entries: Entries
    number: int


@dataclass(slots=True)
class SegmentCatalog:
    """All segments by class, in order of their sequence numbers. `iter` yields segments of messages only."""

    pages: Pages
    by_class: list[list[Segment]] = field(default_factory=lambda: [[] for _ in CLASSES])
    by_sequence: dict[int, Segment] = field(default_factory=dict)
    chain: list[Segment] = field(default_factory=list)  # of cursors only

    def add(self, segment: Segment) -> None:
        """Add a segment that is newer than the others of its class."""
        (self.chain if segment.kind is CURSORS else self.by_class[segment.kind.code]).append(segment)
        self.by_sequence[segment.sequence] = segment

    def remove(self, segment: Segment) -> None:
        """Remove a segment whose file is deleted."""
        self.by_class[segment.kind.code].remove(segment)
        del self.by_sequence[segment.sequence]
        self.forget_index(segment)
        self.pages.open.forget(segment.path)

    def forget_index(self, segment: Segment) -> None:
        """Drop cached pages of a segment's index file, which was replaced or deleted."""
        self.pages.drop(segment.sequence)
        self.pages.open.forget(segment.index_path)

    def __iter__(self) -> Iterator[Segment]:
        return (segment for segments in self.by_class for segment in segments)

    def find(self, topic: TopicState, offset: Offset) -> IndexPosition | None:
        """Return the position of `offset` or of the first message after it, or None."""
        segments = self.by_class[topic.kind.code]
        if segments and (last := segments[-1]).entries is not None:
            entries = last.entries.topics.get(topic.id)
            if entries is not None and entries.holds(offset):
                return IndexPosition(last, entries, entries.at(offset))
        if (hinted := self.by_sequence.get(topic.hint)) is not None:
            place = self._in_segment(hinted, topic.id, offset)
            if place is not None and place.entries.holds(offset):
                return place
        found = [place for segments in self.by_class if (place := self._in_class(segments, topic.id, offset))]
        if not found:
            return None
        best = min(found, key=lambda place: max(place.entries.firsts[place.number], offset))
        topic.hint = best.segment.sequence
        return best

    def since(self, topic: TopicState, time: Milliseconds) -> Offset | None:
        """Return the first offset published at `time` or later, or None."""
        found = [self._since_in_class(segments, topic.id, time) for segments in self.by_class if segments]
        return min((offset for offset in found if offset is not None), default=None)

    def is_new(self, hashed: bytes) -> bool:
        """Return True if there is certainly no append with this key. For a new key usually True."""
        for segments in self.by_class:
            for each in segments:
                if each.may_hold(hashed):
                    return False
        return True

    def may_hold(self, hashed: bytes, since: Milliseconds) -> list[Segment]:
        """Return the segments that may hold an append with this key of `since` or later, newest first."""
        found = [each for segments in self.by_class for each in segments if each.may_hold(hashed)]
        found = [each for each in found if each.newest >= since]
        return sorted(found, key=lambda each: each.sequence, reverse=True) if len(found) > 1 else found

    def result_in(self, segment: Segment, topic: TopicId, hashed: bytes) -> bytes | None:
        """Return the result (`KEYED_RESULT`) of the newest append with this key in a segment, or None."""
        if segment.sequence not in self.by_sequence:  # removed meanwhile
            return None
        if segment.entries is not None:
            return segment.entries.keys.get(hashed)
        if segment.filter is None:
            raise IndexDamaged(segment, "key filter checksum")
        directory = self.directory(segment)
        row = directory.find(topic)
        place = directory.key_place(hashed) if row and row.keys else None
        if place is None:
            return None
        data = self._bytes(segment, *place)
        return _guard_index_read(segment, lambda: segment_index.key_in(data, hashed))

    def end_in(self, segment: Segment, topic: TopicId) -> Offset:
        """Return the offset after a topic's last message in a segment; 0 if it has no message there."""
        if segment.entries is not None:
            entries = segment.entries.topics.get(topic)
            return entries.end if entries else Offset(0)
        row = self.directory(segment).find(topic)
        return row.reach if row and row.entries else Offset(0)

    def directory(self, segment: Segment) -> Directory:
        """Return the directory of a segment's index file."""
        found: Directory | None = self.pages.cached_page((segment.sequence, "directory"))
        if found is not None:
            return found
        head = segment.head  # read here, not in `load`: the index may be rebuilt while `load` runs on a thread
        assert head is not None

        def load() -> Directory:
            data = self._read_bytes(segment, head.directory_bytes, segment_index.HEAD_BYTES)
            return _guard_index_read(segment, lambda: Directory(head, data))

        raise NotLoaded((segment.sequence, "directory"), load, lambda _: 2 * head.directory_bytes)

    def _in_class(self, segments: list[Segment], topic: TopicId, offset: Offset) -> IndexPosition | None:
        start, numbers = 0, range(len(segments))
        while start < len(segments):
            number = bisect_right(numbers, offset, start, key=lambda at: self._reach(segments, at, topic).end)
            if number == len(segments):
                return None
            place = self._in_segment(segments[number], topic, offset)
            if place is not None:
                return place
            # Retention removed the messages here with an older segment: try the next segment with this topic.
            offset, start = self._reach(segments, number, topic).end, number + 1
        return None

    def _in_segment(self, segment: Segment, topic: TopicId, offset: Offset) -> IndexPosition | None:
        for entries in self._entries(segment, topic, lambda index, row: index.block_with(row, offset)):
            if offset < entries.end:
                return IndexPosition(segment, entries, entries.at(offset))
        return None

    def _since_in_class(self, segments: list[Segment], topic: TopicId, time: Milliseconds) -> Offset | None:
        number = bisect_left(range(len(segments)), time, key=lambda at: self._reach(segments, at, topic).time)
        if number == len(segments):
            return None
        for entries in self._entries(segments[number], topic, lambda index, row: index.block_since(row, time)):
            if (first := entries.since(time)) < len(entries):
                return Offset(entries.firsts[first])
        # Retention removed the messages of that time with an older segment: all that follow are later.
        following = self._in_class(segments, topic, self._reach(segments, number, topic).end)
        return Offset(following.entries.firsts[following.number]) if following else None

    def _entries(
        self, segment: Segment, topic: TopicId, first_block: Callable[[Directory, TopicRow], int]
    ) -> Iterator[Entries]:
        """Yield records of a topic in a segment: all from memory, or `first_block` of the index file and the next."""
        if segment.entries is not None:
            if topic in segment.entries.topics:
                yield segment.entries.topics[topic]
            return
        directory = self.directory(segment)
        row = directory.find(topic)
        if row is not None and row.entries:
            block = first_block(directory, row)
            for number in range(block, min(block + 1, directory.last_block(row)) + 1):
                entries: Entries | None = self.pages.cached_page((segment.sequence, number))
                if entries is None:
                    size, position = directory.place(row, number)
                    data = self._bytes(segment, size, position)
                    entries = _guard_index_read(segment, partial(segment_index.decode_entries, data))
                    self.pages.keep((segment.sequence, number), entries, 2 * size)
                yield entries

    def _reach(self, segments: list[Segment], number: int, topic: TopicId) -> TopicExtent:
        while number >= 0:
            segment = segments[number]
            if segment.entries is None:
                row = self.directory(segment).find(topic)
                return TopicExtent(row.reach, row.reach_time) if row else segment_index.NO_EXTENT
            entries = segment.entries.topics.get(topic)
            if entries is not None:
                return TopicExtent(entries.end, Milliseconds(entries.times[-1]))
            number -= 1
        return segment_index.NO_EXTENT

    def _bytes(self, segment: Segment, size: int, position: int) -> bytes:
        key = (segment.sequence, "bytes", position)
        data: bytes | None = self.pages.cached_page(key)
        if data is None:
            data = _guard_index_read(segment, lambda: self.pages.open.read_now(segment.index_path, size, position))
        if data is None:
            raise NotLoaded(key, lambda: self._read_bytes(segment, size, position), len)
        return data

    def _read_bytes(self, segment: Segment, size: int, position: int) -> bytes:
        return _guard_index_read(segment, lambda: self.pages.open.read(segment.index_path, size, position))


def _guard_index_read(segment: Segment, work: Callable[[], T]) -> T:
    """Run `work` on an index file. An unreadable file counts as damaged, except if descriptors or memory ran out."""
    try:
        return work()
    except Damaged as damage:
        raise IndexDamaged(segment, damage.message) from damage
    except OSError as error:
        if is_shortage(error):
            raise LogUnavailable from error
        raise IndexDamaged(segment, error.strerror or "unreadable") from error
