"""Bodies as they arrive: whole, within their limits, and in a memory that all share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from ams.core.errors import BadRequest, Overloaded, TooLarge
from ams.core.held import SMALL
from ams.http.limits import SMALL_BODY, Bodies, ClientLeft, affordable
from tests.support.served import Served

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Reading = asyncio.Task[bytes]

BIG = 2 * SMALL
LEFT: Event = {"type": "http.disconnect"}


def more(body: bytes) -> Event:
    return {"type": "http.request", "body": body, "more_body": True}


def last(body: bytes) -> Event:
    return {"type": "http.request", "body": body}


def sending(*events: Event) -> Receive:
    """Return a `receive` that gives these events and then waits for ever."""
    coming = iter(events)

    async def receive() -> Event:
        for event in coming:
            return event
        await asyncio.Event().wait()
        raise AssertionError

    return receive


async def test_a_body_is_read_whole_in_whatever_pieces_it_comes() -> None:
    bodies = Bodies(10, 100, 1)

    assert await bodies.read([], sending(last(b"0123456789"))) == b"0123456789"
    assert await bodies.read([], sending(more(b"01"), more(b""), last(b"23"))) == b"0123"
    assert await bodies.read([], sending({"type": "http.request"})) == b""


@pytest.mark.parametrize("events", [[last(b"01234567890")], [more(b"0123456789"), more(b"0")]])
async def test_a_body_over_the_limit_is_refused_as_soon_as_that_is_known(events: list[Event]) -> None:
    with pytest.raises(TooLarge):
        await Bodies(10, 100, 1).read([], sending(*events))


async def test_a_body_announced_too_large_is_not_waited_for_and_what_is_no_number_announces_nothing() -> None:
    with pytest.raises(TooLarge):
        await Bodies(10, 100, 1).read([(b"content-length", b"11")], sending(more(b"0")))
    assert await Bodies(10, 100, 1).read([(b"content-length", b"x")], sending(more(b"0"), last(b"1"))) == b"01"


async def test_a_slow_body_is_given_up() -> None:
    with pytest.raises(BadRequest, match="took too long"):
        await Bodies(10, 100, 0.01).read([], sending(more(b"0")))


@pytest.mark.parametrize("events", [[LEFT], [more(b"0"), LEFT]])
async def test_a_client_that_leaves_ends_the_reading(events: list[Event]) -> None:
    with pytest.raises(ClientLeft):
        await Bodies(10, 100, 1).read([], sending(*events))


def pieces(*sizes: int) -> Receive:
    """Send pieces of these sizes, which are a whole body."""
    *first, end = sizes
    return sending(*[more(b"x" * size) for size in first], last(b"x" * end))


@contextlib.asynccontextmanager
async def arriving(bodies: Bodies, *asked: tuple[list[int], tuple[str, str]]) -> AsyncIterator[list[Reading]]:
    """Let bodies begin to arrive, of which nothing comes after pieces of these sizes, for these holders."""
    begun = []
    for sizes, holders in asked:
        half_sent = sending(*[more(b"x" * size) for size in sizes])
        begun.append(asyncio.create_task(bodies.read([], half_sent, None, holders)))
    await asyncio.sleep(0)
    yield begun
    for each in begun:
        each.cancel()


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


async def test_the_largest_holder_is_ended_first_when_another_needs_memory() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=6 * BIG, seconds=5)
    async with arriving(bodies, ([BIG, BIG], ("A", "a")), ([BIG, 3 * BIG], ("A", "a"))) as greedy:
        assert len(await bodies.read([], pieces(BIG, BIG), None, ("B", "b"))) == 2 * BIG
        with pytest.raises(Overloaded):
            await greedy[1]
        assert not greedy[0].done()


async def test_a_body_that_was_ended_gives_its_memory_back_once() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=6 * BIG, seconds=5)
    async with arriving(bodies, ([BIG, 3 * BIG], ("A", "a"))) as [greedy]:
        assert len(await bodies.read([], pieces(BIG, 2 * BIG), None, ("B", "b"))) == 3 * BIG
        with pytest.raises(Overloaded):
            await greedy

    with bodies.held(b"x" * (6 * BIG), ("C", "c")), pytest.raises(Overloaded):
        await bodies.read([], pieces(BIG, 1), None, ("D", "d"))


async def test_a_body_over_the_limit_ends_no_other() -> None:
    bodies = Bodies(max_body=2 * BIG, max_buffered=6 * BIG, seconds=5)
    async with arriving(bodies, *[([BIG, BIG], ("A", "a"))] * 2) as greedy:
        with pytest.raises(TooLarge):
            await bodies.read([], pieces(BIG, 2 * BIG), None, ("B", "b"))
        await asyncio.sleep(0)
        assert not any(each.done() for each in greedy)


async def test_a_user_who_asks_in_many_projects_is_one_holder() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=4 * BIG, seconds=5)
    async with arriving(bodies, *[([BIG, SMALL], (project, "a")) for project in "ABCD"]) as greedy:
        assert [type(each.exception()) for each in greedy if each.done()] == [Overloaded, Overloaded]
        assert len(await bodies.read([], pieces(BIG, BIG // 2), None, ("E", "b"))) == 3 * BIG // 2


async def test_the_largest_holder_itself_is_refused() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=4 * BIG, seconds=5)
    async with arriving(bodies, ([BIG, SMALL], ("B", "b"))) as [small]:
        with pytest.raises(Overloaded):
            await bodies.read([], pieces(BIG, 3 * BIG), None, ("A", "a"))
        await asyncio.sleep(0)
        assert not small.done()


async def test_small_bodies_need_no_part_of_the_budget() -> None:
    bodies = Bodies(max_body=BIG, max_buffered=BIG, seconds=5)
    with bodies.held(b"x" * BIG, ("A", "a")):
        assert len(await bodies.read([], pieces(SMALL - 1, 1), None, ("B", "b"))) == SMALL


def test_11_1_all_of_a_large_pull_with_long_names_can_be_acknowledged(service: Served) -> None:
    topic = f"/projects/{'p' * 60}/topics/t"
    path = topic.replace("topics/t", "subscriptions/" + "s" * 90)
    service.ask("POST", topic.partition("/topics")[0], {})
    service.ask("PUT", topic)
    service.ask("PUT", path, {"topic": topic[1:]})
    service.ask("POST", f"{topic}:publish", {"messages": [{"data": "aGk="}] * 10_000})
    pulled = service.ask("POST", f"{path}:pull", {"maxMessages": "10000"})["receivedMessages"]
    ids = [each["ackId"] for each in pulled]

    assert sum(map(len, ids)) > 2**20
    assert service.ask("POST", f"{path}:acknowledge", {"ackIds": ids}) == {}
    assert service.ask("GET", f"{path}:offsets")["current"] == 10_000


def test_a_budget_is_a_part_of_the_memory_that_the_process_may_take() -> None:
    assert affordable(1000) == 1000
    assert affordable(1000, most=80) == 10
    assert affordable(1000, most=-5) == 0
    assert affordable(1000, most=2**40) == 1000


async def test_the_first_part_of_a_body_counts_before_the_next_one_comes() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=3 * BIG, seconds=5)
    async with arriving(bodies, ([2 * BIG], ("A", "a"))) as [waiting]:
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
