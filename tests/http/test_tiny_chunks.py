"""A body in tiny chunks is read a little at a time, and not at all once its request is answered."""

import asyncio
from typing import Any

import pytest

from ams.http.protocol import MAX_PARTS_PER_TURN, SLICE_BYTES, LimitedProtocol
from ams.http.rounds import MOST_BYTES
from tests.support.line import LineServer
from tests.support.served import SERVICE_TOKEN, Served
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

HEAD = b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
KEY = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
SMALL, TINY = b"3\r\nabc\r\n", b"1\r\na\r\n"
PACKET = 2**18
TEXTS = (b"Request body has more framing than data: send larger chunks", b"Request trailer is too large")


class Counted(LimitedProtocol):
    parts = 0
    """Taken of bodies."""

    def _take_body(self, body: bytes) -> None:
        self.parts += 1
        super()._take_body(body)


class World:
    """A connection to an application that reads the body, or answers without it."""

    def __init__(self, *, reads: bool) -> None:
        self.received = 0
        self._reads = reads
        self.line, self.connection = LineServer(self, base=Counted).connect()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while self._reads:
            event = await receive()
            self.received += len(event.get("body", b""))
            if not event.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def turns(self) -> list[int]:
        """Return how many parts are taken in each turn of the event loop, until there are no more."""
        found, before = [], self.connection.parts
        while self.connection._held:
            await asyncio.sleep(0)
            found.append(self.connection.parts - before)
            before = self.connection.parts
        return found


async def test_a_packet_of_many_chunks_is_read_in_many_turns() -> None:
    world = World(reads=True)
    chunks = PACKET // len(SMALL)
    most = MAX_PARTS_PER_TURN + SLICE_BYTES // len(SMALL)

    world.connection.data_received(HEAD + b"\r\n" + SMALL * chunks + b"0\r\n\r\n")

    assert 0 < world.connection.parts <= most
    assert world.line.is_paused
    await world.turns()
    await wait_until_async(lambda: world.line.written.endswith(b"ok"))
    assert (world.received, world.connection.parts) == (3 * chunks, chunks)
    assert not world.line.is_paused
    world.connection.connection_lost(None)


async def test_a_body_whose_length_was_said_is_not_cut() -> None:
    world = World(reads=True)
    head = HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % PACKET)

    world.connection.data_received(head + b"\r\n" + b"x" * (PACKET - 1))
    world.connection.data_received(b"x" + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    assert world.connection.parts <= 3
    await wait_until_async(lambda: world.line.written.count(b"ok") == 2)
    world.connection.connection_lost(None)


async def test_what_follows_a_sized_body_is_read_a_little_at_a_time_too() -> None:
    world = World(reads=True)
    first = HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: 5000") + b"\r\n" + b"x" * 5000

    world.connection.data_received(first + HEAD + b"\r\n" + SMALL * (PACKET // len(SMALL)))

    assert world.connection.parts <= MAX_PARTS_PER_TURN + SLICE_BYTES
    world.connection.connection_lost(None)


async def test_a_body_in_chunks_is_not_read_on_when_its_request_is_answered() -> None:
    world = World(reads=False)
    world.connection.data_received(HEAD + b"\r\n" + SMALL * (PACKET // len(SMALL)))
    await wait_until_async(lambda: world.line.written.endswith(b"ok"))
    assert b"\r\nconnection: close\r\n" in world.line.written
    read = world.connection.parts

    for _ in range(3):
        world.connection.data_received(SMALL * (PACKET // len(SMALL)))
        assert await world.turns() == []

    assert world.connection.parts == read
    world.connection.connection_lost(None)


async def test_who_sends_tiny_chunks_while_much_waits_is_refused() -> None:
    world = World(reads=True)
    assert world.connection.rounds.hold(MOST_BYTES)

    world.connection.data_received(HEAD + b"\r\n" + SMALL * (PACKET // len(SMALL)))

    assert world.line.written.startswith(b"HTTP/1.1 503")
    world.connection.connection_lost(None)


@pytest.mark.parametrize("is_let_in", [True, False])
@pytest.mark.parametrize(
    "body",
    [TINY * 40_000, b"1;%b\r\na\r\n" % (b"x" * 60_000), b"".join(b"1;%b\r\na\r\n" % (b"x" * 900) for _ in range(90))],
)
def test_more_framing_than_data_is_refused(service: Served, body: bytes, is_let_in: bool) -> None:
    """Its sender reads the answer, though more was sent."""
    with service.connect(PATIENCE_SECONDS) as client:
        client.sendall(HEAD + (KEY if is_let_in else b"x-api-key: wrong\r\n") + b"\r\n" + body)
        answer = b""
        while part := client.recv(65536):
            answer += part

    assert b"\r\nconnection: close\r\n" in answer
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 404"))
    assert not answer.startswith(b"HTTP/1.1 400") or any(text in answer for text in TEXTS)
