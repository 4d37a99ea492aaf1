"""Loads: what is estimated is never less than what is done, and violations never hold much memory."""

import json
from typing import Any

import pytest

from ams.core.errors import InvalidInput
from ams.validation.budget import INLINE, Budget, TooMuch
from ams.validation.json_schema import JsonSchema
from ams.validation.load import Extent, Loads

USUAL = {
    "type": "object",
    "properties": {
        "site": {"type": "string", "pattern": "^[A-Z]{2,20}$"},
        "time": {"type": "string", "format": "date-time"},
        "values": {"type": "array", "items": {"type": "object", "required": ["metric"], "minProperties": 1}},
    },
    "required": ["site", "time", "values"],
    "additionalProperties": False,
}
TEXT = "x" * 100_000


def check(schema: dict[str, Any], document: object, budget: Budget) -> str:
    try:
        JsonSchema(schema).check(0, json.dumps(document).encode(), budget)
    except InvalidInput as error:
        return error.message
    return ""


def test_a_hundred_usual_messages_are_within_the_budget() -> None:
    document = {"site": "ATHENS", "time": "2024-03-05T10:20:30Z", "values": [{"metric": "m", "x": "y" * 80}] * 10}
    budget = Budget(INLINE)

    assert [check(USUAL, document, budget) for _ in range(100)] == [""] * 100


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"items": {"allOf": [{}] * 500}}, [1] * 1000),
        ({"items": {"required": [str(n) for n in range(500)]}}, [{}] * 1000),
        ({"items": {"dependencies": {"a": [str(n) for n in range(500)]}}}, [{}] * 1000),
        ({"items": {"properties": {str(n): {} for n in range(500)}}}, [{}] * 1000),
        ({"allOf": [{"pattern": "a{500}b"}]}, TEXT),
        ({"allOf": [{"format": "regex"}]}, TEXT),
        ({"allOf": [{"format": "uri-template"}] * 50}, TEXT),
        ({"patternProperties": {"a{500}b": {}}}, {TEXT: 1}),
        ({"propertyNames": {"pattern": "a{500}b"}}, {TEXT: 1}),
        ({}, [0] * 300_000),
    ],
    ids=[
        "looks", "required", "dependencies", "properties", "pattern", "slow format", "formats", "patternProperties",
        "propertyNames", "size",
    ],
)  # fmt: skip
def test_what_takes_long_is_over_the_budget(schema: dict[str, Any], document: object) -> None:
    with pytest.raises(TooMuch):
        check(schema, document, Budget(INLINE))


@pytest.mark.parametrize(
    ("schema", "document", "told"),
    [
        ({"required": [f"m{n}" for n in range(4000)]}, {"a": TEXT}, "(root): m0 is required"),
        ({"anyOf": [{"required": [f"m{n}" for n in range(4000)]}]}, {"a": TEXT}, "(root): Does not match the schema"),
        ({"items": {"enum": [TEXT]}}, [1] * 3000, f'0: 0 must be one of the following: "{"x" * 199}...'),
        ({"items": {"const": TEXT}}, [1] * 3000, f'0: 0 does not match: "{"x" * 199}...'),
    ],
)
def test_violations_hold_little_memory(schema: dict[str, Any], document: object, told: str) -> None:
    assert check(schema, document, Budget()) == f"Message 0 data is not valid,{told}"


def test_names_and_readings_are_those_of_the_deepest_way() -> None:
    schema = {"required": ["a", "b"], "properties": {"a": {"minLength": 1, "format": "regex"}, "b": {"maxLength": 2}}}

    load = Loads(schema).of(Extent(100, 3, 1, 2))

    assert (load.looks, load.names, load.reading) == (2, 4, 41)
    assert load.findings == 3 * 2 + 1 * 4
    assert load.work == load.findings + 41 * 100 // 4
