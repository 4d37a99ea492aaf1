"""What each row says."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.errors import WrongOption, WrongRow
from ams.pipeline.sink.rows import Rows, layout

TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
MAP = pa.map_(pa.string(), pa.string())


def _messages(
    columns: dict[str, Any], topic: str | None = "rain", order_by: tuple[str, ...] = ()
) -> list[tuple[str, Any]]:
    batch = pa.RecordBatch.from_pydict({name: _array(name, values) for name, values in columns.items()})
    kinds = {"data": "binary", "attributes": "map<string,string>", "lane": "int", "offset": "bigint"}
    schema = _schema(", ".join(f"{name} {kinds.get(name, 'string')}" for name in columns))
    rows = Rows(layout(schema, topic, order_by), partition=3)
    return [("/".join(lane), json.loads(message.body)) for lane, message in rows.messages(batch)]


def _array(name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, MAP) if name == "attributes" else pa.array(values)


def _schema(text: str) -> StructType:
    """Return the schema of `name type, name type`; Spark's own reader of such texts needs Java."""
    pairs = (each.split(" ") for each in text.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


@pytest.mark.parametrize(
    ("columns", "topic", "expected"),
    [
        ({"data": [b"\x00\xff"], "attributes": [[("a", "ä\n")]]}, "rain", {"data": "AP8=", "attributes": {"a": "ä\n"}}),
        ({"data": [b""], "attributes": [[("b", "1"), ("c", "2")]]}, "rain", {"attributes": {"b": "1", "c": "2"}}),
        ({"data": [b"x"], "attributes": [None]}, "rain", {"data": "eA=="}),
        ({"data": ["ä"]}, "rain", {"data": "w6Q="}),
        ({"data": [b"1"], "topic": ["other"]}, "rain", {"data": "MQ=="}),
    ],
)
def test_a_row_travels_as_the_service_wants_it(columns: dict[str, Any], topic: str, expected: dict[str, Any]) -> None:
    assert _messages(columns, topic) == [(f"{topic}/p3", expected)]


def test_a_row_may_say_its_topic_and_its_lane() -> None:
    found = _messages({"data": [b"1", b"2"], "topic": ["a", "b"], "lane": [0, 7]}, topic=None)

    assert [where for where, _ in found] == ["a/l0", "b/l7"]


def test_an_ordering_key_travels_where_there_is_one() -> None:
    found = _messages({"data": [b"1", b"2", b"3"], "ordering_key": ["bed 4", None, ""]})

    assert [message for _, message in found] == [
        {"data": "MQ==", "orderingKey": "bed 4"}, {"data": "Mg=="}, {"data": "Mw=="},
    ]  # fmt: skip
    with pytest.raises(WrongRow, match="^row 0 of partition 3 has an ordering key of more than 1024 bytes$"):
        _messages({"data": [b"1"], "ordering_key": ["é" * 513]})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"data": [b"1", None]}, "row 1 of partition 3 has neither data nor attributes"),
        ({"data": [b"1"], "attributes": [[("a", None)]]}, "has an attribute without a value"),
        ({"data": [b"1"], "topic": [None]}, "None is no name of a topic"),
        ({"data": [b"1"], "topic": ["a/b"]}, "'a/b' is no name of a topic"),
        ({"data": [b"1"], "topic": ["a"], "lane": [None]}, "has no lane"),
    ],
)
def test_a_row_that_is_no_message_is_named(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongRow, match=said):
        _messages(columns, topic=None if "topic" in columns else "rain")


def test_rows_out_of_their_order_are_refused() -> None:
    inside = {"data": [b"1", b"2", b"3"], "topic": ["a", "b", "a"], "offset": [5, 1, 5]}
    assert len(_messages(inside, topic=None, order_by=("offset",))) == 3

    with pytest.raises(WrongRow, match="row 2 of partition 3 comes after a larger one of topic a"):
        _messages(inside | {"offset": [5, 1, 4]}, topic=None, order_by=("offset",))


@pytest.mark.parametrize(
    ("schema", "topic", "said"),
    [
        ("attributes map<string,string>", "t", "option columns: there is no column data"),
        ("data int", "t", "data is int; it must be binary or string"),
        (
            "data string, attributes map<string,int>",
            "t",
            "attributes is map<string,int>; it must be map<string,string>",
        ),
        ("data string, attribute map<string,string>", "t", "attribute is no part of a message"),
        ("data string", None, "option topic: is missing; give it, or a column topic"),
        ("data string, topic int", None, "topic is int; it must be string"),
        ("data string, lane string", "t", "lane is string; it must be a whole number"),
    ],
)
def test_a_frame_that_cannot_be_published_is_refused(schema: str, topic: str | None, said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        layout(_schema(schema), topic)


def test_columns_of_what_was_read_are_passed_over() -> None:
    read = "project string, topic string, offset bigint, message_id string, publish_time timestamp, data binary"
    layout(_schema(read), "t")


@pytest.mark.parametrize(
    ("column", "said"),
    [("time", "there is no column time"), ("attributes", "attributes is map<string,string>, which has no order")],
)
def test_rows_are_only_ordered_by_columns_that_have_an_order(column: str, said: str) -> None:
    with pytest.raises(WrongOption, match=f"orderBy: {said}"):
        layout(_schema("data string, attributes map<string,string>"), "t", (column,))
