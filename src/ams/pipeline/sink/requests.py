"""From rows to messages to requests: which travel together, under which idempotency key, and how they are sent.

    data         binary or string     what the message holds; needed
    attributes   map<string,string>   absent: none
    ordering_key string               absent, null or empty: none
    topic        string               where to, unless the option `topic` says it for all rows
    lane         integer              whose order is kept (`arranged`); absent: the partition

The columns that only the service gives (`project`, `offset`, `message_id`, `publish_time`) are passed over, so that
messages can be published as they were read. Any other column is refused: it would be lost without a word.

Spark promises neither how rows are parted nor in which order they come once they were shuffled, and a batch that is
tried again must send the same requests. So all rows of a topic, or of a lane of it, go to one partition, whichever that
is, and are sorted there by everything that tells them apart. The same rows make the same requests, and the service
knows these by their keys. Rows that themselves come differently each time are written down first.

    spark/QUERY/BATCH[/NAME]/PLACE/NUMBER      of a streaming query, also from within its foreachBatch
    spark/NAME/PLACE/NUMBER                    of a batch write with the option idempotencyKey

QUERY is the id that stands in the checkpoint, so it stays the same however often the query is started. PLACE is the
lane of rows that say one, else the number of their partition, which only a stream may go by: its requests are kept and
not made again. A batch write without the option has a new name each time a task is tried: each request is stored once,
but a task that is tried again sends all of its messages again.
"""

import contextlib
import shutil
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
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
from ams.pipeline.options import Limits, Writing
from ams.pipeline.service import Service
from ams.tables.location import sync

DATA, ATTRIBUTES, ORDERING_KEY, TOPIC, LANE = "data", "attributes", "ordering_key", "topic", "lane"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    DATA: ((BinaryType, StringType), "binary or string"),
    ATTRIBUTES: ((MapType,), "map<string,string>"),
    ORDERING_KEY: ((StringType,), "string"),
    TOPIC: ((StringType,), "string"),
    LANE: ((IntegralType,), "a whole number"),
}


class Lane(NamedTuple):
    """Rows of a topic that keep their order; requests are numbered in each lane by itself."""

    topic: str
    place: str


class Encoded(NamedTuple):
    """A message as it travels, and where it comes from."""

    body: bytes
    where: str  # tells a person which row it is; quotes nothing of its data


class _Message(msgspec.Struct, omit_defaults=True, rename="camel"):
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Layout:
    """How the columns of a frame are read."""

    topic: str | None  # where all rows go; None when each says it
    order_by: tuple[str, ...]  # columns that must never fall within a lane
    columns: frozenset[str]


def layout(schema: StructType, topic: str | None, order_by: Sequence[str] = ()) -> Layout:
    """Look at the columns of a frame; raise `WrongOption` for a frame that cannot be published."""
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
    for name in schema.names:
        if name not in {*_TYPES, *PLACE.names, *order_by}:
            raise WrongOption(
                "columns", f"{name} is no part of a message; select data, attributes, ordering_key and topic"
            )
    return Layout(topic, tuple(order_by), frozenset(schema.names))


def _is(kind: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, MapType):
        return MapType in kinds and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return isinstance(kind, kinds)


class Rows:
    """Reads the rows of one partition in their order; raises `WrongRow` for the first that is no message."""

    def __init__(self, layout: Layout, partition: int) -> None:
        self._layout, self._partition = layout, partition
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        self._last: dict[Lane, tuple[Any, ...]] = {}
        self._row = -1

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[Lane, Encoded]]:
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
            yield where, Encoded(self._encoded(data, attributes, key or ""), self.name(order))

    def name(self, order: tuple[Any, ...]) -> str:
        """Say which row is at hand, by its place and the columns it is ordered by."""
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

    def _encoded(self, data: bytes | str | None, attributes: list[tuple[str, str]] | None, key: str) -> bytes:
        given = data.encode() if isinstance(data, str) else data or b""
        if not is_ordering_key(key):
            raise self._wrong(f"has an ordering key of more than {MAX_ORDERING_KEY} bytes")
        if not given and not attributes:
            raise self._wrong("has neither data nor attributes")
        named = dict(attributes or ())
        if None in named.values():
            raise self._wrong("has an attribute without a value")
        return _encode(_Message(given, named, key))

    def _wrong(self, reason: str) -> WrongRow:
        return WrongRow(f"{self.name(())} {reason}")


def arranged(rows: DataFrame, order_by: Sequence[str] = (), lane: Column | None = None) -> DataFrame:
    """Return the rows with a column `lane`, in an order that depends on nothing but the rows.

    The rows of a topic are ordered by the columns `order_by`, and then by content. With `lane`, a whole number, only
    the rows of the same lane keep their order, and lanes are published side by side.
    """
    topic = [TOPIC] if TOPIC in rows.columns else []
    content: list[str | Column] = [DATA]
    if ATTRIBUTES in rows.columns:
        content.append(F.array_sort(F.map_entries(ATTRIBUTES)))
    # A number of partitions that is said is one that Spark does not change while it runs.
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return (
        rows.withColumn(LANE, F.lit(0) if lane is None else lane)
        .repartition(partitions, *topic, LANE)
        .sortWithinPartitions(*topic, LANE, *order_by, *content)
    )


def written_down(batch: DataFrame, batch_id: int, folder: Path) -> DataFrame:
    """Return the rows of a batch as they were the first time it was tried; they are kept in `folder` until the next."""
    mine = folder / f"batch-{batch_id:06d}"
    if not mine.exists():
        work = folder / "_work"
        batch.write.mode("overwrite").parquet(str(work))
        for each in (*work.iterdir(), work):
            sync(str(each))
        work.rename(mine)
        sync(str(folder))
    for each in folder.glob("batch-*"):
        if each.name < mine.name:
            shutil.rmtree(each)
    return batch.sparkSession.read.schema(batch.schema).parquet(str(mine))


def marked(marks: Mapping[str, Column]) -> Column:
    """Return the attributes of a message with these among them; those of the same names are replaced."""
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
    messages: list[Encoded] = field(default_factory=list)
    size: int = _EMPTY  # bytes of the body

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


THREADS = 4  # requests under way at once, each to another topic
WAITING = 2  # requests that wait for each thread: the next one is made while one is under way


class Sender:
    """Hands requests to threads; a topic always has the same thread, so the order of its requests is kept.

    After a failure, or when a `with` is left by an error, nothing more is sent; `put` and the end of a `with` raise it.
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
