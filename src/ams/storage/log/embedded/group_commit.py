"""A group commit: requests to the committer, their encoding as records, and the outcome.

Small appends to a topic share a record, so that a pull reads few records. A larger append gets records of its own, and
its last record has a flag. Messages loaded from another log keep their offsets and publish times. A large append is
written in slices behind a gap; meanwhile groups of others go into the gap. A mark then closes the gap and makes the
append part of the segment (`docs/decisions/0034-group-commit.md`).
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable
from ams.core.messages import Fragment, Stored, has_ordering_keys, sent_bytes
from ams.core.names import Offset
from ams.core.runs import Columns
from ams.storage.log.base import NO_OFFSET, Appended, check_load
from ams.storage.log.embedded import record
from ams.storage.log.embedded.catalog import Tail, TopicState
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import HEAD, HEADER_BYTES, MAX_REQUESTS, RECORD_BYTES, RecordKind
from ams.storage.log.embedded.segment import OpenSegment, Writer


class Append(msgspec.Struct, eq=False):
    """An append request to the committer."""

    topic: TopicState
    fragments: Sequence[Fragment]
    size: int  # bytes of the fragments
    data_bytes: int
    done: asyncio.Future[Appended]
    key: bytes = b""  # idempotency key; empty: none
    hashed: bytes = b""
    content: bytes = b""  # `content_hash` of the messages, if there is a key
    loaded: Sequence[tuple[Offset, Milliseconds, int]] = ()  # of a load: first offset, time and count of each record
    count_from: Offset = NO_OFFSET  # of loaded messages, bytes are counted from this offset on
    answer: Appended | None = None  # set when packed, valid once the committer reports success
    has_ordering_keys: bool = False  # whether any message has an ordering key


@dataclass(slots=True, eq=False)
class Control:
    """A request to the committer to create or drop a topic, or to change its retention."""

    kind: RecordKind
    topic: TopicState
    done: asyncio.Future[None]
    retention: Milliseconds | None = None
    oldest: Offset = Offset(0)


@dataclass(slots=True, eq=False)
class CursorGroup:
    """A request to the committer to store a group of cursors. At most one at a time."""

    body: bytes
    ended: Callable[[LogUnavailable | None], None]  # called on the event loop
    tried: list[Writer] = field(default_factory=list)  # writers that attempted it


@dataclass(slots=True, eq=False)
class Chore:
    """A request to the committer for maintenance: seal old segments, restore the reserve, check free space."""

    done: asyncio.Future[None]
    seal_all: bool = False  # seal also young segments, so that their space can be freed


_MIN_SLICES = 2  # an append of more slices than this is written slice by slice
_GAP_SHARE = 8  # the gap is at most 1/8 of the append: its unused rest is wasted
_MAX_MESSAGE_OVERHEAD, _MAX_APPEND_OVERHEAD = HEADER_BYTES + 16, 4 * HEADER_BYTES  # of records in bytes
LOAD_BYTES = 2**20  # loaded messages are stored in groups of about this size
Work = Append | Control | CursorGroup | Chore | None  # a request to the committer; None: finish
Appends = Mapping[TopicState, Sequence[Append]]  # appends by topic, in their order


class WrittenRecord(msgspec.Struct, frozen=True):
    """A record and its position in the segment."""

    topic: TopicState
    first: Offset
    time: Milliseconds
    messages: int
    position: int
    length: int


class TopicShare(msgspec.Struct, frozen=True):
    """One topic's part of a group."""

    topic: TopicState
    appends: Sequence[Append]
    tail: Tail  # of the topic, after the group


@dataclass(slots=True)
class CommitOutcome:
    """Result of one step of the committer for one class; applied on the event loop, in the order of the fields."""

    code: int
    commit: int = 0
    begun: OpenSegment | None = None
    sequence: int = 0  # the segment the records are in
    length: int = 0  # bytes of that segment after them
    records: list[WrittenRecord] = field(default_factory=list)
    shares: list[TopicShare] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    time: Milliseconds = Milliseconds(0)  # when the controls were written
    failed: list[Append | Control] = field(default_factory=list)
    in_doubt: bool = False  # whether a restart may find bytes of the failed work
    closed: list[OpenSegment] = field(default_factory=list)  # segments without further appends
    cursors: CursorGroup | None = None  # a group of cursors that ended: stored if there is no error
    cursors_error: LogUnavailable | None = None


class Packed:
    """The bytes of a group for one segment, and the state that holds once they are durable.

    It is to be written at `begin`, or at the end of the segment. Does not change topics or segment.
    """

    def __init__(
        self, group: Appends, segment: OpenSegment, commit: int, now: Milliseconds, begin: int | None = None
    ) -> None:
        self.parts: list[bytes] = []
        self.records: list[WrittenRecord] = []
        self.shares: list[TopicShare] = []
        self.keys = 0  # appends with an idempotency key
        self.end = segment.length if begin is None else begin  # the length of the segment with them
        self._stamp = segment.stamp(commit)
        for topic, appends in group.items():
            self._add(topic, appends, now)

    def _add(self, topic: TopicState, appends: Sequence[Append], now: Milliseconds) -> None:
        tail, first = topic.tail, appends[0]
        if not first.loaded:
            time = now if now > tail.time else tail.time
            if len(appends) == 1 and first.size <= RECORD_BYTES:  # usual where there are many topics
                count = len(first.fragments)
                first.answer = Appended(tail.end, count, time)
                self._add_last(topic, tail.end, time, first, first.fragments)
                published = tail.published + first.data_bytes
                tail = Tail(Offset(tail.end + count), time, published, self._stamp.commit)
            else:
                tail = self._add_run(topic, tail.end, time, appends, tail.published)
        else:
            for append in appends:
                tail = self._add_loaded(topic, append, tail.published)
        self.shares.append(TopicShare(topic, appends, tail))

    def _add_loaded(self, topic: TopicState, append: Append, published: int) -> Tail:
        start = 0
        for first, time, count in append.loaded:
            fragments = append.fragments[start : start + count]
            start += count
            counted = 0 if first < append.count_from else sent_bytes(fragments, sum(map(len, fragments)))
            published += counted
            has_keys = append.has_ordering_keys and has_ordering_keys(fragments)
            self._add_record(topic, first, time, (count, counted, 0), (), fragments, has_keys)
        append.answer = Appended(append.loaded[0][0], start, time)
        return Tail(Offset(first + count), time, published, self._stamp.commit)

    def _add_run(
        self, topic: TopicState, first: Offset, time: Milliseconds, appends: Sequence[Append], published: int
    ) -> Tail:
        end = first
        heads: list[int] = []
        notes: list[bytes] = []
        fragments: list[Fragment] = []
        size, has_keys = 0, False
        for append in appends:
            count = len(append.fragments)
            append.answer = Appended(end, count, time)
            published += append.data_bytes
            size += append.size
            if size > RECORD_BYTES or len(heads) == HEAD * MAX_REQUESTS:
                if heads:
                    self._add_record(topic, first, time, heads, notes, fragments, has_keys)
                    first, heads, notes, fragments, size, has_keys = end, [], [], [], append.size, False
                if size > RECORD_BYTES:
                    self._add_large(topic, first, time, append)
                    first, size = Offset(end + count), 0
                    end = first
                    continue
            heads += (count, append.data_bytes, self._note(append, notes) if append.key else 0)
            fragments += append.fragments
            has_keys |= append.has_ordering_keys
            end = Offset(end + count)
        if heads:
            self._add_record(topic, first, time, heads, notes, fragments, has_keys)
        return Tail(end, time, published, self._stamp.commit)

    def _add_large(self, topic: TopicState, first: Offset, time: Milliseconds, append: Append) -> None:
        fragments, start, size, has_keys = append.fragments, 0, 0, append.has_ordering_keys
        ends = list(accumulate(map(len, fragments)))
        while ends[-1] - size > RECORD_BYTES:
            stop = max(start + 1, bisect_right(ends, size + RECORD_BYTES, start))
            if stop == len(ends):
                break
            head = (stop - start, 0, 0)
            self._add_record(topic, first, time, head, (), fragments[start:stop], has_keys, last=False)
            first, start, size = Offset(first + stop - start), stop, ends[stop - 1]
        self._add_last(topic, first, time, append, fragments[start:])

    def _add_last(
        self, topic: TopicState, first: Offset, time: Milliseconds, append: Append, fragments: Sequence[Fragment]
    ) -> None:
        notes: list[bytes] = []
        head = (len(fragments), append.data_bytes, self._note(append, notes) if append.key else 0)
        self._add_record(topic, first, time, head, notes, fragments, append.has_ordering_keys)

    def _note(self, append: Append, notes: list[bytes]) -> int:
        assert append.answer is not None
        note = record.encode_note(append.key, append.content, append.answer.first, append.answer.count)
        notes.append(note)
        self.keys += 1
        return len(note)

    def _add_record(
        self, topic: TopicState, first: Offset, time: Milliseconds, heads: Sequence[int], notes: Sequence[bytes],
        fragments: Sequence[Fragment], has_ordering_keys: bool, last: bool = True,
    ) -> None:  # fmt: skip
        length = record.encode_messages(
            self.parts, self._stamp, topic.id, first, time, heads, notes, fragments, last, has_ordering_keys
        )
        self.records.append(WrittenRecord(topic, first, time, len(fragments), self.end, length))
        self.end += length


def load_appends(
    topic: TopicState, batch: Sequence[Stored], count_from: Offset, new_answer: Callable[[], "asyncio.Future[Appended]"]
) -> Iterator[Append]:
    """Yield appends that load a batch; bytes are counted from offset `count_from` on.

    A record has consecutive messages of one publish time, either all counted or none.

    Raises:
        InvalidInput: the messages cannot follow those before.
    """
    messages = Columns.of(batch)
    check_load(messages, topic.end, topic.tail.time)
    starts: list[int] = []  # where records begin
    begin, size, filled, end, last = 0, 0, 0, -1, -1

    def append_of(run: Columns) -> Append:
        loaded = [
            (Offset(run.offsets[start]), Milliseconds(run.times[start]), after - start)
            for start, after in pairwise((*starts, len(run)))
        ]
        return Append(
            topic, run.fragments, size, 0, new_answer(), loaded=loaded, count_from=count_from,
            has_ordering_keys=has_ordering_keys(run.fragments),
        )  # fmt: skip

    columns = zip(messages.offsets, messages.times, messages.fragments, strict=True)
    for number, (offset, time, fragment) in enumerate(columns):
        length = len(fragment)
        if offset == end and time == last and filled + length <= RECORD_BYTES and offset != count_from:
            filled += length
        else:
            if size >= LOAD_BYTES:
                yield append_of(messages[begin:number])
                begin, starts, size = number, [], 0
            starts.append(number - begin)
            filled = length
        size += length
        end, last = offset + 1, time
    if starts:
        yield append_of(messages[begin:])


def is_sliced(append: Append, options: LogOptions) -> bool:
    """Return whether an append is written in slices: it is large, and others would wait for its sync."""
    return options.sync == "always" and append.size > _MIN_SLICES * options.group_bytes and not append.loaded


def max_bytes(append: Append) -> int:
    """Return the maximum size of the records of an append in bytes."""
    return append.size + len(append.key) + _MAX_APPEND_OVERHEAD + _MAX_MESSAGE_OVERHEAD * len(append.fragments)


def gap_bytes(append: Append, options: LogOptions) -> int:
    """Return the size of the gap before a large append."""
    return max(min(options.group_bytes, append.size // _GAP_SHARE), HEADER_BYTES)


class LargeAppend:
    """A large append. Committer thread only. Writing raises `OSError`, or `RuntimeError` if its segment is closed."""

    def __init__(self, append: Append, writer: Writer, commit: int, now: Milliseconds, options: LogOptions) -> None:
        self.append, self.writer, self.now = append, writer, now
        self._segment = writer.segment
        self.later: deque[Append | Control] = deque()
        self.begin = self._segment.length + gap_bytes(append, options)
        self.packed = Packed({append.topic: (append,)}, self._segment, commit, now, self.begin)
        self.is_written = False
        self._slices = _split_parts(self.packed.parts, options.group_bytes)
        self._place = self.begin

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes of other groups and the closing mark fit into the gap."""
        return self._segment.length + size + HEADER_BYTES <= self.begin

    def write_slice(self) -> None:
        """Write the next slice durably. Not after the last one."""
        parts = next(self._slices)
        self._check_open()
        self.writer.write_behind(parts, self._place, self.packed.end)
        self._place += sum(map(len, parts))
        self.is_written = self._place == self.packed.end

    def join(self, commit: int) -> None:
        """Close the gap, after the last slice: the append is in the segment when it returns."""
        self._check_open()
        zeros = bytes(self.begin - self._segment.length - HEADER_BYTES)
        mark = record.encode_control(RecordKind.MARK, zeros, self.now, self._segment.stamp(commit))
        self.writer.join(mark, self.packed.end)

    def _check_open(self) -> None:
        if self.writer.open is not self._segment:
            raise RuntimeError("the segment of a large append was closed before the append was in it")


def _split_parts(parts: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    slice_: list[bytes] = []
    room = size
    for part in parts:
        start = 0
        while len(part) - start >= room:
            yield [*slice_, part[start : start + room]]
            slice_, start, room = [], start + room, size
        slice_.append(part[start:])
        room -= len(part) - start
    if room < size:
        yield slice_
