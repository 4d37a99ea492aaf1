"""Long checks: workers do what is done inline, and hold up nothing else."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ams.core.errors import InvalidInput, Overloaded
from ams.core.messages import message
from ams.validation.checker import DATA, MESSAGE, PAYLOAD, Checker, Piece, Refusal, Task
from ams.validation.long_checks import MAX_WAITING, LongChecks
from ams.workers import Pool
from tests.support.waiting import wait_until_async

ENDLESS = {"items": {"allOf": [{"pattern": "[ab]*a[ab]{60}c"}] * 30}}
"""Every look is at all of a text."""
LONG_TEXT = json.dumps(["".join(random.Random(1).choices("ab", k=100_000)) + "a" * 61 + "c"] * 10).encode()
"""It is allowed, after many seconds."""


def task(schema: dict[str, Any], *pieces: Piece, every: bool = True) -> Task:
    return Task("json", json.dumps(schema), None, pieces, every)


def payloads(*documents: object) -> Sequence[Piece]:
    return [Piece(number, PAYLOAD, json.dumps(document).encode()) for number, document in enumerate(documents)]


NUMBERS = task({"type": "number"}, *payloads(1, "a", 2, "b"))
SLOW = task(ENDLESS, Piece(0, PAYLOAD, LONG_TEXT))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(2)
    yield made
    await made.close()


@pytest.fixture
def checks(pool: Pool) -> LongChecks:
    return LongChecks(pool, 60)


@pytest.fixture
async def impatient(pool: Pool, checks: LongChecks) -> LongChecks:
    """Checks that are given up soon, in processes that have begun before."""
    await checks.check("P", NUMBERS)
    return LongChecks(pool, 0.5)


async def test_every_refused_piece_is_told_or_the_first(checks: LongChecks) -> None:
    said = "data is not valid,(root): Invalid type. Expected: number, given: string"

    first, third = (Refusal(number, f"Message {number} {said}") for number in (1, 3))

    assert await checks.check("P", NUMBERS) == [first, third]
    assert await checks.check("P", task({"type": "number"}, *NUMBERS.pieces, every=False)) == [first]


async def test_all_forms_of_pieces_are_checked() -> None:
    whole = message("MQ==", {"site": "x"})
    pieces = [Piece(0, DATA, b"MQ=="), Piece(1, PAYLOAD, b"1"), Piece(2, MESSAGE, whole.fragment)]
    attributes = json.dumps({"required": ["site"], "closed": True})

    assert Checker().check(Task("json", '{"type":"number"}', attributes, pieces, True)) == []
    assert Checker().check(Task("json", None, '{"closed":true}', pieces, True)) == [
        Refusal(2, "Message 2 attributes are not valid,site: is not allowed")
    ]


async def test_what_takes_too_long_is_refused_and_holds_up_nobody(checks: LongChecks, impatient: LongChecks) -> None:
    checking = asyncio.ensure_future(impatient.check("P", SLOW))
    turns = 0
    while not checking.done():
        turns += 1
        await asyncio.sleep(0.001)

    with pytest.raises(InvalidInput) as refused:
        await checking
    assert refused.value.message == "Message 0 takes too long or too much memory to check against the schema"
    assert turns > 10, "the event loop went on meanwhile"
    assert len(await checks.check("P", NUMBERS)) == 2


async def test_several_messages_are_named_by_the_first_and_the_last(impatient: LongChecks) -> None:
    pieces = [Piece(number, PAYLOAD, LONG_TEXT) for number in (3, 4, 5)]

    with pytest.raises(InvalidInput, match="^Messages 3 to 5 take too long "):
        await impatient.check("P", task(ENDLESS, *pieces))


async def test_who_leaves_ends_the_check(checks: LongChecks) -> None:
    await checks.check("P", NUMBERS)
    first = asyncio.ensure_future(checks.check("P", SLOW))
    await asyncio.sleep(0.01)

    first.cancel()

    assert len(await checks.check("Q", NUMBERS)) == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_project_with_many_tasks_waits_for_itself(checks: LongChecks) -> None:
    order: list[str] = []

    async def ask(project: str) -> None:
        await checks.check(project, NUMBERS)
        order.append(project)

    outcomes = await asyncio.gather(*(ask(each) for each in "P" * (MAX_WAITING + 2) + "Q"), return_exceptions=True)

    assert [type(each) for each in outcomes if each] == [Overloaded]
    assert order.index("Q") <= 1


async def test_a_process_that_was_ended_is_begun_again(checks: LongChecks) -> None:
    others = _children()
    await checks.check("P", NUMBERS)
    (worker,) = _children() - others
    os.kill(worker, signal.SIGKILL)
    await wait_until_async(lambda: worker not in _children())

    assert len(await checks.check("P", NUMBERS)) == 2


async def test_a_stop_ends_what_is_under_way(pool: Pool) -> None:
    checks, others = LongChecks(pool, 60), _children()
    await checks.check("P", NUMBERS)
    first = asyncio.ensure_future(checks.check("P", SLOW))
    await asyncio.sleep(0.01)

    await pool.close()

    with pytest.raises(Overloaded, match="^The service is stopping$"):
        await first
    with pytest.raises(Overloaded, match="^The service is stopping$"):
        await checks.check("P", NUMBERS)
    assert _children() <= others


def _children() -> set[int]:
    """Return the processes this one began, those of other tests' services among them."""
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return {int(each) for each in children.read().split()}
