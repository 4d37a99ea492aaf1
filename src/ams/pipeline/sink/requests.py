"""From messages to requests: which travel together, under which idempotency key, and how they are sent.

Where a request ends depends on nothing but the rows and their order. So whoever brings the same rows in the same order
again makes the same requests again, with the same numbers, and the service knows them by their keys:

    spark/QUERY/BATCH[/NAME]/PLACE/NUMBER      of a streaming query, also from within its foreachBatch
    spark/NAME/PLACE/NUMBER                    of a batch write with the option idempotencyKey

QUERY is the id that stands in the checkpoint, so it stays the same however often the query is started. PLACE is the
lane of rows that say one, else the number of their partition, which only a stream may go by: its requests are kept
(`batch_plan`) and not made again. A batch write without the option has a new name each
time a task is tried: each request is stored once, but a task that is tried again sends all of its messages again.
"""

import contextlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import uuid4

from pyspark import TaskContext

from ams.client import wire
from ams.client.errors import AlreadyExists, ClientError, Conflict, InvalidInput, NotAllowed, NotFound, TooLarge
from ams.pipeline.options import Limits, Writing
from ams.pipeline.service import Service

_HEAD, _TAIL = b'{"messages":[', b"]}"
_EMPTY = len(_HEAD) + len(_TAIL)


class Lane(NamedTuple):
    """Rows of a topic that keep their order; requests are numbered in each lane by itself."""

    topic: str
    place: str


class Encoded(NamedTuple):
    """A message as it travels, and where it comes from."""

    body: bytes
    where: str
    """Tells a person which row it is; quotes nothing of its data."""


@dataclass(slots=True)
class Chunk:
    """Messages of one request."""

    lane: Lane
    number: int
    messages: list[Encoded] = field(default_factory=list)
    size: int = _EMPTY
    """Bytes of the body."""

    def body(self) -> bytes:
        """Return the body of the request."""
        return _HEAD + b",".join(each.body for each in self.messages) + _TAIL


class Chunker:
    """Puts messages into requests, those of a lane in the order in which they come."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Lane, Chunk] = {}
        self._numbers: Counter[Lane] = Counter()
        self._bytes = 0

    def add(self, lane: Lane, message: Encoded) -> Iterator[Chunk]:
        """Take a message and yield the requests that are complete because of it."""
        size = len(message.body) + 1
        chunk = self._open.get(lane)
        if chunk is not None and chunk.size + size > self._limits.bytes:
            yield self._close(chunk)
            chunk = None
        if chunk is None:
            chunk = self._open[lane] = Chunk(lane, self._numbers[lane])
            self._numbers[lane] += 1
        chunk.messages.append(message)
        chunk.size += size
        self._bytes += size
        if len(chunk.messages) >= self._limits.messages:
            yield self._close(chunk)
        if self._bytes > self._limits.open_bytes:
            # Not that of this lane: where it ends must not depend on which other lanes are in the same partition.
            yield from self.rest(but=lane)

    def rest(self, but: Lane | None = None) -> Iterator[Chunk]:
        """Yield the requests that were begun, in the order of their first messages, except that of one lane."""
        for chunk in [each for each in self._open.values() if each.lane != but]:
            yield self._close(chunk)

    def _close(self, chunk: Chunk) -> Chunk:
        del self._open[chunk.lane]
        self._bytes -= chunk.size - _EMPTY
        return chunk


QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives each task of a streaming query."""


def key_prefix(name: str | None, task: TaskContext) -> str:
    """Return what the keys of a task begin with; `name` is what the option idempotencyKey says."""
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return f"spark/{name or uuid4()}"
    return "/".join(["spark", query, batch, *([name] if name else [])])


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes the requests of one task, also from several threads, each again under its key until it is answered."""

    service: Service
    writing: Writing
    key_prefix: str

    def send(self, chunk: Chunk) -> None:
        """Store the messages of a request; raise a `ClientError` that names topic and rows when they are not stored."""
        project, topic = self.writing.project, chunk.lane.topic
        key = f"{self.key_prefix}/{chunk.lane.place}/{chunk.number}"
        call = wire.publish_encoded(project, topic, chunk.body(), key=key)
        try:
            try:
                self.service.call(call)
            except NotFound as error:
                if not self.writing.create_topics:
                    raise NotFound(f"{error.message} (createTopics=true makes it)") from None
                with contextlib.suppress(AlreadyExists):  # by another task, or by a call whose answer was lost
                    self.service.call(replace(wire.create_topic(project, topic), repeatable=True))
                self.service.call(call)
        except ClientError as error:
            # Of the same class, so that whoever gets it knows as much as from the service.
            raise type(error)(f"topic {project}/{topic}: {_reason(chunk, error)}") from None


def _reason(chunk: Chunk, error: ClientError) -> str:
    if isinstance(error, TooLarge):
        largest = max(chunk.messages, key=lambda each: len(each.body))
        if len(chunk.messages) == 1:
            return f"{largest.where} is too large for the service: {len(largest.body)} bytes as it travels"
        return (
            f"a request of {_extent(chunk)} and {chunk.size} bytes is too large for the service, or a message of it; "
            f"the largest is {largest.where} with {len(largest.body)} bytes (maxRequestBytes says how large requests "
            "may be)"
        )
    if isinstance(error, Conflict):
        return (
            f"a request of {_extent(chunk)} was published with other content before, in an earlier try of this batch; "
            "rows must come the same, in the same order and with the same maxRequest options, each time"
        )
    if isinstance(error, NotAllowed):
        return f"the token does not allow to publish there: {error.message}"
    if isinstance(error, InvalidInput):
        return f"the service refuses a request of {_extent(chunk)}: {error.message}"
    return error.message


def _extent(chunk: Chunk) -> str:
    first, last = chunk.messages[0], chunk.messages[-1]
    return f"{len(chunk.messages)} messages, from {first.where} to {last.where},"


THREADS = 4
"""Requests under way at once, each to another topic."""
WAITING = 2
"""Requests that wait for each thread: the next one is made while one is under way."""


class Sender:
    """Hands requests to threads; a topic always has the same thread, so the order of its requests is kept.

    After the first failure nothing more is sent; `put` and the end of a `with` raise it. A `with` that is left by
    another error sends nothing more either.
    """

    def __init__(self, send: Callable[[Chunk], None], threads: int = THREADS) -> None:
        self._send = send
        self._threads = [ThreadPoolExecutor(1) for _ in range(threads)]
        self._waiting: list[deque[Future[None]]] = [deque() for _ in range(threads)]
        self._error: BaseException | None = None

    def put(self, chunk: Chunk) -> None:
        """Have a request sent after the earlier ones of its topic; waits while too many are under way."""
        number = zlib.crc32(chunk.lane.topic.encode()) % len(self._threads)
        waiting = self._waiting[number]
        if len(waiting) > WAITING:
            waiting.popleft().result()
        self._raise()
        waiting.append(self._threads[number].submit(self._try, chunk))

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._error = self._error or error
        for each in self._threads:
            each.shutdown()
        if error is None:
            self._raise()

    def _try(self, chunk: Chunk) -> None:
        if self._error is not None:
            return
        try:
            self._send(chunk)
        except BaseException as error:  # raised again by whoever hands over the next request
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
