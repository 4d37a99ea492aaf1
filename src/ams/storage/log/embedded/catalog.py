"""Where messages are: topics and segments of an open log, and the way from an offset or a time to records.

Used on the event loop alone, but for what the committer sets of a topic. A segment's index is either in memory
(`entries`) or in its index file (`head`). What must be loaded first is asked for by raising `NotLoaded`; damage of an
index file is raised as `IndexDamaged`.
"""

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, LogUnavailable
from ams.core.names import Offset, TopicId
from ams.storage.files import is_shortage
from ams.storage.log.embedded.index_file import (
    HEAD_BYTES,
    NOWHERE,
    Directory,
    IndexHead,
    Row,
    TopicExtent,
    decode_entries,
    key_in,
)
from ams.storage.log.embedded.pages import NotLoaded, Pages
from ams.storage.log.embedded.segment import CLASSES, CURSORS, RetentionClass
from ams.storage.log.embedded.segment_index import Entries, KeyedResult, KeyFilter, SegmentEntries, unpacked

T = TypeVar("T")


class Tail(msgspec.Struct, frozen=True, gc=False):
    """Where the durable messages of a topic end."""

    end: Offset = Offset(0)
    time: Milliseconds = Milliseconds(0)  # publish time of the last one
    published: int = 0  # data bytes, in all
    commit: int = 0  # the group commit that brought it here


class TopicState:
    """What changes about a topic. `kind` and `tail` are set by the committer alone, all else on the event loop."""

    __slots__ = (
        "age_due", "classes", "end", "held", "hint", "id", "kind", "leaving", "oldest", "quiet", "retention", "stored",
        "tail", "under_way", "waiter",
    )  # fmt: skip

    def __init__(self, topic: TopicId, retention: Milliseconds | None, kind: RetentionClass) -> None:
        self.id = topic
        self.kind = kind  # the class whose segments its next messages go to
        self.retention = retention  # None: the log's default
        self.tail = Tail()
        self.end = Offset(0)  # the end readers see: never ahead of what is durable
        self.stored = 0  # bytes of its records in all segments
        self.classes = 0  # bit n: messages of it may be in class n
        self.oldest = Offset(0)
        self.age_due = Milliseconds(0)  # wall time at which `oldest` may have moved
        self.hint = 0  # sequence of the segment a read last found messages in
        self.waiter: asyncio.Future[None] | None = None  # completes when the end moves or the topic goes
        self.leaving = False  # being dropped
        self.under_way = 0  # appends the committer has not decided
        self.quiet: asyncio.Future[None] | None = None  # completes when none is under way
        self.held: asyncio.Future[None] | None = None  # while nothing may be appended

    def begin_at(self, first: Offset, published: int) -> None:
        """Go on where a topic ended that was kept elsewhere."""
        self.oldest = self.end = first
        self.tail = Tail(first, published=published)

    def wake(self) -> None:
        """Let those that wait look again."""
        if self.waiter is not None:
            if not self.waiter.done():
                self.waiter.set_result(None)
            self.waiter = None

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Let nothing be appended in the block, which begins when no append is under way."""
        await self.released()
        self.held = held = asyncio.get_running_loop().create_future()
        try:
            if self.under_way:
                self.quiet = asyncio.get_running_loop().create_future()
                await asyncio.wait((self.quiet,))
            yield
        finally:
            self.held = None
            held.set_result(None)

    async def released(self) -> None:
        """Wait while something holds the topic."""
        while self.held is not None:
            await asyncio.wait((self.held,))

    def give_up(self) -> None:
        """End all waits: nothing comes to the topic any more."""
        self.wake()
        if self.quiet is not None and not self.quiet.done():
            self.quiet.set_result(None)
        self.quiet = None

    def settle(self) -> None:
        """Let what waits for it go on when no append is under way."""
        if self.quiet is not None and not self.under_way:
            self.quiet.set_result(None)
            self.quiet = None

    @property
    def is_spread(self) -> bool:
        """True if its messages may be in more than one class."""
        return self.classes & (self.classes - 1) != 0

    def row(self) -> Row:
        """Return what must outlive the segments."""
        tail = self.tail
        return Row(
            self.id, tail.end, tail.time, tail.published, tail.commit, self.retention or 0, self.oldest,
            reach=Offset(0), reach_time=Milliseconds(0),
        )  # fmt: skip


class LookUp(Protocol):
    """Answers a question to `SegmentCatalog`, loading from the disk what it needs."""

    def __call__(self, ask: Callable[[], T], /) -> Awaitable[T]:
        """Return what `ask` returns."""


@dataclass(slots=True, eq=False)
class Segment:
    """A segment of the log."""

    kind: RetentionClass
    sequence: int
    path: str
    index_path: str
    length: int
    entries: SegmentEntries | None = None  # its index, while it is in memory
    head: IndexHead | None = None  # of its index file, once there is one
    filter: KeyFilter | None = None  # of the keys in its index file; None: there is none, or it is damaged
    closed: bool = False  # it will not grow any more
    cursors: int = 0  # commit of the last group of cursors in it; 0: there is none that an image has not

    def may_hold(self, hashed: bytes) -> bool:
        """Return whether the key with this hash may be in it; False is certain."""
        if self.entries is not None:
            return hashed in self.entries.keys
        return self.filter is None or self.filter.may_hold(hashed)

    @property
    def newest(self) -> Milliseconds:
        """Largest time of a record in it."""
        if self.entries is not None:
            return self.entries.newest
        assert self.head is not None
        return self.head.newest


class IndexDamaged(Exception):
    """The index file of a segment is not what was written; it must be made anew from the segment."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class IndexPosition(NamedTuple):
    """The records of a topic from `number` on in `entries`, in one segment."""

    segment: Segment
    entries: Entries
    number: int


@dataclass(slots=True)
class SegmentCatalog:
    """All segments, by class, in the order of their sequence numbers; `iter` goes through those of messages."""

    pages: Pages
    by_class: list[list[Segment]] = field(default_factory=lambda: [[] for _ in CLASSES])
    by_sequence: dict[int, Segment] = field(default_factory=dict)
    chain: list[Segment] = field(default_factory=list)  # of cursors; no messages are in these

    def add(self, segment: Segment) -> None:
        """Take a segment that is newer than the others of its class."""
        (self.chain if segment.kind is CURSORS else self.by_class[segment.kind.code]).append(segment)
        self.by_sequence[segment.sequence] = segment

    def remove(self, segment: Segment) -> None:
        """Remove a segment whose file is deleted."""
        self.by_class[segment.kind.code].remove(segment)
        del self.by_sequence[segment.sequence]
        self.forget_index(segment)
        self.pages.open.forget(segment.path)

    def forget_index(self, segment: Segment) -> None:
        """Let go of what was read from a segment's index file: it is another one now, or none."""
        self.pages.drop(segment.sequence)
        self.pages.open.forget(segment.index_path)

    def __iter__(self) -> Iterator[Segment]:
        return (segment for segments in self.by_class for segment in segments)

    def find(self, topic: TopicState, offset: Offset) -> IndexPosition | None:
        """Return where `offset` is, or the first message after it; None when there is none."""
        near = self._near(topic, offset)
        if near is not None:
            return near
        found = [place for segments in self.by_class if (place := self._in_class(segments, topic.id, offset))]
        if not found:
            return None
        best = min(found, key=lambda place: max(place.entries.firsts[place.number], offset))
        topic.hint = best.segment.sequence
        return best

    def since(self, topic: TopicState, time: Milliseconds) -> Offset | None:
        """Return the first offset published at `time` or later; None when there is none."""
        found = [self._since_in_class(segments, topic.id, time) for segments in self.by_class if segments]
        return min((offset for offset in found if offset is not None), default=None)

    def is_new(self, hashed: bytes) -> bool:
        """Return whether there is certainly no append with this key. Of a key that is new this is True, as a rule."""
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

    def answered_in(self, segment: Segment, topic: TopicId, hashed: bytes) -> KeyedResult | None:
        """Return what the newest append with this key in a segment was answered; None when the key is not in it."""
        if segment.sequence not in self.by_sequence:  # it went meanwhile
            return None
        if segment.entries is not None:
            return unpacked(segment.entries.keys.get(hashed))
        if segment.filter is None:
            raise IndexDamaged(segment, "key filter checksum")
        directory = self.directory(segment)
        row = directory.find(topic)
        place = directory.key_place(hashed) if row and row.keys else None
        if place is None:
            return None
        data = self._bytes(segment, place.position, place.size)
        return unpacked(_checked(segment, lambda: key_in(data, hashed)))

    def end_in(self, segment: Segment, topic: TopicId) -> Offset:
        """Return the offset after a topic's last message in a segment; 0 when it has none there."""
        if segment.entries is not None:
            entries = segment.entries.topics.get(topic)
            return entries.end if entries else Offset(0)
        row = self.directory(segment).find(topic)
        return row.reach if row and row.entries else Offset(0)

    def directory(self, segment: Segment) -> Directory:
        """Return the directory of a segment's index file."""
        found: Directory | None = self.pages.kept((segment.sequence, "directory"))
        if found is not None:
            return found
        head = segment.head  # that of the event loop: the index may be made anew while `load` runs on a thread
        assert head is not None

        def load() -> Directory:
            data = self._read(segment, head.directory_bytes, HEAD_BYTES)
            return _checked(segment, lambda: Directory(head, data))

        raise NotLoaded((segment.sequence, "directory"), load, lambda directory: directory.weight)

    def _near(self, topic: TopicState, offset: Offset) -> IndexPosition | None:
        """Look where it most likely is: in the open segment of the topic's class, or where the last read was."""
        segments = self.by_class[topic.kind.code]
        last = segments[-1] if segments else None
        if last is not None and last.entries is not None:
            entries = last.entries.topics.get(topic.id)
            if entries is not None and entries.holds(offset):
                return IndexPosition(last, entries, entries.at(offset))
        hinted = self.by_sequence.get(topic.hint)
        place = self._in_segment(hinted, topic.id, offset) if hinted is not None else None
        return place if place is not None and place.entries.holds(offset) else None

    def _in_class(self, segments: list[Segment], topic: TopicId, offset: Offset) -> IndexPosition | None:
        start = 0
        while start < len(segments):
            number = self._past(segments, start, topic, offset)
            if number == len(segments):
                return None
            place = self._in_segment(segments[number], topic, offset)
            if place is not None:
                return place
            # What lay here went with an older segment: go on where this class has more of the topic.
            offset, start = self._reach(segments, number, topic).end, number + 1
        return None

    def _past(self, segments: list[Segment], start: int, topic: TopicId, offset: Offset) -> int:
        return self._first(segments, start, lambda at: self._reach(segments, at, topic).end > offset)

    def _first(self, segments: list[Segment], start: int, holds: Callable[[int], bool]) -> int:
        """Return the number of the first segment from `start` on for which `holds`, which once true stays true."""
        return bisect_left(range(len(segments)), True, start, key=holds)

    def _in_segment(self, segment: Segment, topic: TopicId, offset: Offset) -> IndexPosition | None:
        if segment.entries is not None:
            entries = segment.entries.topics.get(topic)
            return IndexPosition(segment, entries, entries.at(offset)) if entries and offset < entries.end else None
        directory = self.directory(segment)
        row = directory.find(topic)
        if row is None or not row.entries or row.reach <= offset:
            return None
        block = directory.block_with(row, offset)
        entries = self._block(segment, directory, row, block)
        if offset < entries.end:
            return IndexPosition(segment, entries, entries.at(offset))
        return IndexPosition(segment, self._block(segment, directory, row, block + 1), 0)

    def _since_in_class(self, segments: list[Segment], topic: TopicId, time: Milliseconds) -> Offset | None:
        number = self._first(segments, 0, lambda at: self._reach(segments, at, topic).time >= time)
        if number == len(segments):
            return None
        offset = self._since_in_segment(segments[number], topic, time)
        if offset is not None:
            return offset
        # What is that old went with an older segment: all that follows is later.
        following = self._in_class(segments, topic, self._reach(segments, number, topic).end)
        return Offset(following.entries.firsts[following.number]) if following else None

    def _since_in_segment(self, segment: Segment, topic: TopicId, time: Milliseconds) -> Offset | None:
        if segment.entries is not None:
            return _first_since(segment.entries.topics.get(topic), time)
        directory = self.directory(segment)
        row = directory.find(topic)
        if row is None or not row.entries or row.reach_time < time:
            return None
        block = directory.block_since(row, time)
        found = _first_since(self._block(segment, directory, row, block), time)
        if found is None and block < directory.last_block(row):
            return _first_since(self._block(segment, directory, row, block + 1), time)
        return found

    def _reach(self, segments: list[Segment], number: int, topic: TopicId) -> TopicExtent:
        while number >= 0:
            segment = segments[number]
            if segment.entries is None:
                row = self.directory(segment).find(topic)
                return TopicExtent(row.reach, row.reach_time) if row else NOWHERE
            entries = segment.entries.topics.get(topic)
            if entries is not None:
                return TopicExtent(entries.end, Milliseconds(entries.times[-1]))
            number -= 1
        return NOWHERE

    def _block(self, segment: Segment, directory: Directory, row: Row, block: int) -> Entries:
        found: Entries | None = self.pages.kept((segment.sequence, block))
        if found is not None:
            return found
        place = directory.place(row, block)
        data = self._bytes(segment, place.position, place.size)
        entries = _checked(segment, lambda: decode_entries(data))
        self.pages.keep((segment.sequence, block), entries, 2 * place.size)
        return entries

    def _bytes(self, segment: Segment, position: int, size: int) -> bytes:
        key = (segment.sequence, "bytes", position)
        data: bytes | None = self.pages.kept(key)
        if data is None:
            data = _checked(segment, lambda: self.pages.open.read_now(segment.index_path, size, position))
        if data is None:
            raise NotLoaded(key, lambda: self._read(segment, size, position), len)
        return data

    def _read(self, segment: Segment, size: int, position: int) -> bytes:
        return _checked(segment, lambda: self.pages.open.read(segment.index_path, size, position))


def _checked(segment: Segment, work: Callable[[], T]) -> T:
    """Do something with an index file; an unreadable one counts as damaged, but for want of descriptors or memory."""
    try:
        return work()
    except Damaged as damage:
        raise IndexDamaged(segment, damage.message) from damage
    except OSError as error:
        if is_shortage(error):
            raise LogUnavailable from error
        raise IndexDamaged(segment, error.strerror or "unreadable") from error


def _first_since(entries: Entries | None, time: Milliseconds) -> Offset | None:
    if entries is None:
        return None
    number = entries.since(time)
    return Offset(entries.firsts[number]) if number < len(entries) else None
