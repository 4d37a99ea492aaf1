"""A connection keeps order, ends in time, and leaks nothing; parsing of requests: tests/http/test_packets.py."""

import asyncio
import contextlib
import gc
import os
import re
import socket
import ssl
import weakref
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import pytest

from ams.http.tls import Certificate
from ams.web.connection import HttpConnection
from ams.web.fair_scheduler import MAX_HELD_BYTES, FairScheduler
from ams.web.listener import ListenerLimits
from ams.web.server import HttpServer
from tests.support.line import Line, LineServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answer_path(scope: Any, receive: Any, send: Any) -> None:
    body = scope["path"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def answer_with_body(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    event = await receive()
    while event["type"] == "http.request" and event["more_body"]:
        event = await receive()
    await send({"type": "http.response.body", "body": b"last"})


class HalfLine(Line):
    """A connection whose sides are closed one by one."""

    has_eof = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_eof = True

    def write(self, data: Any) -> None:
        assert not self.has_eof
        super().write(data)


def connect(server: LineServer, line: Line) -> Any:
    connection = HttpConnection(server.port, lambda: None)
    connection.connection_made(line)
    return connection


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nPad: {'p' * 80}\r\n\r\n".encode()


async def test_packets_behind_a_rest_are_read_in_order_when_there_is_no_memory_to_hold_more() -> None:
    scheduler = FairScheduler(lambda: 0.0)
    line, connection = LineServer(answer_path, scheduler).connect()
    scheduler.free = 0
    scheduler._waiting["others"] = OrderedDict({None: deque([lambda: None])})
    many = b"".join(get(f"/{number:02}") for number in range(60))
    assert scheduler.hold_bytes(MAX_HELD_BYTES - len(many) - 50)
    connection.data_received(many)
    connection.data_received(get("/99"))
    await wait_until_async(lambda: connection._read_held() and line.written.endswith(b"/99"))

    assert re.findall(rb"\r\n\r\n/(\d\d)", line.written) == [b"%02d" % number for number in (*range(60), 99)]


async def test_a_connection_whose_body_comes_after_its_answer_is_closed_when_it_says_nothing_more() -> None:
    server = LineServer(answer_path)
    server.port.idle_seconds = 0.01
    line, connection = server.connect()
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
    await wait_until_async(lambda: line.written)
    connection._close_idle()
    connection.data_received(b"b")

    await wait_until_async(lambda: line.is_closed)


async def test_a_client_whose_body_in_chunks_is_not_read_may_send_it_on_and_read_the_answer() -> None:
    line = HalfLine()
    connection = connect(LineServer(answer_path), line)
    connection.data_received(CHUNKED + b"1\r\na\r\n")
    await wait_until_async(lambda: line.has_eof)
    connection.data_received(b"1\r\na\r\n")

    assert b"\r\nconnection: close\r\n" in line.written
    assert not line.is_closed
    connection.connection_lost(None)


async def test_an_answer_that_streams_while_a_body_in_chunks_comes_has_all_of_it() -> None:
    server = LineServer(answer_with_body)
    line, connection = server.connect()
    connection.data_received(CHUNKED + b"1\r\na\r\n")
    await wait_until_async(lambda: b"first" in line.written)
    connection.data_received(b"1\r\nb\r\n0\r\n\r\n")
    await wait_until_async(lambda: not server.port.exchanges)

    assert line.written.endswith(b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n")
    assert not line.is_closed


async def test_an_answer_to_http_1_0_that_streams_ends_with_the_connection() -> None:
    line, connection = LineServer(answer_with_body).connect()
    connection.data_received(b"GET / HTTP/1.0\r\n\r\n")
    await wait_until_async(lambda: line.is_closed)
    assert line.written.endswith(b"connection: close\r\n\r\nfirstlast")


async def test_a_connection_that_cannot_be_stopped_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    port = LineServer(answer_path).port
    server = HttpServer("lines", port, ListenerLimits(connections=2))
    lines = [Line(), Line()]
    connections = [HttpConnection(port, lambda: None) for _ in lines]
    for line, connection in zip(lines, connections, strict=True):
        connection.connection_made(line)
    monkeypatch.setattr(connections[0], "_read_held", lambda: 1 // 0)
    await server.stop(0)

    assert [line.is_closed for line in lines] == [True, True]
    for connection in connections:
        connection.connection_lost(None)


async def test_a_client_that_ends_its_side_and_reads_nothing_is_given_up() -> None:
    server = LineServer(answer_path, request_seconds=0.01)
    line, connection = server.connect()
    line.is_deaf = True
    connection.data_received(get("/"))
    await wait_until_async(lambda: line.unread)
    assert not connection.eof_received()

    await wait_until_async(lambda: line.is_aborted)


async def test_over_tls_a_request_whose_client_ends_its_side_is_done_and_not_answered(tmp_path: Path) -> None:
    has_begun, may_go_on, is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        has_begun.set()
        await may_go_on.wait()
        await answer_path(scope, receive, send)
        is_done.set()

    context = Certificate.local(str(tmp_path)).context
    server = HttpServer("half", LineServer(work).port, ListenerLimits(connections=2), context=context)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server.start(sock)
        reader, writer = await asyncio.open_connection(*sock.getsockname(), ssl=ssl._create_unverified_context())
        writer.write(get("/"))
        await has_begun.wait()
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as own:
            own.shutdown(socket.SHUT_WR)  # without a goodbye of TLS, after which nothing could be read
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        may_go_on.set()
        await asyncio.wait_for(is_done.wait(), PATIENCE_SECONDS)
        await server.stop()


async def test_nobody_is_told_to_continue_behind_the_answer() -> None:
    line = HalfLine()
    server = LineServer(answer_with_body)
    connection = connect(server, line)
    connection.data_received(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n") + b"zz\r\n")
    await wait_until_async(lambda: not server.port.exchanges)

    assert line.written.startswith(b"HTTP/1.1 400")
    connection.connection_lost(None)


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", get("/") * 130, get("/?" + "&" * 200), b"GET none HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_a_connection_that_is_refused_leaves_nothing_for_the_collector(said: bytes) -> None:
    server = LineServer(answer_path)
    gc.disable()
    try:
        _, connection = server.connect()
        connection.data_received(said)
        await wait_until_async(lambda: not server.port.exchanges)
        connection.connection_lost(None)
        ended = weakref.ref(connection)
        del connection
        await wait_until_async(lambda: ended() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("line", [b"GET  /x RTSP/1.0", b"GET /x  RTSP/1.0", b"GET /x RTSP/1.0", b"SOURCE /x ICE/1.0"])
async def test_other_protocols_of_the_parser_are_refused(line: bytes) -> None:
    said = line + b"\r\nHost: x\r\n\r\n"
    for cut in range(1, len(said)):
        client, connection = LineServer(answer_path).connect()
        connection.data_received(said[:cut])
        connection.data_received(said[cut:])
        assert client.written.startswith(b"HTTP/1.1 400"), cut


@pytest.mark.parametrize("value", [b"a\rb", b"a\nb", b"a\r\nb: c", b"a\0"])
async def test_a_field_of_an_answer_has_one_line(value: bytes) -> None:
    async def answer_with_header(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", value)]})
        await send({"type": "http.response.body", "body": b"ok"})

    line, connection = LineServer(answer_with_header).connect()
    connection.data_received(get("/"))
    await wait_until_async(lambda: line.is_closed)

    assert line.written.startswith(b"HTTP/1.1 500")
    assert b"a" + value[1:2] not in line.written


async def test_a_head_or_a_304_has_a_length_and_no_body() -> None:
    async def answer_304(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body"})

    for application, said in ((answer_304, get("/")), (answer_path, get("/").replace(b"GET", b"HEAD"))):
        line, connection = LineServer(application).connect()
        connection.data_received(said)
        await wait_until_async(lambda line=line: line.written)

        assert line.written.endswith(b"\r\n\r\n")
        assert b"content-length: " in line.written
        assert not line.is_closed


@pytest.mark.parametrize("said", [b"HEAD http://x", b"HEAD /\0", b"HEAD /" + b"p" * 70_000, b"HEAD /defect"])
async def test_a_refusal_of_a_head_has_a_length_and_no_body(said: bytes) -> None:
    line, connection = LineServer(lambda scope, receive, send: send({"type": "no event of ASGI"})).connect()
    connection.data_received(said + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    await wait_until_async(lambda: line.is_closed)

    head, _, body = line.written.partition(b"\r\n\r\n")
    assert not body
    assert re.search(rb"\r\ncontent-length: [1-9]", head)


async def test_nothing_is_received_while_a_request_waits_behind_the_one_that_is_answered() -> None:
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def answer_in_turn(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await turns.get()
        await answer_path(scope, receive, send)

    line, connection = LineServer(answer_in_turn).connect()
    connection.data_received(b"".join(map(get, ("/0", "/1", "/2"))))
    for number, is_paused in enumerate((True, False, False)):
        turns.put_nowait(None)
        await wait_until_async(lambda number=number: line.written.endswith(b"/%d" % number))
        assert line.is_paused is is_paused


async def test_over_tls_a_client_is_looked_for_while_a_request_waits() -> None:
    """A connection that is not read does not notice that its client has left."""
    line, connection = LineServer(lambda scope, receive, send: asyncio.Event().wait(), request_seconds=0.01).connect()
    connection.is_secure = True
    connection.data_received(get("/0") + get("/1"))
    assert line.is_paused
    await wait_until_async(lambda: not line.is_paused)
    connection.connection_lost(None)
