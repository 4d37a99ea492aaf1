"""Which requests take the lane, and what it may keep of them; test_two_ways.py holds that it answers as over ASGI."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ams.http import lane
from ams.http.lane import LaneRequest
from tests.support.hot_packets import ACKNOWLEDGE, ALLOWED, ID, KEY, MESSAGE, NOW, PUBLISH, PULL, STRICT, said
from tests.support.memory import in_a_process, traced
from tests.support.two_ways import Way, one_way, request
from tests.support.waiting import wait_until_async

PUBLISHED = said(PUBLISH, MESSAGE)
DELETE_TOPIC = request("DELETE", "/projects/P/topics/T")


@pytest.fixture
async def way(tmp_path: Path) -> AsyncIterator[Way]:
    async with one_way(tmp_path / "data", lane=True, keep_alive_seconds=75.0) as opened:
        yield opened


async def statuses(way: Way, *packets: bytes) -> list[int]:
    """Return the status of the answer to each, on a connection of its own."""
    return [int((await way.told([packet]))[0].split()[1]) for packet in packets]


async def test_a_request_takes_the_lane_when_its_head_is_known(way: Way) -> None:
    hot = (PUBLISHED, said(PULL, NOW), said(ACKNOWLEDGE, ID))

    assert await statuses(way, *hot * 3) == [200] * 9
    assert way.on_lane == 6


@pytest.mark.parametrize(
    "headers",
    [b"Origin: https://example.org", b"Connection: close", b"Expect: something",
     b"Connection: Upgrade\r\nUpgrade: h2c"],
)  # fmt: skip
async def test_these_requests_never_take_the_lane(way: Way, headers: bytes) -> None:
    assert await statuses(way, *[said(PUBLISH, MESSAGE, KEY + headers + b"\r\n")] * 3) == [200] * 3
    assert way.on_lane == 0


async def test_publishes_with_different_keys_share_what_is_known_of_their_head(way: Way) -> None:
    keys = [b"Idempotency-Key: %b\r\n" % key for key in (b"a", b"b", b"a", b" b ", b"c")]
    answers = [await way.told([said(PUBLISH, MESSAGE, KEY + key)]) for key in (*keys, b"")]

    ids = [b'{"messageIds":["%d"]}' % number for number in (0, 1, 0, 1, 2, 3)]
    assert [written.rpartition(b"\r\n")[2] for written, _ in answers] == ids
    assert way.on_lane == 5


async def test_messages_that_a_schema_soon_allows_take_the_lane_and_others_do_not(way: Way) -> None:
    allowed, number = (said(STRICT, b'{"messages":[{"data":"%b"}]}' % data) for data in (ALLOWED, b"MQ=="))

    assert await statuses(way, *[allowed] * 3, number) == [200, 200, 200, 400]
    assert way.on_lane == 2
    await way.told([request("PUT", "/projects/P/schemas/X", '{"schema":{"type":"number"}}')])
    assert await statuses(way, allowed, number, number) == [400, 200, 200]
    assert way.on_lane == 4


@pytest.mark.parametrize(("size", "arrived"), [(len(MESSAGE), -5), (200_000, 1000)], ids=["late", "in the middle"])
async def test_a_head_whose_rights_are_gone_does_not_let_its_body_in(way: Way, size: int, arrived: int) -> None:
    packet = way.with_tokens(said(PUBLISH, MESSAGE + b" " * (size - len(MESSAGE))))
    assert await statuses(way, packet, packet) == [200] * 2
    line, protocol = way.connect()
    if size == len(MESSAGE):  # it begins to arrive before they go; of a large one nothing is gathered after it
        protocol.data_received(packet[:arrived])
    await way.told([DELETE_TOPIC])
    protocol.data_received(packet[arrived:] if size == len(MESSAGE) else packet[:arrived])
    await wait_until_async(lambda: bool(line.written))

    assert line.written.startswith(b"HTTP/1.1 404")
    protocol.connection_lost(None)


async def test_a_rate_counts_each_request_once(tmp_path: Path) -> None:
    async with one_way(tmp_path / "data", lane=True, user_requests_per_second=8) as way:
        asked = [said(PUBLISH, b'{"messages":[{"data":1}]}'), PUBLISHED] * 6

        assert await statuses(way, *asked) == [400, 200] * 4 + [429] * 4
        assert way.on_lane == 4


async def test_a_connection_whose_pull_was_answered_at_once_is_kept(tmp_path: Path) -> None:
    async with one_way(tmp_path / "data", lane=True, request_seconds=0.02, keep_alive_seconds=75.0) as way:
        line, protocol = way.connect()
        for count in range(1, 4):
            protocol.data_received(way.with_tokens(said(PULL, NOW)))
            await wait_until_async(lambda count=count: line.written.count(b"HTTP/1.1 200") == count)
            await asyncio.sleep(0.04)

        assert way.on_lane == 2
        assert not line.is_closed
        protocol.connection_lost(None)


async def test_a_connection_that_ended_leaves_nothing_for_the_collector(way: Way) -> None:
    """Over TLS each holds a quarter of a megabyte of buffers."""
    await statuses(way, *[PUBLISHED] * 3)
    gc.disable()
    try:
        line, protocol = way.connect()
        ended = weakref.ref(protocol)
        protocol.data_received(way.with_tokens(PUBLISHED))
        await wait_until_async(lambda: line.written.startswith(b"HTTP/1.1 200"))
        protocol.connection_lost(None)
        line.protocol = protocol = None  # type: ignore[assignment]
        await wait_until_async(lambda: ended() is None)
    finally:
        gc.enable()
    assert way.on_lane == 3


async def test_a_defect_in_sending_an_answer_ends_its_connection_and_nothing_else(
    way: Way, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    large = said(PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 20_000)] * 10))
    wanted = said(PULL, b'{"maxMessages":"20","returnImmediately":"true"}')
    await statuses(way, large, large, wanted)
    monkeypatch.setattr(LaneRequest, "_send_rest", AsyncMock(side_effect=RuntimeError("a defect")))
    before = way.on_lane
    line, protocol = way.connect()
    protocol.data_received(way.with_tokens(wanted))
    await wait_until_async(lambda: line.is_closed)
    protocol.connection_lost(None)

    assert way.on_lane == before + 1
    assert await statuses(way, request("GET", "/version")) == [200]
    said_of_it: Any = capsys.readouterr()
    assert "request.failed" in said_of_it.out + said_of_it.err


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
        headers = [(name, b"x"), (b"x-api-key", way.with_tokens(KEY).split()[1])]
        scope = {"type": "http", "method": "POST", "path": target.decode(), "query_string": b"", "headers": headers}
        scope |= {"client": ("127.0.0.1", 1), "state": {}}
        coming = [{"body": body[:1], "more_body": True}, {"body": body[1:]}]
        receive, send = AsyncMock(side_effect=[{"type": "http.request"} | each for each in coming]), AsyncMock()
        await way.made.app(scope, receive, send)

    assert send.call_args_list[0].args[0]["status"] == 200
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


@pytest.mark.long
@pytest.mark.parametrize("fields", [5, 90])
def test_what_a_head_is_counted_for_is_about_what_it_takes(tmp_path: Path, fields: int) -> None:
    taken, counted = in_a_process(taken_and_counted, tmp_path / "data", fields)

    assert counted > HEADS * 1000
    assert counted / 2 < taken < counted * 1.5, (taken / HEADS, counted / HEADS)
