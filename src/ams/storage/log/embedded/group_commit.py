"""A group commit: what is asked of the committer, how it is packed into records, and what was done.

Small appends to a topic are put together up to a record's size, so that a pull reads few records; an append that is
larger gets records of its own, the last of which says that it is the last. Messages that are loaded from another log
keep their offsets and publish times: such an append has a run for each record.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored, has_ordering_keys, sent_bytes
from ams.core.names import Offset
from ams.storage.log.base import NEVER, Appended, check_load
from ams.storage.log.embedded.record import (
    HEAD,
    MAX_REQUESTS,
    RECORD_BYTES,
    Kind,
    Stamp,
    encode_loaded,
    encode_messages,
    encode_note,
)
from ams.storage.log.embedded.segment import Open, seed_of
from ams.storage.log.embedded.topic import Tail, TopicState

Loaded = tuple[Offset, Milliseconds, Sequence[Fragment]]
"""Messages that have their offsets and publish time from another log, and share a record: the first's, and theirs."""


class Append(msgspec.Struct, eq=False):
    """An append on its way through the committer."""

    topic: TopicState
    fragments: Sequence[Fragment]
    size: int
    """Bytes of the fragments."""
    data_bytes: int
    done: asyncio.Future[Appended]
    key: bytes = b""
    """Of idempotency; empty: none."""
    hashed: bytes = b""
    """`key_hash` of the key."""
    content: bytes = b""
    """`content_hash` of the messages when there is a key."""
    loaded: Sequence[Loaded] = ()
    """The same messages, where each of them was in another log; empty: they go to the end of the topic, and now."""
    count_from: Offset = NEVER
    """Of those that were in another log, data bytes are counted from here on."""
    answer: Appended | None = None
    """Where its messages go; they are there when the committer says so."""
    has_ordering_keys: bool = False
    """Whether some of its messages have an ordering key."""


@dataclass(slots=True, eq=False)
class Control:
    """A create, drop or change of what is kept of a topic on its way through the committer."""

    kind: Kind
    topic: TopicState
    done: asyncio.Future[None]
    retention: Milliseconds | None = None
    oldest: Offset = Offset(0)


@dataclass(slots=True, eq=False)
class Chore:
    """A look at what is due beside appends: old segments to seal, the reserve, free space."""

    done: asyncio.Future[None]
    seal_all: bool = False
    """Seal every open segment however young, so that its space can be freed."""


LOAD_BYTES = 2**20
"""Messages that are loaded are stored in groups of about so many bytes."""
Work = Append | Control | Chore | None
"""What is sent to the committer; None asks it to finish."""
Appends = Mapping[TopicState, Sequence[Append]]
"""Appends by topic, in their order."""


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
    tail: Tail
    """Where the group brings the topic."""


@dataclass(slots=True)
class Outcome:
    """What one step of the committer did to one class; applied on the event loop, in this order."""

    code: int
    commit: int = 0
    begun: Open | None = None
    sequence: int = 0
    """The segment the records are in."""
    length: int = 0
    """Bytes of that segment after them."""
    records: list[WrittenRecord] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    """The appends that are stored, by topic."""
    controls: list[Control] = field(default_factory=list)
    time: Milliseconds = Milliseconds(0)
    """When the controls were written."""
    failed: list[Append | Control] = field(default_factory=list)
    in_doubt: bool = False
    """Whether bytes of what failed may be in the file, and a restart may find them."""
    closed: list[Open] = field(default_factory=list)
    """Segments that will not grow any more."""


class Packed:
    """The bytes of a group for one segment, and what is true once they are durable there."""

    def __init__(self, segment: Open, commit: int, begin: int) -> None:
        self.parts: list[bytes] = []
        """Records, one after the other."""
        self.records: list[WrittenRecord] = []
        self.shares: list[Share] = []
        self.keys = 0
        """Appends with an idempotency key."""
        self.end = begin
        """The length of the segment with them."""
        self._stamp = Stamp(commit, segment.durable, seed_of(segment.sequence))

    def add(self, topic: TopicState, appends: Sequence[Append], now: Milliseconds) -> None:
        """Add one topic's appends: to its end, now, or each to where it was in another log."""
        tail, first = topic.tail, appends[0]
        if not first.loaded:
            time = now if now > tail.time else tail.time
            if len(appends) == 1 and first.size <= RECORD_BYTES:  # usual where there are many topics
                tail = self._add_alone(topic, tail, time, first)
            else:
                tail = self._add_run(topic, tail.end, time, appends, tail.published)
        else:
            for append in appends:
                tail = self._add_loaded(topic, append, tail.published)
        self.shares.append(Share(topic, appends, tail))

    def _add_alone(self, topic: TopicState, tail: Tail, time: Milliseconds, append: Append) -> Tail:
        """Add an append that makes one record; return where it ends."""
        count = len(append.fragments)
        append.answer = Appended(tail.end, count, time)
        self._add_last(topic, tail.end, time, append, append.fragments)
        return Tail(Offset(tail.end + count), time, tail.published + append.data_bytes, self._stamp.commit)

    def _add_loaded(self, topic: TopicState, append: Append, published: int) -> Tail:
        """Add an append that keeps its offsets and times, a record for each run of it; return where it ends."""
        loaded, since = append.loaded, append.count_from
        counted = [
            0 if first < since else sent_bytes(run, sum(map(len, run))) for first, _, run in loaded
        ]  # fmt: skip
        data, lengths = encode_loaded(self._stamp, topic.id, loaded, counted, append.has_ordering_keys)
        self.parts.append(data)
        records, end = self.records, self.end
        for (first, time, run), length in zip(loaded, lengths, strict=True):
            records.append(WrittenRecord(topic, first, time, len(run), end, length))
            end += length
        self.end = end
        append.answer = Appended(loaded[0][0], len(append.fragments), time)
        return Tail(Offset(first + len(run)), time, published + sum(counted), self._stamp.commit)

    def _add_run(
        self, topic: TopicState, first: Offset, time: Milliseconds, appends: Sequence[Append], published: int
    ) -> Tail:
        """Add appends that follow each other without a hole and have one publish time; return where they end.

        Small ones share records; one that is larger than a record gets records of its own.
        """
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
        """Add the records of one append; only the last one carries its data bytes and key."""
        fragments, start, has_keys = append.fragments, 0, append.has_ordering_keys
        for stop in _cuts(fragments):
            head = (stop - start, 0, 0)
            self._add_record(topic, first, time, head, (), fragments[start:stop], has_keys, last=False)
            first, start = Offset(first + stop - start), stop
        self._add_last(topic, first, time, append, fragments[start:])

    def _add_last(
        self, topic: TopicState, first: Offset, time: Milliseconds, append: Append, fragments: Sequence[Fragment]
    ) -> None:
        """Add the last record, or the only one, of an append that shares records with no other."""
        notes: list[bytes] = []
        head = (len(fragments), append.data_bytes, self._note(append, notes) if append.key else 0)
        self._add_record(topic, first, time, head, notes, fragments, append.has_ordering_keys)

    def _note(self, append: Append, notes: list[bytes]) -> int:
        """Add the key note of an append; return its length."""
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
    """Give the appends of a group their offsets and time, and make their records; nothing is changed yet.

    The records are to begin at `begin`; None: at the end of the segment.
    """
    packed = Packed(segment, commit, segment.length if begin is None else begin)
    for topic, appends in topics.items():
        packed.add(topic, appends, now)
    return packed


def _cuts(fragments: Sequence[Fragment]) -> Iterator[int]:
    """Yield where an append is cut into records."""
    ends = list(accumulate(map(len, fragments)))
    start = size = 0
    while ends[-1] - size > RECORD_BYTES:
        start = max(start + 1, bisect_right(ends, size + RECORD_BYTES, start))
        if start == len(ends):
            return
        yield start
        size = ends[start - 1]


def loads(
    topic: TopicState,
    batch: Sequence[Stored],
    count_from: Offset,
    new_answer: Callable[[], "asyncio.Future[Appended]"],
) -> Iterator[Append]:
    """Yield appends with the messages of a batch, of which those from `count_from` on are counted.

    A record has messages of one time, without a hole, that are all counted or none. Raises `InvalidInput` for messages
    that cannot follow those before.
    """
    check_load(batch, topic.end, topic.tail.time)
    runs: list[Loaded] = []
    run: list[Fragment] = []
    size, filled, end, last = 0, 0, Offset(-1), Milliseconds(-1)
    for offset, time, fragment in batch:
        length = len(fragment)
        if offset == end and time == last and filled + length <= RECORD_BYTES and offset != count_from:
            run.append(fragment)
            filled += length
        else:
            if size >= LOAD_BYTES:
                yield _load(topic, runs, size, count_from, new_answer())
                runs, size = [], 0
            run, filled = [fragment], length
            runs.append((offset, time, run))
        size += length
        end, last = Offset(offset + 1), time
    if runs:
        yield _load(topic, runs, size, count_from, new_answer())


def _load(
    topic: TopicState, runs: list[Loaded], size: int, count_from: Offset, answer: "asyncio.Future[Appended]"
) -> Append:
    fragments = [fragment for _, _, run in runs for fragment in run]
    has_keys = has_ordering_keys(fragments)
    return Append(
        topic, fragments, size, 0, answer, loaded=runs, count_from=count_from, has_ordering_keys=has_keys
    )  # fmt: skip
