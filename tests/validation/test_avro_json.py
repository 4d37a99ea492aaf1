"""Payloads in Avro's JSON encoding."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.validation import compile_schema
from ams.validation.compiled import Compiled
from ams.validation.cost import INLINE, Budget

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
GOOD: dict[str, Any] = {"a": 1, "long": 2**63 - 1, "of": None, "e": "X", "f": "ab", "m": {}}


def compiled(schema: dict[str, Any]) -> Compiled:
    return compile_schema("avro", schema, None, "JSON")


RECORDS = compiled(SCHEMA)


def is_allowed(document: object, schema: Compiled = RECORDS) -> bool:
    try:
        schema.check_payload(0, json.dumps(document).encode(), Budget())
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize(
    "change",
    [{}, {"of": {"string": "x"}}, {"of": {"n.R": GOOD}}, {"of": {"array": [GOOD, GOOD]}}, {"of": {"float": 1}},
     {"m": {"k": "\u0000\u00ff"}}, {"f": "\u00ff\n"}],
)  # fmt: skip
def test_what_encoders_write_is_allowed(change: dict[str, Any]) -> None:
    assert is_allowed(GOOD | change)


@pytest.mark.parametrize(
    "change",
    [{"a": "1"}, {"a": True}, {"a": 1.0}, {"a": 2**31}, {"long": 2**63}, {"more": 1}, {"of": "x"}, {"of": {}},
     {"of": {"string": "x", "float": 1}}, {"of": {"int": 1}}, {"of": {"n.R": {}}}, {"e": "Z"}, {"f": "abc"},
     {"m": {"k": "\u0100"}}, {"m": {"k": 1}}],
)  # fmt: skip
def test_what_a_schema_does_not_say_is_refused(change: dict[str, Any]) -> None:
    assert not is_allowed(GOOD | change)


@pytest.mark.parametrize("field", GOOD)
def test_every_field_must_be_there_also_one_with_a_default(field: str) -> None:
    assert not is_allowed({name: value for name, value in GOOD.items() if name != field})


def test_other_types_than_records_may_be_on_top() -> None:
    assert is_allowed("x", compiled({"type": "string"}))
    assert is_allowed({"int": 1}, compiled({"type": ["null", "int"]}))
    assert not is_allowed(1, compiled({"type": ["null", "int"]}))


@pytest.mark.parametrize("data", [b"", b"{", b"\x02", b'{"a":1}{"a":1}'])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="^Message 3 data is not valid JSON format"):
        RECORDS.check_payload(3, data, Budget())


def test_a_large_tree_is_soon_checked() -> None:
    """Each value is looked at once, however the types hold each other."""
    branches = ["null", "T", {"type": "array", "items": "T"}, {"type": "map", "values": "T"}]
    fields = [{"name": name, "type": branches} for name in "lr"]
    trees = compiled({"type": "record", "name": "T", "fields": fields})

    def tree(levels: int) -> dict[str, Any]:
        return {"l": {"T": tree(levels - 1)} if levels else None, "r": {"T": tree(levels - 1)} if levels else None}

    trees.check_payload(0, json.dumps(tree(5)).encode(), Budget(100 * INLINE))
    assert not is_allowed({"l": {"T": tree(9)}, "r": 1}, trees)


_scalars = st.none() | st.text("ab\x00ÿ€", max_size=3) | st.integers(-(2**31), 2**31 - 1)
_UNION: list[Any] = ["null", "string", "int"]
_FIELDS: list[Any] = [
    {"name": "v", "type": _UNION},
    {"name": "w", "type": {"type": "array", "items": _UNION}},
    {"name": "b", "type": "bytes"},
    {"name": "d", "type": "double"},
]
_finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.fixed_dictionaries({"v": _scalars, "w": st.lists(_scalars), "b": st.binary(), "d": _finite}))
def test_what_fastavro_writes_is_allowed(datum: dict[str, Any]) -> None:
    schema = {"type": "record", "name": "V", "fields": _FIELDS}
    sink = io.StringIO()
    fastavro.json_writer(sink, fastavro.parse_schema(schema), [datum])
    assert is_allowed(json.loads(sink.getvalue()), compiled(schema))
