"""The memory of bodies that arrive or wait to be stored: shared, and bounded."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from ams.core.errors import Overloaded, TooLarge
from ams.core.held import SMALL
from ams.http.asgi import Receive
from ams.http.limits import SMALL_BODY, Bodies, affordable

BIG = 2 * SMALL


def pieces(*sizes: int) -> Receive:
    left = list(sizes)

    async def receive() -> MutableMapping[str, Any]:
        size = left.pop(0)
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

    return receive


async def test_what_is_held_until_it_is_stored_counts_against_what_arrives() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=3 * BIG, seconds=5)
    with bodies.held(b"x" * (2 * BIG)), pytest.raises(Overloaded):
        await bodies.read([], pieces(BIG, BIG))

    assert len(await bodies.read([], pieces(BIG, BIG))) == 2 * BIG


async def test_a_refused_body_leaves_nothing_counted() -> None:
    bodies = Bodies(max_body=BIG, max_buffered=2 * BIG, seconds=5)

    for _ in range(10):
        with pytest.raises(TooLarge):
            await bodies.read([], pieces(BIG, BIG // 2, BIG // 2))

    assert len(await bodies.read([], pieces(BIG // 2, BIG // 2))) == BIG


async def test_routes_other_than_publish_take_small_bodies_only() -> None:
    bodies = Bodies(max_body=4 * SMALL_BODY, max_buffered=8 * SMALL_BODY, seconds=5)

    with pytest.raises(TooLarge):
        await bodies.read([], pieces(SMALL_BODY, 1), SMALL_BODY)
    assert len(await bodies.read([], pieces(SMALL_BODY, 1))) == SMALL_BODY + 1


def half_sent(*sizes: int) -> Receive:
    """Send pieces, and then nothing for a long time."""
    left = list(sizes)

    async def receive() -> MutableMapping[str, Any]:
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": b"x" * left.pop(0), "more_body": True}

    return receive


async def test_the_largest_holder_is_ended_first_when_another_needs_memory() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=6 * BIG, seconds=5)
    greedy = [asyncio.create_task(bodies.read([], half_sent(BIG, size), None, ("A", "a"))) for size in (BIG, 3 * BIG)]
    await asyncio.sleep(0.01)

    body = await bodies.read([], pieces(BIG, BIG), None, ("B", "b"))

    assert len(body) == 2 * BIG
    with pytest.raises(Overloaded):
        await greedy[1]
    assert not greedy[0].done()
    greedy[0].cancel()


async def test_a_body_that_was_ended_gives_its_memory_back_once() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=6 * BIG, seconds=5)
    greedy = asyncio.create_task(bodies.read([], half_sent(BIG, 3 * BIG), None, ("A", "a")))
    await asyncio.sleep(0.01)
    assert len(await bodies.read([], pieces(BIG, 2 * BIG), None, ("B", "b"))) == 3 * BIG
    with pytest.raises(Overloaded):
        await greedy

    with bodies.held(b"x" * (6 * BIG), ("C", "c")), pytest.raises(Overloaded):
        await bodies.read([], pieces(BIG, 1), None, ("D", "d"))


async def test_a_body_over_the_limit_ends_no_other() -> None:
    bodies = Bodies(max_body=2 * BIG, max_buffered=6 * BIG, seconds=5)
    greedy = [asyncio.create_task(bodies.read([], half_sent(BIG, BIG), None, ("A", "a"))) for _ in range(2)]
    await asyncio.sleep(0.01)

    with pytest.raises(TooLarge):
        await bodies.read([], pieces(BIG, 2 * BIG), None, ("B", "b"))
    await asyncio.sleep(0.01)

    assert not any(each.done() for each in greedy)
    for each in greedy:
        each.cancel()


async def test_a_user_who_asks_in_many_projects_is_one_holder() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=4 * BIG, seconds=5)
    greedy = [asyncio.create_task(bodies.read([], half_sent(BIG, SMALL), None, (project, "a"))) for project in "ABCD"]
    await asyncio.sleep(0.01)
    assert [type(each.exception()) for each in greedy if each.done()] == [Overloaded, Overloaded]

    assert len(await bodies.read([], pieces(BIG, BIG // 2), None, ("E", "b"))) == 3 * BIG // 2
    for each in greedy:
        each.cancel()


async def test_the_largest_holder_itself_is_refused() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=4 * BIG, seconds=5)
    small = asyncio.create_task(bodies.read([], half_sent(BIG, SMALL), None, ("B", "b")))
    await asyncio.sleep(0.01)

    with pytest.raises(Overloaded):
        await bodies.read([], pieces(BIG, 3 * BIG), None, ("A", "a"))
    await asyncio.sleep(0)

    assert not small.done()
    small.cancel()


async def test_small_bodies_need_no_part_of_the_budget() -> None:
    bodies = Bodies(max_body=BIG, max_buffered=BIG, seconds=5)
    with bodies.held(b"x" * BIG, ("A", "a")):
        assert len(await bodies.read([], pieces(SMALL - 1, 1), None, ("B", "b"))) == SMALL


def test_a_budget_is_a_part_of_the_memory_that_the_process_may_take() -> None:
    assert affordable(1000) == 1000
    assert affordable(1000, most=80) == 10
    assert affordable(1000, most=-5) == 0
    assert affordable(1000, most=2**40) == 1000


async def test_the_first_part_of_a_body_counts_before_the_next_one_comes() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=3 * BIG, seconds=5)
    waiting = asyncio.create_task(bodies.read([], half_sent(2 * BIG), None, ("A", "a")))
    await asyncio.sleep(0.01)

    assert len(await bodies.read([], pieces(BIG, BIG), None, ("B", "b"))) == 2 * BIG
    with pytest.raises(Overloaded):
        await waiting


async def test_a_holder_of_requests_that_came_whole_has_as_much_as_it_leaves_free() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=4 * BIG, seconds=5)
    with bodies.counted(2 * BIG, ("P", "anna")):
        for holders in (("P", "anna"), ("P", "berta"), ("Q", "anna")):
            with pytest.raises(Overloaded):
                bodies.counted(BIG, holders)
        with bodies.counted(2 * BIG, ("Q", "berta")), bodies.counted(SMALL, ("P", "anna")):
            pass
    with bodies.counted(4 * BIG, ("P", "anna")):
        pass
