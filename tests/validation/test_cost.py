"""Costs of checks are computed beforehand, and long checks run in processes where they delay nobody."""

import asyncio
import json
import random
from typing import Any

import pytest

from ams.core.errors import InvalidInput, Overloaded
from ams.core.messages import message
from ams.validation.cost import (
    INLINE_UNITS,
    LARGE_BYTES,
    MAX_COUNT,
    Budget,
    Effort,
    Extent,
    Loads,
    OverBudget,
    WorkTimer,
    count_looks,
)
from ams.validation.json_schema import JsonSchema
from ams.validation.long_checks import (
    DATA,
    MAX_WAITING,
    MESSAGE,
    PAYLOAD,
    InvalidPiece,
    LongChecks,
    Piece,
    Task,
    check_task,
)
from ams.validation.references import References
from ams.workers.pool import Pool
from tests.support.loop_time import pass_loop_time

SELF_REFERENCE = {"$ref": "#"}


def looks_at(schema: dict[str, Any], depth: int) -> int:
    return Effort(References(schema), count_looks).at(depth)


@pytest.mark.parametrize(("schema", "depth", "times"), [
    ({}, 0, 1),
    ({"type": "string"}, 9, 1),
    ({"enum": ["a", "b"]}, 0, 3),
    ({"allOf": [{}, {}]}, 0, 3),
    ({"not": {}, "if": {}, "then": {}, "else": {}, "dependencies": {"a": {}, "b": ["c"]}}, 0, 6),
    ({"items": {}}, 0, 1),
    ({"items": {}}, 1, 2),
    ({"items": [{}, {"not": {}}], "contains": {}}, 1, 4),
    ({"items": SELF_REFERENCE}, 5, 11),
    ({"properties": {"a": {}, "b": {"allOf": [{}]}}}, 1, 3),
    ({"properties": {"left": SELF_REFERENCE, "right": SELF_REFERENCE}}, 5, 11),
    ({"patternProperties": {"a": {}, "b": {}}, "additionalProperties": {}}, 1, 4),
    ({"properties": {"a": {"anyOf": [SELF_REFERENCE, {"type": "array", "items": SELF_REFERENCE}]}}}, 3, 13),
    ({"definitions": {"a/b": {"not": {}}}, "$ref": "#/definitions/a~1b"}, 0, 3),
    ({"allOf": [{}, {"$ref": "#/allOf/0"}]}, 0, 4),
    ({"$id": "http://a.example/s", "items": SELF_REFERENCE}, 2, 5),
    ({"definitions": {"a/b": {"not": {}}, "a": {"b": {}}}, "$ref": "#/definitions/a%2Fb"}, 0, 3),
])  # fmt: skip
def test_looks_at_a_place_are_counted(schema: dict[str, Any], depth: int, times: int) -> None:
    assert looks_at(schema, depth) == times


@pytest.mark.parametrize("schema", [
    SELF_REFERENCE,
    {"anyOf": [SELF_REFERENCE]},
    {"$ref": "#/none"},
    {"allOf": [{"items": SELF_REFERENCE}, {"items": SELF_REFERENCE}]},
    {"patternProperties": {"^a": SELF_REFERENCE, "a$": SELF_REFERENCE}},
])  # fmt: skip
def test_what_cannot_be_counted_or_is_too_much_is_endless(schema: dict[str, Any]) -> None:
    assert looks_at(schema, 64) == MAX_COUNT


@pytest.mark.parametrize("times", [1, 2])
def test_a_chain_too_long_to_be_followed_is_endless(times: int) -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * times} for n in range(5000 // times)}
    assert looks_at({"definitions": chain, "$ref": "#/definitions/d0"}, 0) == MAX_COUNT


USUAL_SCHEMA = {
    "type": "object",
    "properties": {
        "site": {"type": "string", "pattern": "^[A-Z]{2,20}$"}, "time": {"type": "string", "format": "date-time"},
        "values": {"type": "array", "items": {"type": "object", "required": ["metric"], "minProperties": 1}},
    },
    "required": ["site", "time", "values"],
    "additionalProperties": False,
}  # fmt: skip
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
    schema, data, budget = JsonSchema(USUAL_SCHEMA), json.dumps(document).encode(), Budget(INLINE_UNITS)
    for index in range(100):
        schema.check(index, data, budget)


@pytest.mark.usefixtures("frozen_thread_time")
@pytest.mark.parametrize(("schema", "document"), [
    ({"items": {"allOf": [{}] * 500}}, [1] * 1000),
    ({"items": {"required": [str(n) for n in range(500)]}}, [{}] * 1000),
    ({"items": {"dependencies": {"a": [str(n) for n in range(500)]}}}, [{}] * 1000),
    ({"items": {"properties": {str(n): {} for n in range(500)}}}, [{}] * 1000),
    ({"allOf": [{"pattern": "a{500}b"}]}, TEXT), ({"allOf": [{"format": "regex"}]}, TEXT),
    ({"allOf": [{"format": "uri-template"}] * 50}, TEXT), ({"patternProperties": {"a{500}b": {}}}, {TEXT: 1}),
    ({"propertyNames": {"pattern": "a{500}b"}}, {TEXT: 1}), ({}, [0] * 300_000),
], ids=[
    "looks", "required", "dependencies", "properties", "pattern", "slow format", "formats", "patternProperties",
    "propertyNames", "size",
])  # fmt: skip
def test_what_takes_long_is_over_the_budget(schema: dict[str, Any], document: object) -> None:
    with pytest.raises(OverBudget):
        check(schema, document, Budget(INLINE_UNITS))


@pytest.mark.parametrize(("schema", "document", "told"), [
    ({"required": [f"m{n}" for n in range(4000)]}, {"a": TEXT}, "(root): m0 is required"),
    ({"anyOf": [{"required": [f"m{n}" for n in range(4000)]}]}, {"a": TEXT}, "(root): Does not match the schema"),
    ({"items": {"enum": [TEXT]}}, [1] * 3000, f'0: 0 must be one of the following: "{"x" * 199}...'),
    ({"items": {"const": TEXT}}, [1] * 3000, f'0: 0 does not match: "{"x" * 199}...'),
])  # fmt: skip
def test_violations_hold_little_memory(schema: dict[str, Any], document: object, told: str) -> None:
    assert check(schema, document, Budget()) == f"Message 0 data is not valid,{told}"


@pytest.mark.usefixtures("frozen_thread_time")
@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({}, b"[" + b",".join([b"5e-324"] * 5000) + b"]"), ({}, b"[" + b",".join([b"1" * 4000] * 50) + b"]"),
        ({"items": {"multipleOf": 1e-300}}, b"[" + b",".join([b"1e300"] * 5000) + b"]"),
        ({"items": {"multipleOf": 0.01}}, b"[" + b",".join([b"1.5"] * 5000) + b"]"),
        ({"items": {"maximum": 10**300}}, b"[" + b",".join([b"1.5"] * 5000) + b"]"),
        ({"pattern": "[ab]*a[ab]{60}c"}, b'"' + b"ab" * 15_000 + b'"'),
    ],
    ids=["small", "long", "far apart", "divided", "compared with a long one", "a text made for its pattern"],
)  # fmt: skip
def test_values_that_take_a_thousand_times_as_long_as_usual_are_over_the_budget(schema: Any, document: bytes) -> None:
    with pytest.raises(OverBudget):
        JsonSchema(schema).check(0, document, Budget(INLINE_UNITS))
    JsonSchema({}).check(0, document, Budget())


def test_a_budget_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("time.thread_time", lambda: now[0])
    budget, endless = Budget(INLINE_UNITS), Budget()
    budget.spend(INLINE_UNITS // 4)

    now[0] += 1
    endless.spend(INLINE_UNITS)
    with pytest.raises(OverBudget):
        budget.spend(INLINE_UNITS // 4)


def test_a_watch_counts_what_its_thread_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not others' work while it waits for them; the thread's own clock is read only when it may matter."""
    worked, passed = [10.0], [70.0]
    monkeypatch.setattr("time.thread_time", lambda: worked[0])
    monkeypatch.setattr("time.perf_counter", lambda: passed[0])
    watch = WorkTimer(INLINE_UNITS)

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

    size = loads.size_within(INLINE_UNITS, 8)

    assert size < LARGE_BYTES
    assert loads.of(Extent(size, size // 2, size // 3, 8)).work <= INLINE_UNITS
    assert Loads({}).size_within(INLINE_UNITS, 8) == LARGE_BYTES
    assert Loads({"multipleOf": 0.1}).size_within(INLINE_UNITS, 8) < INLINE_UNITS // 400


ENDLESS_SCHEMA = {"items": {"allOf": [{"pattern": "[ab]*a[ab]{60}c"}] * 30}}  # every look is at all of a text
LONG_TEXT = json.dumps(["".join(random.Random(1).choices("ab", k=100_000)) + "a" * 61 + "c"] * 10).encode()
"""It is valid, after many seconds."""


def task(schema: dict[str, Any], *pieces: Piece, every: bool = True) -> Task:
    return Task("json", json.dumps(schema), None, pieces, every)


PAYLOADS = (b"1", b'"a"', b"2", b'"b"')
NUMBERS = task({"type": "number"}, *(Piece(number, PAYLOAD, payload) for number, payload in enumerate(PAYLOADS)))
SLOW_TASK = task(ENDLESS_SCHEMA, Piece(0, PAYLOAD, LONG_TEXT))


@pytest.fixture
def checks(pool: Pool) -> LongChecks:
    return LongChecks(pool, 60)


@pytest.fixture
async def impatient_checks(pool: Pool, checks: LongChecks) -> LongChecks:
    """Checks with a short time limit, in processes that have already started."""
    await checks.check("P", NUMBERS)
    return LongChecks(pool, 0.5)


async def test_every_refused_piece_is_told_or_the_first(checks: LongChecks) -> None:
    said = "data is not valid,(root): Invalid type. Expected: number, given: string"
    first, third = (InvalidPiece(number, f"Message {number} {said}") for number in (1, 3))
    assert await checks.check("P", NUMBERS) == [first, third]
    assert await checks.check("P", task({"type": "number"}, *NUMBERS.pieces, every=False)) == [first]


async def test_all_forms_of_pieces_are_checked() -> None:
    whole = message("MQ==", {"site": "x"})
    pieces = [Piece(0, DATA, b"MQ=="), Piece(1, PAYLOAD, b"1"), Piece(2, MESSAGE, whole.fragment)]
    attributes = json.dumps({"required": ["site"], "closed": True})

    assert check_task(Task("json", '{"type":"number"}', attributes, pieces, True)) == []
    assert check_task(Task("json", None, '{"closed":true}', pieces, True)) == [
        InvalidPiece(2, "Message 2 attributes are not valid,site: is not allowed")
    ]


async def test_a_long_check_is_refused_and_delays_nobody(checks: LongChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    await checks.check("P", NUMBERS)
    checking = asyncio.ensure_future(checks.check("P", SLOW_TASK))
    for _ in range(11):
        await asyncio.sleep(0.001)
        assert not checking.done(), "the event loop went on meanwhile"
    pass_loop_time(monkeypatch, 60)

    with pytest.raises(InvalidInput) as refused:
        await checking
    assert refused.value.message == "Message 0 takes too long or too much memory to check against the schema"
    assert len(await checks.check("P", NUMBERS)) == 2


async def test_several_messages_are_named_by_the_first_and_the_last(impatient_checks: LongChecks) -> None:
    pieces = [Piece(number, PAYLOAD, LONG_TEXT) for number in (3, 4, 5)]
    with pytest.raises(InvalidInput, match="^Messages 3 to 5 take too long "):
        await impatient_checks.check("P", task(ENDLESS_SCHEMA, *pieces))


async def test_a_project_with_many_tasks_waits_for_itself(checks: LongChecks) -> None:
    order: list[str] = []

    async def ask(project: str) -> None:
        await checks.check(project, NUMBERS)
        order.append(project)

    outcomes = await asyncio.gather(*(ask(each) for each in "P" * (MAX_WAITING + 2) + "Q"), return_exceptions=True)

    assert [type(each) for each in outcomes if each] == [Overloaded]
    assert order.index("Q") <= 1


async def test_while_the_service_stops_nothing_is_checked(pool: Pool, checks: LongChecks) -> None:
    await pool.close()
    with pytest.raises(Overloaded, match="^The service is stopping$"):
        await checks.check("P", NUMBERS)
