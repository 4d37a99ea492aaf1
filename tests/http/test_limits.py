import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from ams.core.errors import BadRequest, Overloaded, TooLarge
from ams.core.held import SMALL
from ams.http.limits import Bodies, ClientLeft

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]

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


async def test_a_body_announced_too_large_is_not_waited_for() -> None:
    with pytest.raises(TooLarge):
        await Bodies(10, 100, 1).read([(b"content-length", b"11")], sending(more(b"0")))


async def test_a_length_that_is_no_number_announces_nothing() -> None:
    assert await Bodies(10, 100, 1).read([(b"content-length", b"x")], sending(more(b"0"), last(b"1"))) == b"01"


async def test_a_slow_body_is_given_up() -> None:
    with pytest.raises(BadRequest, match="took too long"):
        await Bodies(10, 100, 0.01).read([], sending(more(b"0")))


@pytest.mark.parametrize("events", [[LEFT], [more(b"0"), LEFT]])
async def test_a_client_that_leaves_ends_the_reading(events: list[Event]) -> None:
    with pytest.raises(ClientLeft):
        await Bodies(10, 100, 1).read([], sending(*events))


async def test_all_bodies_together_stay_in_one_budget_which_comes_back() -> None:
    big = b"x" * (SMALL + 1)
    bodies = Bodies(10 * SMALL, 3 * SMALL, 1)
    first = asyncio.create_task(bodies.read([], sending(more(b""), more(big), more(big))))
    await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await bodies.read([], sending(more(2 * big), last(b"")))

    first.cancel()
    await asyncio.wait([first])
    assert await bodies.read([], sending(more(big), last(big))) == 2 * big
