from typing import Any

import pytest

from ams.validation.effort import ENDLESS, Effort, extent, looks_of
from ams.validation.references import References

MYSELF = {"$ref": "#"}
LISTS = {"type": "array", "items": MYSELF}


def looks(schema: dict[str, Any], depth: int) -> int:
    return Effort(References(schema), looks_of).at(depth)


@pytest.mark.parametrize(
    ("schema", "depth", "times"),
    [
        ({}, 0, 1),
        ({"type": "string"}, 9, 1),
        ({"enum": ["a", "b"]}, 0, 3),
        ({"allOf": [{}, {}]}, 0, 3),
        ({"not": {}, "if": {}, "then": {}, "else": {}, "dependencies": {"a": {}, "b": ["c"]}}, 0, 6),
        ({"items": {}}, 0, 1),
        ({"items": {}}, 1, 2),
        ({"items": [{}, {"not": {}}], "contains": {}}, 1, 4),
        ({"items": MYSELF}, 5, 11),
        ({"properties": {"a": {}, "b": {"allOf": [{}]}}}, 1, 3),
        ({"properties": {"left": MYSELF, "right": MYSELF}}, 5, 11),
        ({"patternProperties": {"a": {}, "b": {}}, "additionalProperties": {}}, 1, 4),
        ({"properties": {"a": {"anyOf": [MYSELF, LISTS]}}}, 3, 13),
        ({"definitions": {"a/b": {"not": {}}}, "$ref": "#/definitions/a~1b"}, 0, 3),
        ({"allOf": [{}, {"$ref": "#/allOf/0"}]}, 0, 4),
        ({"$id": "http://a.example/s", "items": MYSELF}, 2, 5),
        ({"definitions": {"a/b": {"not": {}}, "a": {"b": {}}}, "$ref": "#/definitions/a%2Fb"}, 0, 3),
    ],
)
def test_looks_at_a_place_are_counted(schema: dict[str, Any], depth: int, times: int) -> None:
    assert looks(schema, depth) == times


@pytest.mark.parametrize(
    "schema",
    [
        MYSELF,
        {"anyOf": [MYSELF]},
        {"$ref": "#/none"},
        {"allOf": [{"items": MYSELF}, {"items": MYSELF}]},
        {"patternProperties": {"^a": MYSELF, "a$": MYSELF}},
    ],
)
def test_what_cannot_be_counted_or_is_too_much_is_endless(schema: dict[str, Any]) -> None:
    assert looks(schema, 64) == ENDLESS


@pytest.mark.parametrize("times", [1, 2])
def test_a_chain_too_long_to_be_followed_is_endless(times: int) -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * times} for n in range(5000 // times)}

    assert looks({"definitions": chain, "$ref": "#/definitions/d0"}, 0) == ENDLESS


def test_a_document_is_measured() -> None:
    assert extent(1) == (1, 1)
    assert extent({"a": [1, 2], "b": {}}) == (5, 3)
