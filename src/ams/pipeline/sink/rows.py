"""From rows to messages: which columns a frame must have to be published, and what each row says.

    data         binary or string     what the message holds; needed
    attributes   map<string,string>   absent: none
    ordering_key string               absent, null or empty: none
    topic        string               where to, unless the option `topic` says it for all rows
    lane         integer              whose order is kept (`arranging`); absent: the partition

The columns that only the service gives (`project`, `offset`, `message_id`, `publish_time`) are passed over, so that
messages can be published as they were read. Any other column is refused: it would be lost without a word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from ams.core.messages import MAX_ORDERING_KEY, is_ordering_key
from ams.core.names import is_name
from ams.pipeline.columns import PLACE
from ams.pipeline.errors import WrongOption, WrongRow
from ams.pipeline.sink.chunks import Encoded, Lane
from ams.pipeline.sink.keys import place

DATA, ATTRIBUTES, ORDERING_KEY, TOPIC, LANE = "data", "attributes", "ordering_key", "topic", "lane"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    DATA: ((BinaryType, StringType), "binary or string"),
    ATTRIBUTES: ((MapType,), "map<string,string>"),
    ORDERING_KEY: ((StringType,), "string"),
    TOPIC: ((StringType,), "string"),
    LANE: ((IntegralType,), "a whole number"),
}


class _Message(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A message of a publish; bytes are written as base64."""

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
    has_attributes: bool
    has_ordering_key: bool
    has_lane: bool


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
    there = (name in schema.names for name in (ATTRIBUTES, ORDERING_KEY, LANE))
    return Layout(topic, tuple(order_by), *there)


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
                self._in_order(where, order)
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
        return [
            batch.column(DATA).to_pylist(),
            batch.column(ATTRIBUTES).to_pylist() if given.has_attributes else repeat(None),
            batch.column(ORDERING_KEY).to_pylist() if given.has_ordering_key else repeat(None),
            repeat(given.topic) if given.topic else batch.column(TOPIC).to_pylist(),
            batch.column(LANE).to_pylist() if given.has_lane else repeat(None),
            zip(*(batch.column(name).to_pylist() for name in given.order_by), strict=True)
            if given.order_by
            else repeat(()),
        ]

    def _lane(self, topic: str | None, lane: int | None) -> Lane:
        if topic is None or not is_name(topic):
            raise self._wrong(f"{topic!r} is no name of a topic")
        if self._layout.has_lane and lane is None:
            raise self._wrong("has no lane")
        self._lanes[topic, lane] = found = Lane(topic, place(lane, self._partition))
        return found

    def _in_order(self, lane: Lane, order: tuple[Any, ...]) -> None:
        key = tuple((value is not None, value) for value in order)
        if key < self._last.get(lane, key):
            raise self._wrong(f"comes after a larger one of topic {lane.topic}; sort within partitions by orderBy")
        self._last[lane] = key

    def _encoded(self, data: bytes | str | None, attributes: list[tuple[str, str]] | None, key: str) -> bytes:
        given = data.encode() if isinstance(data, str) else data or b""
        if not is_ordering_key(key):
            raise self._wrong(f"has an ordering key of more than {MAX_ORDERING_KEY} bytes")
        if not attributes:
            return _encode(_Message(given, {}, key)) if given else self._no_content()
        named = dict(attributes)
        if None in named.values():
            raise self._wrong("has an attribute without a value")
        return _encode(_Message(given, named, key))

    def _no_content(self) -> NoReturn:
        raise self._wrong("has neither data nor attributes")

    def _wrong(self, reason: str) -> WrongRow:
        return WrongRow(f"{self.name(())} {reason}")
