"""A group commit: what is asked of the committer, how it is packed into records, and what was done.

Small appends to a topic are put together up to a record's size, so that a pull reads few records; an append that is
larger gets records of its own, the last of which says that it is the last. Messages that are loaded from another log
keep their offsets and publish times: such an append is made of each run of them that may share a record.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored
from ams.core.names import Offset
from ams.storage.log.base import Appended, check_load
from ams.storage.log.embedded.record import (
    MAX_REQUESTS,
    RECORD_BYTES,
    Header,
    KeyNote,
    Kind,
    Request,
    encode,
    messages_body,
)
from ams.storage.log.embedded.segment import Open, seed_of
from ams.storage.log.embedded.topic import Tail, TopicState


class Assigned(NamedTuple):
    """Where messages are that have their offsets and publish time from another log."""

    first: Offset
    time: Milliseconds


@dataclass(slots=True, eq=False)
class Append:
    """An append on its way through the committer."""

    topic: TopicState
    fragments: Sequence[Fragment]
    size: int
    """Bytes of the fragments."""
    data_bytes: int
    done: asyncio.Future[Appended]
    key: bytes = b""
    """Empty: none."""
    hashed: bytes = b""
    """`key_hash` of the key."""
    content: bytes = b""
    """`content_hash` of the messages when there is a key."""
    assigned: Assigned | None = None
    """None: the end of the topic, and now."""


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


Work = Append | Control | Chore | None
"""What is sent to the committer; None asks it to finish."""


class WrittenRecord(NamedTuple):
    """A record and where it is."""

    topic: TopicState
    first: Offset
    time: Milliseconds
    messages: int
    position: int
    length: int


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
    answers: list[tuple[Append, Appended]] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    time: Milliseconds = Milliseconds(0)
    """When the controls were written."""
    failed: list[Append | Control] = field(default_factory=list)
    in_doubt: bool = False
    """Whether bytes of what failed may be in the file, and a restart may find them."""
    closed: list[Open] = field(default_factory=list)
    """Segments that will not grow any more."""


@dataclass(slots=True)
class Packed:
    """The bytes of a group for one segment, and what is true once they are durable there."""

    parts: list[bytes] = field(default_factory=list)
    records: list[WrittenRecord] = field(default_factory=list)
    answers: list[tuple[Append, Appended]] = field(default_factory=list)
    tails: list[tuple[TopicState, Tail]] = field(default_factory=list)


class RecordContent(NamedTuple):
    """What goes into one record."""

    requests: Sequence[Request]
    fragments: Sequence[Fragment]
    last: bool


class Run(NamedTuple):
    """Appends of one topic that follow each other without a hole and have one publish time."""

    first: Offset
    time: Milliseconds
    appends: Sequence[Append]


def pack(topics: Mapping[TopicState, Sequence[Append]], segment: Open, commit: int, now: Milliseconds) -> Packed:
    """Give the appends of a group their offsets and time, and make their records; nothing is changed yet."""
    packed = Packed()
    position = segment.length
    for topic, appends in topics.items():
        tail = topic.tail
        for run in _runs(topic, appends, now):
            tail = _answer(run, tail, commit, packed)
            position = _pack_run(topic, run, position, segment, commit, packed)
        packed.tails.append((topic, tail))
    return packed


def _runs(topic: TopicState, appends: Sequence[Append], now: Milliseconds) -> Iterator[Run]:
    """Yield the appends of a topic by where they go: to its end, now, or each where it was in another log."""
    if appends[0].assigned is None:
        yield Run(topic.tail.end, max(now, topic.tail.time), appends)
        return
    for append in appends:
        assert append.assigned is not None, "a topic that is being loaded is not published to"
        yield Run(*append.assigned, (append,))


def _answer(run: Run, tail: Tail, commit: int, packed: Packed) -> Tail:
    """Note the answers of a run's appends; return where they bring the topic's tail."""
    first, published = run.first, tail.published
    for append in run.appends:
        count = len(append.fragments)
        packed.answers.append((append, Appended(first, count, run.time)))
        first = Offset(first + count)
        published += append.data_bytes
    return Tail(first, run.time, published, commit)


def _pack_run(topic: TopicState, run: Run, position: int, segment: Open, commit: int, packed: Packed) -> int:
    """Make the records of a run; return the position after them."""
    first, seed = run.first, seed_of(segment.sequence)
    for requests, fragments, last in record_contents(run.appends, first):
        messages = len(fragments)
        header = Header(
            Kind.MESSAGES, last, topic.id, first, run.time, commit, segment.durable, messages, len(requests)
        )  # fmt: skip
        record = encode(header, messages_body(requests, fragments), seed)
        packed.parts.append(record)
        packed.records.append(WrittenRecord(topic, first, run.time, messages, position, len(record)))
        position += len(record)
        first = Offset(first + messages)
    return position


def record_contents(appends: Iterable[Append], first: Offset) -> Iterator[RecordContent]:
    """Yield the records of one topic's appends, in order; `first` is the offset of the first message."""
    requests: list[Request] = []
    fragments: list[Fragment] = []
    size = 0
    for append in appends:
        count = len(append.fragments)
        request = Request(count, append.data_bytes, _note(append, first))
        first = Offset(first + count)
        if requests and (size + append.size > RECORD_BYTES or len(requests) == MAX_REQUESTS):
            yield RecordContent(requests, fragments, True)
            requests, fragments, size = [], [], 0
        if append.size > RECORD_BYTES:
            yield from _split(append.fragments, request)
            continue
        requests.append(request)
        fragments += append.fragments
        size += append.size
    if requests:
        yield RecordContent(requests, fragments, True)


def _note(append: Append, first: Offset) -> KeyNote | None:
    return KeyNote(append.key, append.content, first, len(append.fragments)) if append.key else None


def _split(fragments: Sequence[Fragment], request: Request) -> Iterator[RecordContent]:
    """Cut an append into records; only the last one carries its data bytes and key."""
    start = 0
    for stop in _cuts(fragments):
        yield RecordContent((Request(stop - start, 0),), fragments[start:stop], False)
        start = stop
    yield RecordContent((request._replace(messages=len(fragments) - start),), fragments[start:], True)


def _cuts(fragments: Sequence[Fragment]) -> Iterator[int]:
    size = 0
    for number, fragment in enumerate(fragments):
        if number and size + len(fragment) > RECORD_BYTES:
            yield number
            size = 0
        size += len(fragment)


def loads(
    topic: TopicState, batch: Sequence[Stored], new_answer: Callable[[], "asyncio.Future[Appended]"]
) -> Iterator[Append]:
    """Yield an append for each run of a batch; raise `InvalidInput` for messages that cannot follow those before."""
    check_load(batch, topic.end, topic.tail.time)
    for run in _runs_to_load(batch):
        fragments = [each.fragment for each in run]
        # No data bytes: what was published elsewhere is known since the topic was created.
        yield Append(
            topic, fragments, sum(map(len, fragments)), 0, new_answer(), assigned=Assigned(run[0].offset, run[0].time)
        )  # fmt: skip


def _runs_to_load(batch: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Cut a batch into what may share a record: messages of one time, without a hole."""
    run: list[Stored] = []
    size, end, time = 0, Offset(-1), Milliseconds(-1)
    for each in batch:
        if run and (each.offset != end or each.time != time or size + len(each.fragment) > RECORD_BYTES):
            yield run
            run, size = [], 0
        run.append(each)
        size += len(each.fragment)
        end, time = Offset(each.offset + 1), each.time
    if run:
        yield run
