"""Packing: which messages of a group share a record, and the bytes of a group.

Small appends to a topic are put together up to a record's size, so that a pull reads few records; an append that is
larger gets records of its own, the last of which says that it is the last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment
from ams.core.names import Offset
from ams.storage.log.base import Appended
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
from ams.storage.log.embedded.segment import seed_of
from ams.storage.log.embedded.topic import Tail, TopicState
from ams.storage.log.embedded.work import Append, Placed
from ams.storage.log.embedded.writer import Open


@dataclass(slots=True)
class Packed:
    """The bytes of a group for one segment, and what is true once they are durable there."""

    parts: list[bytes] = field(default_factory=list)
    records: list[Placed] = field(default_factory=list)
    answers: list[tuple[Append, Appended]] = field(default_factory=list)
    tails: list[tuple[TopicState, Tail]] = field(default_factory=list)


class Share(NamedTuple):
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
    if appends[0].given is None:
        yield Run(topic.tail.end, max(now, topic.tail.time), appends)
        return
    for append in appends:
        assert append.given is not None, "nobody publishes to a topic that is being loaded"
        yield Run(*append.given, (append,))


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
    for requests, fragments, last in shares(run.appends, first):
        messages = len(fragments)
        header = Header(
            Kind.MESSAGES, last, topic.id, first, run.time, commit, segment.durable, messages, len(requests)
        )  # fmt: skip
        record = encode(header, messages_body(requests, fragments), seed)
        packed.parts.append(record)
        packed.records.append(Placed(topic, first, run.time, messages, position, len(record)))
        position += len(record)
        first = Offset(first + messages)
    return position


def shares(appends: Iterable[Append], first: Offset) -> Iterator[Share]:
    """Yield the records of one topic's appends, in order; `first` is the offset of the first message."""
    requests: list[Request] = []
    fragments: list[Fragment] = []
    size = 0
    for append in appends:
        count = len(append.fragments)
        request = Request(count, append.data_bytes, _note(append, first))
        first = Offset(first + count)
        if requests and (size + append.size > RECORD_BYTES or len(requests) == MAX_REQUESTS):
            yield Share(requests, fragments, True)
            requests, fragments, size = [], [], 0
        if append.size > RECORD_BYTES:
            yield from _split(append.fragments, request)
            continue
        requests.append(request)
        fragments += append.fragments
        size += append.size
    if requests:
        yield Share(requests, fragments, True)


def _note(append: Append, first: Offset) -> KeyNote | None:
    return KeyNote(append.key, append.content, first, len(append.fragments)) if append.key else None


def _split(fragments: Sequence[Fragment], request: Request) -> Iterator[Share]:
    """Cut an append into records; only the last one carries its data bytes and key."""
    start = 0
    for stop in _cuts(fragments):
        yield Share((Request(stop - start, 0),), fragments[start:stop], False)
        start = stop
    yield Share((request._replace(messages=len(fragments) - start),), fragments[start:], True)


def _cuts(fragments: Sequence[Fragment]) -> Iterator[int]:
    size = 0
    for number, fragment in enumerate(fragments):
        if number and size + len(fragment) > RECORD_BYTES:
            yield number
            size = 0
        size += len(fragment)
