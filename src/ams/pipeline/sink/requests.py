"""Turns rows into publish requests with idempotency keys, and sends them.

A retried batch must send the same requests, but Spark does not fix partitions and order after a shuffle. So all rows of
a topic, or of one lane of it, go to one partition and are sorted by all columns. The same rows give the same requests,
and the service recognises their keys. Rows that differ each time are written down first.

    spark/QUERY/BATCH[/NAME]/PLACE/NUMBER      of a streaming query, also from within its foreachBatch
    spark/NAME/PLACE/NUMBER                    of a batch write with the option idempotencyKey

QUERY is the id in the checkpoint, the same at every start of the query. PLACE is the lane of the rows, else their
partition's number. Only a stream may use the latter: it keeps its requests and does not make them again. A batch write
without the option has a new name for each try of a task: a retried task stores all its messages again.
"""

import contextlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from ams.client import wire
from ams.client.errors import AlreadyExists, ClientError, Conflict, InvalidInput, NotAllowed, NotFound, TooLarge
from ams.core.messages import MAX_ORDERING_KEY, is_ordering_key
from ams.core.names import is_resource_name
from ams.pipeline.columns import PLACE
from ams.pipeline.errors import WrongOption, WrongRow
from ams.pipeline.options import Limits
from ams.pipeline.service_calls import Service

DATA, ATTRIBUTES, ORDERING_KEY, TOPIC, LANE = "data", "attributes", "ordering_key", "topic", "lane"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    DATA: ((BinaryType, StringType), "binary or string"),  # required
    ATTRIBUTES: ((MapType,), "map<string,string>"),
    ORDERING_KEY: ((StringType,), "string"),  # also null or empty
    TOPIC: ((StringType,), "string"),  # unless the option `topic` names one for all rows
    LANE: ((IntegralType,), "a whole number"),  # rows of one lane keep their order; absent: the partition
}


class Lane(NamedTuple):
    """Rows of a topic that keep their order; each lane numbers its requests."""

    topic: str
    place: str


class EncodedMessage(NamedTuple):
    """An encoded message and the name of its row."""

    body: bytes
    where: str  # names the row in errors, without its data


class _OutgoingMessage(msgspec.Struct, omit_defaults=True, rename="camel"):
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""


_encode = msgspec.json.Encoder().encode


class Layout(NamedTuple):
    """Layout of a frame's columns."""

    topic: str | None  # None: each row names its topic
    order_by: tuple[str, ...]  # columns that must not decrease within a lane
    columns: frozenset[str]


def layout(schema: StructType, topic: str | None, order_by: Sequence[str] = ()) -> Layout:
    """Return the layout of a frame. Raises `WrongOption` if it cannot be published."""
    for name, (kinds, said) in _TYPES.items():
        if name in schema.names and not _is(schema[name].dataType, kinds):
            raise WrongOption("columns", f"{name} is {schema[name].dataType.simpleString()}; it must be {said}")
    if DATA not in schema.names:
        raise WrongOption("columns", "there is no column data (binary or string)")
    if topic is None and TOPIC not in schema.names:
        raise WrongOption("topic", "is missing; give it, or a column topic")
    for name in order_by:
        if name not in schema.names:
            raise WrongOption("orderBy", f"there is no column {name}")
        if isinstance(schema[name].dataType, ArrayType | MapType | StructType):
            raise WrongOption("orderBy", f"{name} is {schema[name].dataType.simpleString()}, which has no order")
    if others := [name for name in schema.names if name not in {*_TYPES, *PLACE.names, *order_by}]:
        reason = f"{others[0]} is no part of a message; select data, attributes, ordering_key and topic"
        raise WrongOption("columns", reason)
    return Layout(topic, tuple(order_by), frozenset(schema.names))


def _is(kind: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, MapType):
        return MapType in kinds and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return isinstance(kind, kinds)


class Rows:
    """Reads one partition's rows in order. Raises `WrongRow` for the first invalid one."""

    def __init__(self, layout: Layout, partition: int) -> None:
        self._layout, self._partition = layout, partition
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        self._last: dict[Lane, tuple[Any, ...]] = {}
        self._row = -1

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[Lane, EncodedMessage]]:
        """Yield the messages of a batch, each with its lane."""
        given = self._layout

        def values(name: str) -> Any:
            return batch.column(name).to_pylist() if name in given.columns else repeat(None)

        topics = repeat(given.topic) if given.topic else values(TOPIC)
        orders = zip(*map(values, given.order_by), strict=True) if given.order_by else repeat(())
        columns = [values(DATA), values(ATTRIBUTES), values(ORDERING_KEY), topics, values(LANE), orders]
        for data, attributes, key, topic, lane, order in zip(*columns, strict=False):
            self._row += 1
            where = self._lanes.get((topic, lane)) or self._lane(topic, lane)
            if order:
                rank = tuple((value is not None, value) for value in order)
                if rank < self._last.get(where, rank):
                    raise self._wrong(f"comes after a larger one of topic {topic}; sort within partitions by orderBy")
                self._last[where] = rank
            yield where, EncodedMessage(self._encode_row(data, attributes, key or ""), self.name(order))

    def name(self, order: tuple[Any, ...]) -> str:
        """Name the current row in errors, by its place and its order columns."""
        row = f"row {self._row} of partition {self._partition}"
        if not order:
            return row
        values = ", ".join(f"{name}={value}" for name, value in zip(self._layout.order_by, order, strict=False))
        return f"{row} ({values[:200]})"

    def _lane(self, topic: str | None, lane: int | None) -> Lane:
        if topic is None or not is_resource_name(topic):
            raise self._wrong(f"{topic!r} is no name of a topic")
        if LANE in self._layout.columns and lane is None:
            raise self._wrong("has no lane")
        place = f"p{self._partition}" if lane is None else f"l{lane}"
        self._lanes[topic, lane] = found = Lane(topic, place)
        return found

    def _encode_row(self, data: bytes | str | None, attributes: list[tuple[str, str]] | None, key: str) -> bytes:
        given = data.encode() if isinstance(data, str) else data or b""
        if not is_ordering_key(key):
            raise self._wrong(f"has an ordering key of more than {MAX_ORDERING_KEY} bytes")
        if not given and not attributes:
            raise self._wrong("has neither data nor attributes")
        named = dict(attributes or ())
        if None in named.values():
            raise self._wrong("has an attribute without a value")
        return _encode(_OutgoingMessage(given, named, key))

    def _wrong(self, reason: str) -> WrongRow:
        return WrongRow(f"{self.name(())} {reason}")


def arrange_rows(rows: DataFrame, order_by: Sequence[str] = (), lane: Column | None = None) -> DataFrame:
    """Return the rows with a column `lane`, in an order that depends only on the rows.

    Rows of a topic are ordered by `order_by`, then by content. With `lane`, an integer column, only rows of one lane
    keep their order, and lanes are published in parallel.
    """
    topic = [TOPIC] if TOPIC in rows.columns else []
    content: list[str | Column] = [DATA]
    if ATTRIBUTES in rows.columns:
        content.append(F.array_sort(F.map_entries(ATTRIBUTES)))
    # Spark does not change an explicit number of partitions at run time.
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return (
        rows.withColumn(LANE, F.lit(0) if lane is None else lane)
        .repartition(partitions, *topic, LANE)
        .sortWithinPartitions(*topic, LANE, *order_by, *content)
    )


def with_attributes(marks: Mapping[str, Column]) -> Column:
    """Return the message's attributes with `marks` added or replaced."""
    kept = F.map_filter("attributes", lambda name, _: ~name.isin(*marks))
    pairs = [each for name, value in marks.items() for each in (F.lit(name), value)]
    return F.map_concat(kept, F.create_map(*pairs))


_HEAD, _TAIL = b'{"messages":[', b"]}"
_EMPTY = len(_HEAD) + len(_TAIL)


@dataclass(slots=True)
class Chunk:
    """Messages of one request."""

    lane: Lane
    number: int
    messages: list[EncodedMessage] = field(default_factory=list)
    size: int = _EMPTY  # bytes of the body

    def body(self) -> bytes:
        """Return the body of the request."""
        return _HEAD + b",".join(each.body for each in self.messages) + _TAIL


class Chunker:
    """Groups messages into requests; each lane keeps its order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Lane, Chunk] = {}
        self._numbers: Counter[Lane] = Counter()
        self._bytes = 0

    def add(self, lane: Lane, message: EncodedMessage) -> Iterator[Chunk]:
        """Add a message; yield the requests that are now complete."""
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
            yield from self.rest(but=lane)  # not this lane's: its end must not depend on other lanes in the partition

    def rest(self, but: Lane | None = None) -> Iterator[Chunk]:
        """Yield the open requests in the order of their first messages, except that of lane `but`."""
        for chunk in [each for each in self._open.values() if each.lane != but]:
            yield self._close(chunk)

    def _close(self, chunk: Chunk) -> Chunk:
        del self._open[chunk.lane]
        self._bytes -= chunk.size - _EMPTY
        return chunk


QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def key_prefix(name: str | None, task: TaskContext) -> str:
    """Return the key prefix of a task; `name` is the option idempotencyKey."""
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return f"spark/{name or uuid4()}"
    return "/".join(["spark", query, batch, *([name] if name else [])])


class Publisher(NamedTuple):
    """Publishes one task's requests, each retried under its key. Thread-safe."""

    service: Service
    project: str  # of the topics
    key_prefix: str
    create_topics: bool

    def send(self, chunk: Chunk) -> None:
        """Publish a request. Raises a `ClientError` that names topic and rows."""
        project, topic = self.project, chunk.lane.topic
        key = f"{self.key_prefix}/{chunk.lane.place}/{chunk.number}"
        call = wire.publish_encoded(project, topic, chunk.body(), key=key)
        try:
            try:
                self.service.call(call)
            except NotFound as error:
                if not self.create_topics:
                    raise NotFound(f"{error.message} (createTopics=true makes it)") from None
                with contextlib.suppress(AlreadyExists):  # by another task, or by a call whose answer was lost
                    self.service.call(replace(wire.create_topic(project, topic), repeatable=True))
                self.service.call(call)
        except ClientError as error:
            # Same class as the service's error, so that callers can tell it.
            raise type(error)(f"topic {project}/{topic}: {_reason(chunk, error)}") from None


def _reason(chunk: Chunk, error: ClientError) -> str:
    if isinstance(error, TooLarge):
        largest = max(chunk.messages, key=lambda each: len(each.body))
        if len(chunk.messages) == 1:
            return f"{largest.where} is too large for the service: {len(largest.body)} bytes as it travels"
        most = f"the largest is {largest.where} with {len(largest.body)} bytes"
        whole = f"a request of {_extent(chunk)} and {chunk.size} bytes is too large for the service, or a message of it"
        return f"{whole}; {most} (maxRequestBytes says how large requests may be)"
    if isinstance(error, Conflict):
        before = "was published with other content before, in an earlier try of this batch"
        advice = "rows must come the same, in the same order and with the same maxRequest options, each time"
        return f"a request of {_extent(chunk)} {before}; {advice}"
    if isinstance(error, NotAllowed):
        return f"the token does not allow to publish there: {error.message}"
    if isinstance(error, InvalidInput):
        return f"the service refuses a request of {_extent(chunk)}: {error.message}"
    return error.message


def _extent(chunk: Chunk) -> str:
    first, last = chunk.messages[0], chunk.messages[-1]
    return f"{len(chunk.messages)} messages, from {first.where} to {last.where},"


THREADS = 4  # parallel requests, each to another topic
WAITING_PER_THREAD = 2  # queued requests per thread


class Sender(contextlib.AbstractContextManager["Sender"]):
    """Sends requests on threads; a topic always has the same thread, which keeps its order.

    After a failure, or an error in the `with` block, nothing more is sent; `put` and the end of the block raise it.
    """

    def __init__(self, send: Callable[[Chunk], None], threads: int = THREADS) -> None:
        self._send = send
        self._threads = [ThreadPoolExecutor(1) for _ in range(threads)]
        self._waiting: list[deque[Future[None]]] = [deque() for _ in range(threads)]
        self._error: BaseException | None = None

    def put(self, chunk: Chunk) -> None:
        """Queue a request after the earlier ones of its topic; blocks while the queue is full (back-pressure)."""
        number = zlib.crc32(chunk.lane.topic.encode()) % len(self._threads)
        waiting = self._waiting[number]
        if len(waiting) > WAITING_PER_THREAD:
            waiting.popleft().result()
        self._raise()
        waiting.append(self._threads[number].submit(self._try, chunk))

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
        except BaseException as error:  # the next `put` raises it
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
