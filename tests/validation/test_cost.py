"""What is counted is never less than what is done, unusual numbers are stopped, and violations hold little memory."""

import json
import time
from typing import Any

import pytest

from ams.core.errors import InvalidInput
from ams.validation.cost import ENDLESS, INLINE, LARGE, Budget, Effort, Extent, Loads, TooMuch, Watch, extent, looks_of
from ams.validation.json_schema import JsonSchema
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


@pytest.mark.usefixtures("frozen_thread_time")
def test_a_hundred_usual_messages_are_within_the_budget() -> None:
    document = {"site": "ATHENS", "time": "2024-03-05T10:20:30Z", "values": [{"metric": "m", "x": "y" * 80}] * 10}
    schema, data, budget = JsonSchema(USUAL), json.dumps(document).encode(), Budget(INLINE)

    for index in range(100):
        schema.check(index, data, budget)


@pytest.mark.usefixtures("frozen_thread_time")
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

    assert load.weights[:4] == (2, 4, 0, 41)
    assert load.violations == 3 * 2 + 1 * 4
    assert load.work == load.violations + 41 * 100 // 4


@pytest.mark.usefixtures("frozen_thread_time")
@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({}, b"[" + b",".join([b"5e-324"] * 5000) + b"]"),
        ({}, b"[" + b",".join([b"1" * 4000] * 50) + b"]"),
        ({"items": {"multipleOf": 1e-300}}, b"[" + b",".join([b"1e300"] * 5000) + b"]"),
        ({"items": {"multipleOf": 0.01}}, b"[" + b",".join([b"1.5"] * 5000) + b"]"),
        ({"items": {"maximum": 10**300}}, b"[" + b",".join([b"1.5"] * 5000) + b"]"),
        ({"pattern": "[ab]*a[ab]{60}c"}, b'"' + b"ab" * 15_000 + b'"'),
    ],
    ids=["small", "long", "far apart", "divided", "compared with a long one", "a text made for its pattern"],
)
def test_values_that_take_a_thousand_times_as_long_as_usual_are_over_the_budget(schema: Any, document: bytes) -> None:
    with pytest.raises(TooMuch):
        JsonSchema(schema).check(0, document, Budget(INLINE))

    JsonSchema({}).check(0, document, Budget())


def test_a_budget_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("time.thread_time", lambda: now[0])
    budget, endless = Budget(INLINE), Budget()
    budget.spend(INLINE // 4)

    now[0] += 1
    endless.spend(INLINE)
    with pytest.raises(TooMuch):
        budget.spend(INLINE // 4)


def test_a_watch_counts_what_its_thread_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what others do meanwhile, while it waits for them; the thread's own clock is looked at when it may matter."""
    worked, passed = [10.0], [70.0]
    monkeypatch.setattr("time.thread_time", lambda: worked[0])
    monkeypatch.setattr("time.perf_counter", lambda: passed[0])
    watch = Watch(INLINE)

    passed[0] += 0.0015
    assert not watch.is_over()
    passed[0] += 0.001
    worked[0] += 0.001
    assert not watch.is_over()
    passed[0] += 0.0011
    worked[0] += 0.0011
    assert watch.is_over()
    assert watch.units_left() == 0


def test_the_size_of_what_is_within_some_work_is_that_of_the_worst_document() -> None:
    loads = Loads({"items": {"required": ["a", "b"], "pattern": "a{500}b"}})

    size = loads.size_within(INLINE, 8)

    assert size < LARGE
    assert loads.of(Extent(size, size // 2, size // 3, 8)).work <= INLINE
    assert Loads({}).size_within(INLINE, 8) == LARGE
    assert Loads({"multipleOf": 0.1}).size_within(INLINE, 8) < INLINE // 400


def test_everything_is_counted_when_a_schema_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of a large schema takes long, and a check is where others wait."""
    loads = Loads({"items": MYSELF, "properties": {"a": MYSELF, "b": {"pattern": "x"}}})
    monkeypatch.setattr(Effort, "at", lambda *_: pytest.fail("counted again"))

    assert [loads.of(Extent(9, 9, 9, depth)).weights.looks for depth in (4, 5, 16, 64, 90)] == [9, 17, 33, 129, 129]


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(MYSELF, marks=pytest.mark.long, id="references"),
        pytest.param({"allOf": [MYSELF]}, marks=pytest.mark.long, id="all of"),
        pytest.param({"anyOf": [{"items": MYSELF}, MYSELF]}, id="any of"),
    ],
)
def test_a_count_itself_does_not_take_long(part: dict[str, Any]) -> None:
    """Each of thousands of members stands for the whole, which has thousands of members."""
    began = time.thread_time()

    Loads({"properties": {f"p{number}": part for number in range(5000)}})

    assert time.thread_time() - began < 20
