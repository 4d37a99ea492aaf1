"""Heads are remembered by what requests depend on, and take the memory they are counted for, whatever they hold."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ams.http import lane
from tests.support.hot_packets import ACKNOWLEDGE, ID, KEY, MESSAGE, NOW, PUBLISH, PULL, said
from tests.support.memory import in_a_process, traced
from tests.support.two_ways import one_way

HEADS = 200
DIFFERING = (b"traceparent: 00-%032x-%016x-01\r\n", b"X-Forwarded-For: 192.0.2.%d:%d\r\n", b"Date: %d %d\r\n")
HOT = [(PUBLISH, MESSAGE), (PULL, NOW), (ACKNOWLEDGE, ID)]


@pytest.mark.parametrize(("target", "body"), HOT)
@pytest.mark.parametrize("field", DIFFERING)
async def test_fields_that_are_not_read_may_differ(tmp_path: Path, target: bytes, body: bytes, field: bytes) -> None:
    async with one_way(tmp_path / "data", lane=True) as way:
        await way.told([said(PUBLISH, MESSAGE), said(PULL, NOW, KEY + b"Authorization: other\r\n")])
        assert way.made.lane is not None
        heads, before = way.made.lane.fast._heads, way.on_lane
        heads.clear()
        for number in range(5):
            answer, _ = await way.told([said(target, body, KEY + field % (number, number))])
            assert answer.startswith(b"HTTP/1.1 200")

        assert way.on_lane == before + 4
        assert len(heads._entries) == 1


class Name(bytes):
    """The name of a header field that notes with what it is compared."""

    compared: set[Any]
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        self.compared.add(other)
        return super().__eq__(other)


@pytest.mark.parametrize(("target", "body"), HOT)
async def test_every_field_that_hot_routes_read_is_known_to_the_lane(
    tmp_path: Path, target: bytes, body: bytes
) -> None:
    """Over ASGI; a field that is found by its hash would have to be in a set that the lane has too."""
    name = Name(b"traceparent")
    name.compared = set()
    async with one_way(tmp_path / "data", lane=True) as way:
        await way.told([said(PUBLISH, MESSAGE), said(PULL, NOW)])
        state: dict[str, Any] = {}
        scope = {
            "type": "http",
            "method": "POST",
            "path": target.decode(),
            "query_string": b"",
            "headers": [(name, b"x"), (b"x-api-key", way.with_tokens(KEY).split()[1])],
            "client": ("127.0.0.1", 1),
            "state": state,
        }
        coming = [
            {"type": "http.request", "body": body[:1], "more_body": True},
            {"type": "http.request", "body": body[1:]},
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return coming.pop(0)

        async def send(event: Any) -> None:
            sent.append(event)

        await way.made.app(scope, receive, send)

    assert sent[0]["status"] == 200
    assert {b"x-api-key", b"authorization", b"origin"} <= name.compared <= lane._READ


def taken_and_counted(path: Path, fields: int) -> tuple[int, int]:
    """Return the bytes that heads of so many fields take, and those they are counted for."""
    return asyncio.run(_taken_and_counted(path, fields))


async def _taken_and_counted(path: Path, fields: int) -> tuple[int, int]:
    async with one_way(path, lane=True) as way:
        assert way.made.lane is not None
        heads = way.made.lane.fast._heads

        async def ask(first: int) -> None:
            for number in range(first, first + HEADS):
                others = b"".join(b"Authorization: %d %d\r\n" % (place, number) for place in range(fields))
                await way.told([said(PUBLISH, b'{"messages":[]}', KEY + others)])

        await ask(0)  # whatever is made once is there
        with traced() as held:
            before = heads._weight
            await ask(HEADS)
            return held(), heads._weight - before


@pytest.mark.parametrize("fields", [5, 90])
def test_what_a_head_is_counted_for_is_about_what_it_takes(tmp_path: Path, fields: int) -> None:
    taken, counted = in_a_process(taken_and_counted, tmp_path / "data", fields)

    assert counted > HEADS * 1000
    assert counted / 2 < taken < counted * 1.5, (taken / HEADS, counted / HEADS)
