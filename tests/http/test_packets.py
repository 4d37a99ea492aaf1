"""However requests are cut into packets, the application gets the same requests, and clients the same answers."""

import asyncio
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from uvicorn.server import ServerState

from ams.http.protocol import LEAST_READ_RATE, LimitedProtocol, limited
from ams.http.server import server
from tests.support.packets import cuts, in_a_row, table

REQUESTS = table(b"/v1/echo?x=1", b'{"messages":[{"data":"aGVsbG8="}]}')
TURNS = 400
"""Of the loop, within which everything is answered: there is nothing to wait for."""


class Line(asyncio.Transport):
    """The service's end of a connection, which keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.is_paused = self.is_closed = False
        self.unread = 0

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.unread


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer what was asked, after a moment in which a request behind may arrive."""
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


SPEAKS = limited(4096, 100, 30.0)


def connected(line: Line, state: ServerState, speaks: type[LimitedProtocol] = SPEAKS) -> LimitedProtocol:
    config = server(echo, http=speaks).config
    config.load()
    connection = speaks(config, state, {}, asyncio.get_running_loop())
    connection.connection_made(line)
    return connection


async def conversation(packets: Iterable[bytes]) -> tuple[bytes, bool]:
    """Return what the service writes, and whether it closes, when these packets come one after the other."""
    line, state = Line(), ServerState()
    connection = connected(line, state)
    for packet in packets:
        for _ in range(TURNS):
            if not line.is_paused:
                break
            await asyncio.sleep(0)
        if line.is_closed:
            break
        connection.data_received(packet)
    await settled(state, connection)
    result = line.written, line.is_closed
    connection.connection_lost(None)
    await settled(state, connection)
    return result


async def settled(state: ServerState, connection: LimitedProtocol) -> None:
    for _ in range(TURNS):
        if not state.tasks:
            return
        await asyncio.sleep(0)
    # A request whose rest does not come waits for it.
    assert connection.cycle is not None and connection.cycle.more_body  # noqa: PT018


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_cut_at_any_byte_is_the_same_request(name: str) -> None:
    whole = await conversation([REQUESTS[name]])
    assert whole[0].startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    for before, after in cuts(REQUESTS[name]):
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


@pytest.mark.parametrize(("read", "stays"), [(0, False), (1, False), (LEAST_READ_RATE * 30, True)])
async def test_a_client_must_read_its_answer_at_a_least_rate(read: int, stays: bool) -> None:
    line = Line()
    connection = connected(line, ServerState())
    line.unread = 1_000_000
    connection.pause_writing()
    line.unread -= read
    connection._check_reader(1_000_000)  # as the timer does, every 30 s here

    assert line.is_closed is not stays
    connection.connection_lost(None)
