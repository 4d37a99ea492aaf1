"""Payloads in Avro, binary and JSON, compared with the reader and writer of fastavro."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.validation.avro import AvroSchema
from ams.validation.compiled import Compiled, compile_schema
from ams.validation.cost import INLINE_UNITS, Budget

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "site.example",
    "fields": [
        {"name": "site", "type": "string"}, {"name": "number", "type": "int"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "value", "type": ["null", "double", "float"]}, {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"}, {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "parts", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
    ],
}  # fmt: skip
PLAIN_SCHEMA: dict[str, Any] = {**RECORD, "fields": [{**each, "type": "long"} if each["name"] == "time" else each
    for each in RECORD["fields"]]}  # fmt: skip
VALUES = st.fixed_dictionaries(
    {
        "site": st.text(), "number": st.integers(-(2**31), 2**31 - 1), "time": st.integers(-(2**63), 2**63 - 1),
        "value": st.none() | st.floats(allow_nan=False), "ok": st.booleans(), "raw": st.binary(),
        "kind": st.sampled_from("AB"), "again": st.sampled_from("AB"), "key": st.binary(min_size=2, max_size=2),
        "tags": st.dictionaries(st.text(), st.text()), "parts": st.lists(st.lists(st.integers(-5, 5))),
    }
)  # fmt: skip


def write_value(value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(PLAIN_SCHEMA), value)
    return out.getvalue()


def accepts(schema: AvroSchema, data: bytes) -> bool:
    try:
        schema.check(0, data, Budget())
    except InvalidInput as error:
        assert error.message.startswith("Message 0 is not valid.")
        return False
    return True


COMPILED = AvroSchema(RECORD)


@given(VALUES)
def test_what_a_writer_writes_is_valid(value: object) -> None:
    assert accepts(COMPILED, write_value(value))


@given(VALUES, st.data())
def test_a_datum_cut_off_or_with_more_after_it_is_not(value: object, draw: st.DataObject) -> None:
    """O12."""
    data = write_value(value)
    assert not accepts(COMPILED, data[: draw.draw(st.integers(0, len(data) - 1))])
    assert not accepts(COMPILED, data + draw.draw(st.binary(min_size=1)))


@given(VALUES, st.data())
def test_a_reader_can_read_whatever_is_valid(value: object, draw: st.DataObject) -> None:
    data = bytearray(write_value(value))
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    if accepts(COMPILED, bytes(data)):
        read = io.BytesIO(bytes(data))
        fastavro.schemaless_reader(read, fastavro.parse_schema(PLAIN_SCHEMA), None)
        assert read.tell() == len(data)


@given(st.binary())
def test_any_bytes_are_valid_or_refused(data: bytes) -> None:
    accepts(COMPILED, data)


@pytest.mark.parametrize(("schema", "data", "told"), [
    (RECORD, b"", 'field "site": unexpected end of data in a number'),
    (RECORD, b"\x04a", 'field "site": unexpected end of data: 2 bytes wanted, 1 there'),
    ({"type": "string"}, b"\x01", "a length of -1"),
    ({"type": "string"}, b"\x02\xff", "a string that is not UTF-8"),
    ({"type": "int"}, b"\x80\x80\x80\x80\x10", "a number of more than 32 bits"),
    ({"type": "long"}, b"\x80" * 10 + b"\x01", "a number of more than 10 bytes"),
    ({"type": "boolean"}, b"\x02", "a boolean is 0 or 1, not 2"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "there is no symbol 1 in an enum of 1"),
    ({"type": ["null", "int"]}, b"\x04", "there is no branch 2 in a union of 2"),
    *(
        ({"type": "array", "items": each}, data, "an array of more than 1000 items without bytes")
        for each in (
            "null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "R", "fields": []},
            {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
        )
        for data in (b"\xfe" + b"\xff" * 8 + b"\1\0", b"\xd2\x0f\0", b"\xd0\x0f\2\0", b"\xd1\x0f\0\2\0")
    ),
    ({"type": "null"}, b"xy", "2 bytes left over after the datum"),
])  # fmt: skip
def test_the_detail_says_what_is_wrong(schema: dict[str, Any], data: bytes, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        AvroSchema(schema).check(3, data, Budget())
    assert refused.value.message.removeprefix("Message 3 is not valid.") == told


@pytest.mark.parametrize(("items", "data"), [("null", b"\xd0\x0f\x00"), ("int", b"\x03\x04\x02\x04\x00")])
def test_a_thousand_items_without_bytes_and_blocks_that_tell_their_bytes_are_arrays(items: str, data: bytes) -> None:
    assert accepts(AvroSchema({"type": "array", "items": items}), data)


@pytest.mark.parametrize("schema", [
    {},
    *({"type": each} for each in ("unknown", "array", "map", "record", "error_union", 5, [5])),
    *({"type": "record", "name": "A", "fields": each} for each in (
        [{"name": "b", "type": "B"}], 1, [{"name": "b"}])),
    *({"type": "enum", "name": "E", "symbols": each} for each in (["A", "A"], 1)),
    {"type": "fixed", "name": "F"},
    *({"type": "fixed", "name": "F", "size": each} for each in (-1, "2")),
])  # fmt: skip
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="."):
        AvroSchema(schema)


def test_names_that_double_without_bytes_take_no_time() -> None:
    fields: list[dict[str, Any]] = [{"name": "x", "type": {"type": "record", "name": "R0", "fields": []}}]
    for n in range(1, 200):
        both = [{"name": "a", "type": f"R{n - 1}"}, {"name": "b", "type": f"R{n - 1}"}]
        fields.append({"name": f"f{n}", "type": {"type": "record", "name": f"R{n}", "fields": both}})

    assert accepts(AvroSchema({"type": "record", "name": "All", "fields": fields}), b"")


def test_a_schema_that_holds_itself_is_followed_to_a_depth() -> None:
    schema = AvroSchema({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]})

    assert accepts(schema, b"\x02" * 50 + b"\x00")
    with pytest.raises(InvalidInput, match="nested too deeply|next"):
        schema.check(0, b"\x02" * 100_000 + b"\x00", Budget())
    assert not accepts(AvroSchema({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}), b"")


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "n.R",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "long", "type": "long", "default": 1},
        {"name": "of", "type": ["null", "string", "R", {"type": "array", "items": "R"}, "float"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "m", "type": {"type": "map", "values": "bytes"}},
    ],
}
GOOD_VALUE: dict[str, Any] = {"a": 1, "long": 2**63 - 1, "of": None, "e": "X", "f": "ab", "m": {}}


def compile_avro(schema: dict[str, Any]) -> Compiled:
    return compile_schema("avro", schema, None, "JSON")


RECORDS = compile_avro(SCHEMA)


def is_allowed(document: object, schema: Compiled = RECORDS) -> bool:
    try:
        schema.check(0, json.dumps(document).encode(), Budget())
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize("change", [
    {}, {"of": {"string": "x"}}, {"of": {"n.R": GOOD_VALUE}}, {"of": {"array": [GOOD_VALUE, GOOD_VALUE]}},
    {"of": {"float": 1}},
    {"m": {"k": "\u0000\u00ff"}}, {"f": "\u00ff\n"},
])  # fmt: skip
def test_what_encoders_write_is_allowed(change: dict[str, Any]) -> None:
    assert is_allowed(GOOD_VALUE | change)


@pytest.mark.parametrize("change", [
    {"a": "1"}, {"a": True}, {"a": 1.0}, {"a": 2**31}, {"long": 2**63}, {"more": 1}, {"of": "x"}, {"of": {}},
    {"of": {"string": "x", "float": 1}}, {"of": {"int": 1}}, {"of": {"n.R": {}}}, {"e": "Z"}, {"f": "abc"},
    {"m": {"k": "\u0100"}}, {"m": {"k": 1}},
])  # fmt: skip
def test_what_a_schema_does_not_say_is_refused(change: dict[str, Any]) -> None:
    assert not is_allowed(GOOD_VALUE | change)


@pytest.mark.parametrize("field", GOOD_VALUE)
def test_every_field_must_be_there_also_one_with_a_default(field: str) -> None:
    assert not is_allowed({name: value for name, value in GOOD_VALUE.items() if name != field})


def test_other_types_than_records_may_be_on_top() -> None:
    assert is_allowed("x", compile_avro({"type": "string"}))
    assert is_allowed({"int": 1}, compile_avro({"type": ["null", "int"]}))
    assert not is_allowed(1, compile_avro({"type": ["null", "int"]}))


@pytest.mark.parametrize("data", [b"", b"{", b"\x02", b'{"a":1}{"a":1}'])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="^Message 3 data is not valid JSON format"):
        RECORDS.check(3, data, Budget())


def test_a_large_tree_is_soon_checked() -> None:
    """Each value is visited once, however the types nest."""
    branches = ["null", "T", {"type": "array", "items": "T"}, {"type": "map", "values": "T"}]
    fields = [{"name": name, "type": branches} for name in "lr"]
    trees = compile_avro({"type": "record", "name": "T", "fields": fields})

    def tree(levels: int) -> dict[str, Any]:
        return {"l": {"T": tree(levels - 1)} if levels else None, "r": {"T": tree(levels - 1)} if levels else None}

    trees.check(0, json.dumps(tree(5)).encode(), Budget(100 * INLINE_UNITS))
    assert not is_allowed({"l": {"T": tree(9)}, "r": 1}, trees)


_scalars = st.none() | st.text("ab\x00ÿ€", max_size=3) | st.integers(-(2**31), 2**31 - 1)
_UNION: list[Any] = ["null", "string", "int"]
_FIELDS: list[Any] = [
    {"name": "v", "type": _UNION}, {"name": "w", "type": {"type": "array", "items": _UNION}},
    {"name": "b", "type": "bytes"}, {"name": "d", "type": "double"},
]  # fmt: skip
_finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.fixed_dictionaries({"v": _scalars, "w": st.lists(_scalars), "b": st.binary(), "d": _finite}))
def test_what_fastavro_writes_is_allowed(datum: dict[str, Any]) -> None:
    schema = {"type": "record", "name": "V", "fields": _FIELDS}
    sink = io.StringIO()
    fastavro.json_writer(sink, fastavro.parse_schema(schema), [datum])
    assert is_allowed(json.loads(sink.getvalue()), compile_avro(schema))
