"""The limits of what a client may cost hold on the lane as they do over ASGI."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.http.protocol import MAX_PIPELINED
from tests.support.hot_packets import KEY, MESSAGE, NOW, PUBLISH, PULL, said
from tests.support.line import Line
from tests.support.two_ways import SERVICE_TOKEN, Way, one_way, two_ways
from tests.support.waiting import wait_until_async

SIZES = 150, 200, 200, 250, 150
"""KiB of bodies."""
ADMIN = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
WANTED = b'{"maxMessages":"9","returnImmediately":"true"}'
KIB = 1024
SETTINGS: dict[str, Any] = {
    "max_message_bytes": 100_000,
    "max_body_bytes": 900 * KIB,
    "max_buffered_bytes": 900 * KIB,
    "max_unread_bytes": 900_000,
    "max_header_bytes": 4096,
}
IMPATIENT = pytest.mark.parametrize("seconds", [0.3])


@pytest.fixture
def seconds() -> float:
    """For which a client is waited for."""
    return 30.0


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
async def way(request: pytest.FixtureRequest, tmp_path: Path, seconds: float) -> AsyncIterator[Way]:
    made = one_way(tmp_path / "data", lane=request.param, request_seconds=seconds, **SETTINGS)
    async with made as way:
        for headers in (KEY, ADMIN):
            await way.told([said(PUBLISH, MESSAGE, headers)])
            await way.told([said(PULL, NOW, headers)])
        yield way
        await wait_until_async(lambda: way.kept() == (0, 0, 0, 0))


def large(size: int, headers: bytes = KEY) -> bytes:
    """Return a publish of messages of 50 KiB that has about so many bytes."""
    count = size // (50 * KIB)
    return said(PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 12_800)] * count), headers)


@IMPATIENT
@pytest.mark.parametrize("size", [len(MESSAGE), 80 * KIB])
async def test_a_body_that_comes_too_slowly_is_refused(way: Way, size: int) -> None:
    said_ = said(PUBLISH, MESSAGE + b" " * (size - len(MESSAGE)))
    line, protocol = await way.begin(said_[: -size // 2])
    while not line.written:
        await asyncio.sleep(0.02)
        protocol.data_received(b" ")

    assert line.written.startswith(b"HTTP/1.1 400")
    assert b"Request took too long to arrive" in line.written
    assert line.is_closed
    protocol.connection_lost(None)


async def test_heads_have_the_same_limit(tmp_path: Path) -> None:
    async with two_ways(tmp_path, **SETTINGS) as ways:
        for length in (3000, 3900, 4000, 4050, 5000):
            field = KEY + b"a: %b\r\n" % (b"b" * length)
            for packets in ([said(PUBLISH, MESSAGE, field)], [said(PUBLISH, MESSAGE, field)[:2000], b"c" * 3000]):
                await ways.same(packets)
                await ways.same(packets, slowly=True)


async def test_a_body_over_the_limit_is_refused(way: Way) -> None:
    answer, _ = await way.told([said(PUBLISH, b" " * (901 * KIB))])

    assert answer.startswith(b"HTTP/1.1 413")


async def test_the_largest_body_of_the_largest_holder_goes_when_memory_is_short(way: Way) -> None:
    greedy = [await way.begin(large(size * KIB)[:-100]) for size in SIZES]
    await asyncio.sleep(0)
    modest, other = await way.begin(large(150 * KIB, ADMIN))
    await wait_until_async(lambda: bool(modest.written))
    assert modest.written.startswith(b"HTTP/1.1 200")
    other.connection_lost(None)
    await wait_until_async(lambda: any(line.written for line, _ in greedy))
    ended = [number for number, (line, _) in enumerate(greedy) if line.written]
    assert [greedy[number][0].written[9:12] for number in ended] == [b"503"] * len(ended)
    assert 1 <= len(ended) <= 2
    assert 3 in ended  # the largest
    for number, (line, protocol) in enumerate(greedy):
        if number not in ended:
            protocol.data_received(large(SIZES[number] * KIB)[-100:])
            await wait_until_async(lambda line=line: bool(line.written))
            assert line.written.startswith(b"HTTP/1.1 200")
        protocol.connection_lost(None)


async def test_bodies_on_the_lane_and_over_asgi_share_one_memory(way: Way) -> None:
    """Chunked bodies are for ASGI."""
    chunk = large(200 * KIB).partition(b"\r\n\r\n")[2][:-100]
    begun = b"POST %b HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (PUBLISH, KEY)
    asked = []
    for _ in range(5):
        asked.append(await way.begin(large(200 * KIB)[:-100]))
        asked.append(await way.begin(begun + b"%x\r\n%b\r\n" % (len(chunk), chunk)))
        await asyncio.sleep(0.002)
    await wait_until_async(lambda: sum(bool(line.written) for line, _ in asked) >= 6)
    held = way.kept()[0]
    refused = [line.written[9:12] for line, _ in asked if line.written]

    assert refused == [b"503"] * len(refused)
    assert held <= 900 * KIB + 10
    for _, protocol in asked:
        protocol.connection_lost(None)


async def deaf(way: Way, scheme: str = "http") -> tuple[Line, Any]:
    """Publish much, and begin to answer with it a client that reads nothing."""
    for _ in range(4):
        await way.told([large(200 * KIB)])
    line, protocol = way.connect()
    line.is_deaf, protocol.scheme = True, scheme
    protocol.data_received(way.with_tokens(said(PULL, WANTED)))
    await wait_until_async(lambda: way.kept()[1] > 300_000)
    return line, protocol


@pytest.mark.parametrize("seconds", [5.0])
async def test_answers_that_are_not_read_take_memory_of_their_project_until_patience_ends(way: Way) -> None:
    line, protocol = await deaf(way)
    other, other_protocol = await way.begin(said(PULL, WANTED, ADMIN))
    await wait_until_async(lambda: bool(other.written))
    assert other.written.startswith(b"HTTP/1.1 200")
    assert len(other.written) < 200_000  # as much as the other leaves free
    other_protocol.connection_lost(None)
    await wait_until_async(lambda: line.is_aborted)
    protocol.connection_lost(ConnectionResetError())
    await wait_until_async(lambda: way.kept() == (0, 0, 0, 0))
    answer, _ = await way.told([said(PULL, WANTED)])

    assert answer.startswith(b"HTTP/1.1 200")
    assert len(answer) > 300_000


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_answer_that_is_read_late_is_whole(way: Way, scheme: str) -> None:
    line, protocol = await deaf(way, scheme)
    while way.state.tasks:
        line.read()
        line.is_deaf = True
        await asyncio.sleep(0.001)
    whole, _ = await way.told([said(PULL, WANTED)])

    assert line.written.partition(b"\r\n\r\n")[2] == whole.partition(b"\r\n\r\n")[2]
    protocol.connection_lost(None)


async def test_a_burst_is_answered_up_to_a_number(way: Way) -> None:
    answers, is_closed = await way.told([said(PULL, NOW) * (3 * MAX_PIPELINED)])

    assert answers.count(b"HTTP/1.1 200") >= MAX_PIPELINED
    assert answers.count(b"HTTP/1.1 503") == 1
    assert is_closed
