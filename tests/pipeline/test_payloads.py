"""Payloads become records; one unreadable message is quarantined alone."""

import codecs
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import Broken, PipelineError, WrongOption
from ams.pipeline.message_parser import Parse, _mapper, _parsed_schema
from ams.pipeline.payloads import Avro, Json, Payload, Protobuf, Text


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


FIELDS = columns(
    site=StringType(), jobs=LongType(), wall=DoubleType(), ok=BooleanType(), at=TimestampType(), day=DateType(),
    data=BinaryType(), tags=ArrayType(StringType()), more=MapType(StringType(), StringType()),
    place=columns(lat=DoubleType()),
)  # fmt: skip
ATTRIBUTES: Mapping[str, str] = {"vo": "ops"}


def read_payload(parse: Any, data: bytes) -> list[Any]:
    try:
        return [str(each) if isinstance(each, Broken) else each for each in parse(data, ATTRIBUTES)]
    except Broken as error:
        return [str(error)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_texts_of_editors_are_read_by_their_mark(encoding: str) -> None:
    for payload, written in ((Json, '{"site": "é"}'), (Text, "é\n")):
        [record] = read_payload(payload(columns(site=StringType())), written.encode(encoding))
        assert record["site"] == "é"


def test_json_is_read_into_the_types_that_are_asked_for() -> None:
    data = b"""{"site": "A", "jobs": 7, "wall": 2, "ok": true, "at": "2024-03-05T10:20:30+01:00", "day": "2024-03-05",
                "data": "aGk=", "tags": ["x"], "more": {"k": "v"}, "place": {"lat": 1.5, "odd": 1}, "other": 1}"""

    [record] = read_payload(Json(FIELDS), data)

    assert record == {
        "site": "A", "jobs": 7, "wall": 2.0, "ok": True, "at": datetime(2024, 3, 5, 9, 20, 30, tzinfo=UTC),
        "day": date(2024, 3, 5), "data": b"hi", "tags": ["x"], "more": {"k": "v"}, "place": {"lat": 1.5},
        "attributes": ATTRIBUTES,
    }  # fmt: skip


def test_each_object_of_a_list_is_a_record_and_a_bad_one_is_set_aside_alone() -> None:
    found = read_payload(Json(FIELDS, ["site"]), b'[{"site": "A"}, {"jobs": 1}, 7, {"site": "B", "at": 1709634030}]')
    assert found[0] == {**dict.fromkeys(FIELDS.names), "site": "A", "attributes": ATTRIBUTES}
    assert found[1:3] == ["field site is missing", "a JSON object is expected"]
    assert found[3]["at"] == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "not JSON: Input data was truncated"), (b"{", "not JSON: Input data was truncated"),
    (b"\xff", "not JSON: JSON is malformed: invalid character (byte 0)"),
    (b"[" * 100_000, "not JSON: nested too deeply"),
    (b'{"site": 1}', "field site: string is expected, not a number"),
    (b'{"jobs": "1"}', "field jobs: bigint is expected, not text"),
    (b'{"jobs": 1.5}', "field jobs: bigint is expected, not a number"),
    (b'{"jobs": true}', "field jobs: bigint is expected, not boolean"),
    (b'{"jobs": 9223372036854775808}', "field jobs: bigint is expected, not a number"),
    (b'{"at": "soon"}', "field at: timestamp is expected, not text"),
    (b'{"at": 1e300}', "field at: timestamp is expected, not a number"),
    (b'{"day": "2024-02-30"}', "field day: date is expected, not text"),
    (b'{"data": "%"}', "field data: binary is expected, not text"),
    (b'{"tags": ["x", 1]}', "field tags[1]: string is expected, not a number"),
    (b'{"tags": {}}', "field tags: array<string> is expected, not an object"),
    (b'{"place": {"lat": "x"}}', "field place.lat: double is expected, not text"),
])  # fmt: skip
def test_other_json_is_broken_and_names_the_field(data: bytes, reason: str) -> None:
    assert read_payload(Json(FIELDS), data) == [reason]


LINE = columns(site=StringType(), jobs=LongType(), ok=BooleanType(), at=TimestampType())


def test_lines_are_split_at_a_separator() -> None:
    parse = Text(LINE, ["jobs"], separator=";")

    found = read_payload(parse, b'A;1;true;2024-03-05T10:00:00Z\n\n"B;C";;;\nA;1\nA;x;;\n"A"x;1;;\n')

    at = datetime(2024, 3, 5, 10, tzinfo=UTC)
    assert found[0] == {"site": "A", "jobs": 1, "ok": True, "at": at, "attributes": ATTRIBUTES}
    assert found[1:] == [
        "field jobs is missing", "4 fields are expected in a line, not 2", "field jobs: bigint is expected",
        "not separated text: ';' expected after '\"'",
    ]  # fmt: skip


LINES = columns(line=StringType())


def test_a_line_can_be_a_record_as_it_is() -> None:
    assert read_payload(Text(LINES), b"a;b\nc") == [
        {"line": "a;b", "attributes": ATTRIBUTES}, {"line": "c", "attributes": ATTRIBUTES},
    ]  # fmt: skip


@pytest.mark.parametrize(("coding", "mark", "encoding", "broken"), [
    ("UTF-8", b"", "utf-8", b"\xff"),
    ("UTF-8", codecs.BOM_UTF8, "utf-8", b"\xff"),
    ("UTF-16", codecs.BOM_UTF16_LE, "utf-16-le", b"\x00\xd8"),
    ("UTF-32", codecs.BOM_UTF32_BE, "utf-32-be", b"\0\x11\0\0"),
])  # fmt: skip
def test_text_in_a_wrong_coding_costs_its_record_alone(coding: str, mark: bytes, encoding: str, broken: bytes) -> None:
    lines = mark + broken + "\nb\n".encode(encoding)
    objects = mark + '[{"line": "'.encode(encoding) + broken + '"}, {"line": "b"}]'.encode(encoding)
    kept = {"line": "b", "attributes": ATTRIBUTES}

    assert read_payload(Text(LINES), lines) == [f"not text in {coding}", kept]
    assert read_payload(Json(LINES), objects) == [f"not {coding}", kept]


SCHEMA = {
    "type": "record", "name": "m",
    "fields": [{"name": "site", "type": "string"}, {"name": "wall", "type": ["null", "double"]}],
}  # fmt: skip
AVRO = columns(site=StringType(), wall=DoubleType())


def avro(columns: StructType = AVRO, schema: Any = SCHEMA, *, packed: bool = False) -> Avro:
    return Avro(columns, definition=json.dumps(schema), packed=packed)


def encode_records(*records: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    for each in records:
        fastavro.schemaless_writer(out, fastavro.parse_schema(dict(SCHEMA)), each)
    return out.getvalue()


def test_a_text_of_avro_that_is_not_utf_8_costs_its_datum_alone() -> None:
    whole = encode_records({"site": "A", "wall": None}, {"site": "#", "wall": 1.5}, {"site": "B", "wall": None})

    found = read_payload(avro(packed=True), whole.replace(b"#", b"\xff"))

    assert [each if isinstance(each, str) else each["site"] for each in found] == [
        "A", "not Avro of this schema: a text is not UTF-8", "B",
    ]  # fmt: skip


def test_avro_is_read_one_datum_a_message_or_several() -> None:
    one = {"site": "A", "wall": 1.5}
    both = encode_records(one, {"site": "B", "wall": None})

    assert read_payload(avro(), encode_records(one)) == [{**one, "attributes": ATTRIBUTES}]
    assert [each["site"] for each in read_payload(avro(packed=True), both)] == ["A", "B"]
    assert read_payload(avro(), both) == ["not Avro of this schema: bytes are left over"]
    assert read_payload(avro(), b"") == ["not Avro of this schema: EOFError"]


LOGICAL = {
    "id": {"type": "string", "logicalType": "uuid"}, "at": {"type": "long", "logicalType": "timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"}, "raw": "bytes",
    "kind": {"type": "enum", "name": "k", "symbols": ["A"]},
    "tags": {"type": "array", "items": "int"}, "cost": {"type": "bytes", "logicalType": "decimal", "precision": 4},
}  # fmt: skip


def test_logical_types_of_avro_become_those_of_columns() -> None:
    schema = {"type": "record", "name": "m", "fields": [{"name": name, "type": kind} for name, kind in LOGICAL.items()]}
    at, id_ = datetime(2024, 3, 5, 10, tzinfo=UTC), UUID(int=7)
    values = {"id": id_, "at": at, "day": date(2024, 3, 5), "raw": b"\0", "kind": "A", "tags": [1], "cost": Decimal(12)}
    kinds = columns(id=StringType(), at=TimestampType(), day=DateType(), raw=BinaryType(), kind=StringType(),
                    tags=ArrayType(LongType()))  # fmt: skip
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values)

    [record] = read_payload(avro(kinds, schema), out.getvalue())

    assert record == {name: each for name, each in {**values, "id": str(id_)}.items() if name != "cost"} | {
        "attributes": ATTRIBUTES
    }
    assert read_payload(avro(columns(cost=DoubleType()), schema), out.getvalue()) == [
        "field cost: double is expected, not something else"
    ]


PROTOBUF = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message M { message Part { int64 number = 1; } string site_name = 1; int64 far = 2; double wall = 3;
    repeated Part parts = 4; google.protobuf.Timestamp at = 5; map<string, uint64> counts = 6; bytes raw = 7; }"""


def test_protocol_buffers_are_read_as_their_json_with_numbers_as_numbers() -> None:
    fields = columns(
        site_name=StringType(), far=LongType(), wall=DoubleType(), parts=ArrayType(columns(number=LongType())),
        at=TimestampType(), counts=MapType(StringType(), LongType()), raw=BinaryType(),
    )  # fmt: skip
    parse = Protobuf(fields, definition=PROTOBUF)

    whole = (
        b"\x0a\x01x\x10\x85\x80\x80\x80\x80\x80\x80\x80\x01\x22\x02\x08\x07\x2a\x02\x08\x05"
        + b"\x32\x05\x0a\x01a\x10\x03\x3a\x01\xff"
    )
    assert read_payload(parse, whole) == [{
        "site_name": "x", "far": 2**56 + 5, "wall": 0.0, "parts": [{"number": 7}], "raw": b"\xff",
        "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "counts": {"a": 3}, "attributes": ATTRIBUTES,
    }]  # fmt: skip
    assert read_payload(Protobuf(columns(site_name=LongType()), definition=PROTOBUF), whole) == [
        "field site_name: bigint is expected, not text"
    ]
    assert read_payload(parse, b"x") == [
        "not Protocol Buffers of this schema: the data is not a message M in the binary encoding"
    ]


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_broken(data: bytes) -> None:
    for parse in (Json(FIELDS), Text(LINE, separator=","), avro(), avro(packed=True)):
        for each in read_payload(parse, data):
            assert isinstance(each, str | dict)


@pytest.mark.parametrize(("make", "reason"), [
    (lambda: Json(FIELDS, ["town"]), "option required: there is no column town"),
    (lambda: Json(columns(n=IntegerType())), "option columns: n is int; there are string, bigint, "),
    (lambda: Json(columns(n=ArrayType(columns(m=DecimalType())))), r"option columns: n\[\].m is decimal\(10,0\); "),
    (lambda: Json(columns(n=MapType(LongType(), LongType()))), "option columns: n is map<bigint,bigint>; "),
    (lambda: Text(columns(tags=ArrayType(StringType()))), "option columns: tags is array<string>; "),
    (lambda: Text(LINE), "option separator: several fields need one"),
    (lambda: Text(LINE, separator="ab"), "option separator: is one character"),
    (lambda: Text(LINE, separator='"'), "option separator: is one character, and neither a quote"),
    (lambda: Avro(AVRO, definition="{"), "option definition: is no Avro schema of a record: Input data was truncated"),
    (lambda: avro(schema="string"), "option definition: is no Avro schema of a record"),
    (lambda: avro(schema={"type": "record", "name": "m"}), "option columns: the Avro schema has no field site, wall"),
    (lambda: avro(columns(town=StringType())), "option columns: the Avro schema has no field town"),
    (lambda: Protobuf(LINES, definition="message M {"), "option definition: .*line 1"),
])  # fmt: skip
def test_a_format_that_cannot_be_used_is_refused(make: Callable[[], Payload], reason: str) -> None:
    with pytest.raises(WrongOption, match=reason):
        make()


def test_a_table_of_records_has_the_fields_the_attributes_and_the_message() -> None:
    assert Json(LINES).schema.names == ["line", "attributes", "source"]


ROW_SCHEMA = StructType([StructField("number", LongType()), StructField("word", StringType())])


def read_batch(parse: Parse, *payloads: bytes) -> list[tuple[Any, Any, Any]]:
    at = datetime(2024, 3, 5, tzinfo=UTC)
    place = {"project": "p", "topic": "t", "message_id": "", "publish_time": at, "attributes": []}
    rows = [{**place, "offset": offset, "data": data} for offset, data in enumerate(payloads)]
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(MESSAGES, timezone="UTC"))
    found = [row for each in _mapper(parse, _parsed_schema(ROW_SCHEMA))(iter([batch])) for row in each.to_pylist()]
    return [(row["record"] and row["record"]["number"], row["data"], row["reason"]) for row in found]


def numbers(data: bytes, _attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for part in data.split():
        yield {"number": int(part), "word": "\ud800" if part == b"-1" else "x"}


def test_a_fault_of_a_parser_sets_its_message_aside_and_no_other() -> None:
    assert read_batch(numbers, b"1 2", b"3 x 4", b"5") == [
        (1, None, None), (2, None, None), (3, None, None), (None, b"3 x 4", "cannot be read: ValueError"),
        (5, None, None),
    ]  # fmt: skip


def test_what_does_not_fit_into_its_column_is_set_aside_alone() -> None:
    assert read_batch(numbers, b"1", b"9223372036854775808", b"-1", b"2") == [
        (1, None, None), (None, b"9223372036854775808", "holds what no column can hold: OverflowError"),
        (None, b"-1", "holds what no column can hold: UnicodeEncodeError"), (2, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [OSError("the file of a key is gone"), PipelineError("ours")])
def test_a_fault_of_ours_is_not_laid_on_the_message(fault: Exception) -> None:
    def parse(_data: bytes, _attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        raise fault
        yield {}

    with pytest.raises(type(fault)):
        read_batch(parse, b"1")
