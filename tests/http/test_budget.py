"""The memory of bodies: one budget for those arriving and those held until they are stored."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from ams.errors import Overloaded, TooLarge
from ams.http.asgi import Receive
from ams.http.limits import SMALL_BODY, SMALL_PIECE, Bodies

BIG = 2 * SMALL_PIECE


def pieces(*sizes: int) -> Receive:
    left = list(sizes)

    async def receive() -> MutableMapping[str, Any]:
        size = left.pop(0)
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

    return receive


async def test_what_is_held_until_it_is_stored_counts_against_what_arrives() -> None:
    bodies = Bodies(max_body=10 * BIG, max_buffered=3 * BIG, seconds=5)
    weight = bodies.hold(b"x" * (2 * BIG))

    with pytest.raises(Overloaded):
        await bodies.read([], pieces(BIG, BIG))
    bodies.release(weight)

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
