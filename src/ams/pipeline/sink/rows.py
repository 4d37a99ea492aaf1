"""From rows to messages: which columns a frame must have to be published, what each row says, and in which order.

    data         binary or string     what the message holds; needed
    attributes   map<string,string>   absent: none
    ordering_key string               absent, null or empty: none
    topic        string               where to, unless the option `topic` says it for all rows
    lane         integer              whose order is kept (`arranged`); absent: the partition

The columns that only the service gives (`project`, `offset`, `message_id`, `publish_time`) are passed over, so that
messages can be published as they were read. Any other column is refused: it would be lost without a word.

Spark promises neither how rows are parted nor in which order they come once they were shuffled, and a batch that is
tried again must send the same requests. So all rows of a topic, or of a lane of it, go to one partition, whichever that
is, and are sorted there by everything that tells them apart. What the requests hold then depends on the rows alone.

Rows that themselves come differently each time (drawn at random, of the time of day, of a table that changes meanwhile)
are written down first, and published from there.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from ams.core.messages import MAX_ORDERING_KEY, is_ordering_key
from ams.core.names import is_name
from ams.pipeline.columns import PLACE
from ams.pipeline.errors import WrongOption, WrongRow
from ams.pipeline.sink.requests import Encoded, Lane
from ams.tables.location import sync

DATA, ATTRIBUTES, ORDERING_KEY, TOPIC, LANE = "data", "attributes", "ordering_key", "topic", "lane"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    DATA: ((BinaryType, StringType), "binary or string"),
    ATTRIBUTES: ((MapType,), "map<string,string>"),
    ORDERING_KEY: ((StringType,), "string"),
    TOPIC: ((StringType,), "string"),
    LANE: ((IntegralType,), "a whole number"),
}


class _Message(msgspec.Struct, omit_defaults=True, rename="camel"):
    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Layout:
    """How the columns of a frame are read."""

    topic: str | None
    """Where all rows go; None when each says it."""
    order_by: tuple[str, ...]
    """Columns that must never fall within a lane."""
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
        self._layout = layout
        self._partition = partition
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        self._last: dict[Lane, tuple[Any, ...]] = {}
        self._row = -1

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[Lane, Encoded]]:
        """Yield the messages of a batch, each with its lane."""
        for data, attributes, key, topic, lane, order in zip(*self._columns(batch), strict=False):
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

    def _columns(self, batch: pa.RecordBatch) -> list[Any]:
        given = self._layout

        def values(name: str) -> Any:
            return batch.column(name).to_pylist() if name in given.columns else repeat(None)

        topics = repeat(given.topic) if given.topic else values(TOPIC)
        order = zip(*map(values, given.order_by), strict=True) if given.order_by else repeat(())
        return [values(DATA), values(ATTRIBUTES), values(ORDERING_KEY), topics, values(LANE), order]

    def _lane(self, topic: str | None, lane: int | None) -> Lane:
        if topic is None or not is_name(topic):
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

    The rows of a topic are published in the order of the columns `order_by`; those equal in them, in the order of their
    content. With `lane`, a whole number, only the rows of the same lane keep their order, and lanes are published side
    by side.
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
