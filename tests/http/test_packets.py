"""However requests are cut into packets, the application gets the same requests, and clients the same answers."""

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ams.web.fair_scheduler import FairScheduler
from ams.web.request_reader import MAX_TRAILER_BYTES
from tests.support.line import LineServer, awaits_body
from tests.support.packets import chunked_packet, cuts, in_a_row, sized_packet, table
from tests.support.schedulers import AllWaits, at_once
from tests.support.waiting import wait_until_async

REQUESTS = table(b"/v1/echo?x=1", b'{"messages":[{"data":"aGVsbG8="}]}')
ALL_REQUESTS = REQUESTS | {"another protocol": b"GET /v1/version RTSP/1.1\r\nHost: x\r\n\r\n"}
TURNS = 400  # iterations of the loop in which everything is answered


seen: list[list[bytes]] = []  # names of the headers of each request that reached the application


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the request, after a pause in which a pipelined one may arrive."""
    seen.append([name for name, _ in scope["headers"]])
    body, more = b"", True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body, more = body + event["body"], event["more_body"]
    await asyncio.sleep(0)
    said = json.dumps([scope["method"], scope["path"], scope["query_string"].decode(), body.decode()]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


scheduler: Callable[[], FairScheduler] = at_once


@pytest.fixture(autouse=True, params=[at_once, AllWaits])
def packet_scheduler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each packet at once, or let it wait for its turn."""
    monkeypatch.setitem(globals(), "scheduler", request.param)


async def conversation(packets: Iterable[bytes]) -> tuple[bytes, bool]:
    """Return the service's output, and whether it closes, for these packets."""
    lines = LineServer(echo, scheduler())
    line, connection = lines.connect()
    for packet in packets:
        for _ in range(TURNS):
            if not line.is_paused:
                break
            await asyncio.sleep(0)
        if line.is_closed:
            break
        connection.data_received(packet)
    await wait_until_settled(lines, connection)
    result = line.written, line.is_closed
    connection.connection_lost(None)
    await wait_until_settled(lines, connection)
    return result


async def wait_until_settled(lines: LineServer, connection: Any) -> None:
    for _ in range(TURNS):
        if not (lines.port.exchanges or connection._held):
            return
        await asyncio.sleep(0)
    # An incomplete request waits for its rest.
    assert awaits_body(connection)


@pytest.mark.parametrize("name", ALL_REQUESTS)
async def test_a_request_cut_at_any_byte_is_the_same_request(name: str) -> None:
    whole = await conversation([ALL_REQUESTS[name]])
    assert whole[0].startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    for before, after in cuts(ALL_REQUESTS[name]):
        assert await conversation([before, after]) == whole, before[-20:]


async def test_requests_in_a_row_get_the_answers_they_get_alone_in_order() -> None:
    alone = {name: await conversation([said]) for name, said in REQUESTS.items()}
    for names in in_a_row(REQUESTS):
        expected, is_closed = b"", False
        for name in names:
            if not is_closed:
                written, is_closed = alone[name]
                expected += written
        assert await conversation([b"".join(REQUESTS[each] for each in names)]) == (expected, is_closed), names


async def test_requests_in_a_row_may_be_cut_anywhere() -> None:
    chosen = random.Random(17)
    names = list(REQUESTS)
    for _ in range(60):
        said = b"".join(REQUESTS[each] for each in chosen.choices(names, k=3))
        whole = await conversation([said])
        for _ in range(10):
            first, second = sorted(chosen.choices(range(1, len(said)), k=2))
            assert await conversation([said[:first], said[first:second], said[second:]]) == whole


async def test_a_body_arrives_as_it_was_sent() -> None:
    for name in ("sized with lines that look like offers", "chunked with an offer"):
        written, _ = await conversation([bytes([each]) for each in REQUESTS[name]])
        _, _, said = written.partition(b"\r\n\r\n")
        assert json.loads(said)[3].count("\nUpgrade: a\nUPGRADE : b\r\nupgrade\t: c") == 4
        assert "\r\n\r\nDELETE /v1/projects/P/topics/T HTTP/1.1\r\n" in json.loads(said)[3]


async def test_a_field_behind_the_body_is_no_header_however_it_is_cut() -> None:
    """A proxy has checked only the head, and replaced `X-Forwarded-For` there."""
    trailer = b"x-api-key: t\r\nx-forwarded-for: 192.0.2.1\r\nidempotency-key: k\r\nauthorization: Bearer t\r\n"
    said = chunked_packet(b"/v1/echo", b"body", trailer=trailer)
    seen.clear()
    whole = await conversation([said])

    for before, after in cuts(said):
        assert await conversation([before, after]) == whole
    assert all(names == [b"host", b"transfer-encoding"] for names in seen)


@pytest.mark.parametrize("offer", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
async def test_a_trailer_without_end_and_trailers_without_end_are_refused(offer: bytes) -> None:
    begun = chunked_packet(b"/v1/echo", b"body", offer).removesuffix(b"\r\n") + b"x: "
    many = chunked_packet(b"/v1/echo", b"body", offer, trailer=b"x: y\r\n" * 101)

    for packets in ([begun, *[b"a" * 1024] * (MAX_TRAILER_BYTES // 1024 + 1)], [many]):
        written, is_closed = await conversation(packets)
        assert b"Request trailer is too large" in written
        assert is_closed
    assert MAX_TRAILER_BYTES == 8192


@pytest.mark.parametrize("name", [each for each in REQUESTS if "trailer" in each])
async def test_after_a_request_with_a_trailer_the_next_one_is_answered_or_the_connection_is_closed(name: str) -> None:
    lines = LineServer(echo, scheduler())
    line, connection = lines.connect()
    connection.data_received(REQUESTS[name])
    await wait_until_settled(lines, connection)
    first = line.written
    assert first.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    if not line.is_closed:
        connection.data_received(REQUESTS["get"])
        await wait_until_settled(lines, connection)

    answers = line.written.removeprefix(first).count(b"HTTP/1.1 200")
    assert answers == (0 if line.is_closed else 1)
    assert line.is_closed or b"\r\nconnection: close\r\n" not in line.written
    connection.connection_lost(None)


async def test_sizes_of_many_chunks_are_no_trailer() -> None:
    said = chunked_packet(b"/v1/echo", b"x" * 4000, size=1)
    written, _ = await conversation([bytes([each]) for each in said])
    assert b"x" * 4000 in written


async def test_a_second_head_that_begins_behind_a_long_body_is_not_too_large() -> None:
    first = sized_packet(b"/v1/echo", b"x" * 5000)
    second = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
    written, _ = await conversation([first[:20], first[20:] + second[:10], second[10:]])
    assert written.count(b"HTTP/1.1 200") == 2


async def test_an_empty_line_begins_no_request_and_keeps_no_connection() -> None:
    line, connection = LineServer(echo, scheduler(), request_seconds=0.02).connect()
    connection.data_received(b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n")
    await wait_until_async(lambda: bool(line.written))
    connection.data_received(b"\r\n")
    await wait_until_async(lambda: line.is_closed)
    connection.connection_lost(None)
