"""A group commit: what is asked of the committer, how it is packed into records, and what was done.

Small appends to a topic share a record, up to its size, so that a pull reads few records; a larger one gets records of
its own, the last of which says that it is the last. Messages that are loaded from another log keep their offsets and
publish times. A large append is written in slices behind a gap, into which the groups of others go meanwhile; the mark
that closes the gap makes it part of the segment (`docs/decisions/0035-large-appends-behind-a-gap.md`).
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
from ams.core.names import Offset, TopicId
from ams.core.runs import Columns
from ams.storage.log.base import NEVER, Appended, check_load
from ams.storage.log.embedded.catalog import Tail, TopicState
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import (
    HEAD,
    HEADER_BYTES,
    MAX_REQUESTS,
    RECORD_BYTES,
    Header,
    Kind,
    Loaded,
    Stamp,
    encode,
    encode_loaded,
    encode_messages,
    encode_note,
)
from ams.storage.log.embedded.segment import Open, Writer, seed_of


class Append(msgspec.Struct, eq=False):
    """An append on its way through the committer."""

    topic: TopicState
    fragments: Sequence[Fragment]
    size: int  # bytes of the fragments
    data_bytes: int
    done: asyncio.Future[Appended]
    key: bytes = b""  # idempotency key; empty: none
    hashed: bytes = b""
    content: bytes = b""  # `content_hash` of the messages when there is a key
    loaded: Loaded | None = None  # None: at the end of the topic, and now
    count_from: Offset = NEVER  # of those that were in another log, data bytes are counted from here on
    answer: Appended | None = None  # where its messages go; they are there when the committer says so
    has_ordering_keys: bool = False  # whether some of its messages have an ordering key


@dataclass(slots=True, eq=False)
class Control:
    """A create, drop or change of what is kept of a topic on its way through the committer."""

    kind: Kind
    topic: TopicState
    done: asyncio.Future[None]
    retention: Milliseconds | None = None
    oldest: Offset = Offset(0)


@dataclass(slots=True, eq=False)
class CursorGroup:
    """A group of moves of cursors on its way through the committer, where no other is then."""

    body: bytes
    ended: Callable[[LogUnavailable | None], None]  # called on the event loop
    tried: list[Writer] = field(default_factory=list)  # to whose segments it was written


@dataclass(slots=True, eq=False)
class Chore:
    """A look at what is due beside appends: old segments to seal, the reserve, free space."""

    done: asyncio.Future[None]
    seal_all: bool = False  # seal every open segment however young, so that its space can be freed


_MIN_SLICES = 2  # an append of more slices than this is written slice by slice
_GAP_SHARE = 8  # the gap is at most this part of the append: what is left of it is lost
_MAX_MESSAGE_OVERHEAD, _MAX_APPEND_OVERHEAD = HEADER_BYTES + 16, 4 * HEADER_BYTES
"""Bytes that records take at most beside fragments and key, for each message and each append."""
LOAD_BYTES = 2**20  # messages that are loaded are stored in groups of about so many bytes
Work = Append | Control | CursorGroup | Chore | None  # what is sent to the committer; None asks it to finish
Appends = Mapping[TopicState, Sequence[Append]]  # appends by topic, in their order


class WrittenRecord(msgspec.Struct, frozen=True):
    """A record and where it is."""

    topic: TopicState
    first: Offset
    time: Milliseconds
    messages: int
    position: int
    length: int


class Share(msgspec.Struct, frozen=True):
    """One topic's part of a group."""

    topic: TopicState
    appends: Sequence[Append]
    tail: Tail  # where the group brings the topic


@dataclass(slots=True)
class Outcome:
    """What one step of the committer did to one class; applied on the event loop, in this order."""

    code: int
    commit: int = 0
    begun: Open | None = None
    sequence: int = 0  # the segment the records are in
    length: int = 0  # bytes of that segment after them
    records: list[WrittenRecord] = field(default_factory=list)
    loaded: list[tuple[TopicState, Loaded, Sequence[int], Sequence[int]]] = field(default_factory=list)
    """Records that were loaded, with their positions and lengths."""
    shares: list[Share] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    time: Milliseconds = Milliseconds(0)  # when the controls were written
    failed: list[Append | Control] = field(default_factory=list)
    in_doubt: bool = False  # whether bytes of what failed may be in the file, and a restart may find them
    closed: list[Open] = field(default_factory=list)  # segments that will not grow any more
    cursors: CursorGroup | None = None  # a group that ended: it is in the segment, if there is no error
    cursors_error: LogUnavailable | None = None


class Packed:
    """The bytes of a group for one segment, and what is true once they are durable there."""

    def __init__(self, segment: Open, commit: int, begin: int) -> None:
        self.parts: list[bytes] = []
        self.records: list[WrittenRecord] = []
        self.loaded: list[tuple[TopicState, Loaded, Sequence[int], Sequence[int]]] = []
        self.shares: list[Share] = []
        self.keys = 0  # appends with an idempotency key
        self.end = begin  # the length of the segment with them
        self._stamp = Stamp(commit, segment.durable, seed_of(segment.sequence))

    def add(self, topic: TopicState, appends: Sequence[Append], now: Milliseconds) -> None:
        """Add one topic's appends: to its end, now, or each to where it was in another log."""
        tail, first = topic.tail, appends[0]
        if first.loaded is None:
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
                assert append.loaded is not None
                tail = self._add_loaded(topic, append, append.loaded, tail.published)
        self.shares.append(Share(topic, appends, tail))

    def _add_loaded(self, topic: TopicState, append: Append, loaded: Loaded, published: int) -> Tail:
        counted = _counted(append.fragments, loaded, append.count_from)
        has_keys = append.has_ordering_keys
        data, lengths = encode_loaded(self._stamp, topic.id, loaded, append.fragments, counted, has_keys)
        self.parts.append(data)
        *positions, self.end = accumulate(lengths, initial=self.end)
        self.loaded.append((topic, loaded, positions, lengths))
        first, time, count = (column[-1] for column in loaded)
        append.answer = Appended(Offset(loaded.firsts[0]), len(append.fragments), Milliseconds(time))
        return Tail(Offset(first + count), Milliseconds(time), published + sum(counted), self._stamp.commit)

    def _add_run(
        self, topic: TopicState, first: Offset, time: Milliseconds, appends: Sequence[Append], published: int
    ) -> Tail:
        """Add appends of one publish time, without a hole; small ones share records. Return where they end."""
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
        fragments, start, has_keys = append.fragments, 0, append.has_ordering_keys
        for stop in _record_ends(fragments):
            head = (stop - start, 0, 0)
            self._add_record(topic, first, time, head, (), fragments[start:stop], has_keys, last=False)
            first, start = Offset(first + stop - start), stop
        self._add_last(topic, first, time, append, fragments[start:])

    def _add_last(
        self, topic: TopicState, first: Offset, time: Milliseconds, append: Append, fragments: Sequence[Fragment]
    ) -> None:
        notes: list[bytes] = []
        head = (len(fragments), append.data_bytes, self._note(append, notes) if append.key else 0)
        self._add_record(topic, first, time, head, notes, fragments, append.has_ordering_keys)

    def _note(self, append: Append, notes: list[bytes]) -> int:
        assert append.answer is not None
        note = encode_note(append.key, append.content, append.answer.first, append.answer.count)
        notes.append(note)
        self.keys += 1
        return len(note)

    def _add_record(
        self,
        topic: TopicState,
        first: Offset,
        time: Milliseconds,
        heads: Sequence[int],
        notes: Sequence[bytes],
        fragments: Sequence[Fragment],
        has_ordering_keys: bool,
        last: bool = True,
    ) -> None:
        length = encode_messages(
            self.parts, self._stamp, topic.id, first, time, heads, notes, fragments, last, has_ordering_keys
        )
        self.records.append(WrittenRecord(topic, first, time, len(fragments), self.end, length))
        self.end += length


def pack(topics: Appends, segment: Open, commit: int, now: Milliseconds, begin: int | None = None) -> Packed:
    """Make the records of a group, to be written at `begin` or the end of the segment; nothing is changed yet."""
    packed = Packed(segment, commit, segment.length if begin is None else begin)
    for topic, appends in topics.items():
        packed.add(topic, appends, now)
    return packed


def _record_ends(fragments: Sequence[Fragment]) -> Iterator[int]:
    """Yield the numbers of fragments at which an append is cut into records."""
    ends = list(accumulate(map(len, fragments)))
    start = size = 0
    while ends[-1] - size > RECORD_BYTES:
        start = max(start + 1, bisect_right(ends, size + RECORD_BYTES, start))
        if start == len(ends):
            return
        yield start
        size = ends[start - 1]


def _counted(fragments: Sequence[Fragment], loaded: Loaded, since: Offset) -> Sequence[int]:
    """Return the data bytes of records that are counted: those from an offset on."""
    if loaded.firsts[-1] < since:  # usual: they were counted when the log was made
        return [0] * len(loaded.firsts)
    counted, place = [], 0
    for first, count in zip(loaded.firsts, loaded.counts, strict=True):
        run = fragments[place : place + count]
        counted.append(0 if first < since else sent_bytes(run, sum(map(len, run))))
        place += count
    return counted


def loads(
    topic: TopicState, batch: Sequence[Stored], count_from: Offset, new_answer: Callable[[], "asyncio.Future[Appended]"]
) -> Iterator[Append]:
    """Yield appends with the messages of a batch, of which those from `count_from` on are counted.

    A record has messages of one time, without a hole, that are all counted or none. Raises `InvalidInput` for messages
    that cannot follow those before.
    """
    messages = Columns.of(batch)
    check_load(messages, topic.end, topic.tail.time)
    starts: list[int] = []  # where records begin
    begin, size, filled, end, last = 0, 0, 0, -1, -1

    def append_of(run: Columns) -> Append:
        firsts, times = ([column[start] for start in starts] for column in (run.offsets, run.times))
        counts = [after - start for start, after in pairwise((*starts, len(run)))]
        return Append(
            topic, run.fragments, size, 0, new_answer(), loaded=Loaded(firsts, times, counts), count_from=count_from,
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
    """Return whether an append is written in slices: it is large, and its sync would be waited for."""
    return options.sync == "always" and append.size > _MIN_SLICES * options.group_bytes and not append.loaded


def room_for(append: Append, options: LogOptions) -> int:
    """Return how many bytes the append takes at most, with its gap."""
    return max_bytes(append) + _gap(append, options)


def max_bytes(append: Append) -> int:
    """Return how many bytes the records of an append take at most."""
    return append.size + len(append.key) + _MAX_APPEND_OVERHEAD + _MAX_MESSAGE_OVERHEAD * len(append.fragments)


def _gap(append: Append, options: LogOptions) -> int:
    return max(min(options.group_bytes, append.size // _GAP_SHARE), HEADER_BYTES)


class LargeAppend:
    """A large append, on the committer's thread. Writing raises `OSError`; `RuntimeError`: its segment is closed."""

    def __init__(self, append: Append, writer: Writer, commit: int, now: Milliseconds, options: LogOptions) -> None:
        segment = writer.open
        assert segment is not None
        self.append, self.writer = append, writer
        self._segment: Open = segment
        self.now = now
        self.later: deque[Append | Control] = deque()
        self.begin = segment.length + _gap(append, options)
        self.packed: Packed = pack({append.topic: (append,)}, segment, commit, now, self.begin)
        self.is_written = False
        self._slices = _cut(self.packed.parts, options.group_bytes)
        self._place = self.begin

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes of others fit into the gap, and the mark that closes it behind them."""
        return self._segment.length + size + HEADER_BYTES <= self.begin

    def write_slice(self) -> None:
        """Write the next slice durably; there is one."""
        parts = next(self._slices)
        self._check_open()
        self.writer.write_behind(parts, self._place, self.packed.end)
        self._place += sum(map(len, parts))
        self.is_written = self._place == self.packed.end

    def join(self, commit: int) -> None:
        """Close the gap: when it returns, the append is in the segment. All slices are written."""
        self._check_open()
        segment = self._segment
        header = Header(Kind.MARK, True, TopicId(bytes(16)), Offset(0), self.now, commit, segment.durable, 0, 0)
        zeros = bytes(self.begin - segment.length - HEADER_BYTES)
        self.writer.join(encode(header, zeros, seed_of(segment.sequence)), self.packed.end)

    def _check_open(self) -> None:
        if self.writer.open is not self._segment:
            raise RuntimeError("the segment of a large append was closed before the append was in it")


def _cut(parts: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
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
