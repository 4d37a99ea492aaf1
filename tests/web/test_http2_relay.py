"""Connections of HTTP/2 are relayed to a server on a Unix socket, and all others are served normally."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.http.operations import Operations, small_server
from ams.http.tls import Certificate
from ams.web.http2_relay import ALPN, PREFACE, Http2Relay, peer_name, read_peer_name
from ams.web.listener import ListenerLimits
from ams.web.server import HttpServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

HELLO = b"what the server says first"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Echo(asyncio.Protocol):
    """The server behind the port: it greets, and then echoes."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        name = transport.get_extra_info("peername")
        self._world.names.append(read_peer_name(name.decode() if isinstance(name, bytes) else name))
        self._world.servers.add(self)
        self.transport.write(HELLO)
        if not self._world.reads:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._world.servers.discard(self)


@dataclass
class World:
    address: tuple[str, int]
    relay: Http2Relay
    front: HttpServer
    context: ssl.SSLContext | None
    reads: bool = True  # whether the server reads
    names: list[tuple[str, int, bool]] = field(default_factory=list)  # of connections, as the server sees them
    servers: set[Echo] = field(default_factory=set)
    clients: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, *protocols: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls: dict[str, Any] = {"ssl": self.context, "server_hostname": "localhost"} if self.context else {}
        if self.context is not None and protocols:
            self.context.set_alpn_protocols(list(protocols))
        made = await asyncio.open_connection(*self.address, **tls)
        self.clients.append(made[1])
        return made

    async def close(self) -> None:
        for client in self.clients:
            client.transport.abort()
            with contextlib.suppress(OSError):
                await client.wait_closed()
        for server in self.servers:
            server.transport.abort()
        await wait_until_async(lambda: not (self.servers or self.relay.relayed or self.front.port.connections))


@contextlib.asynccontextmanager
async def run_relay(folder: Path, *, tls: bool = False, connections: int = 20) -> AsyncIterator[World]:
    certificate = Certificate.local(str(folder)) if tls else None
    path = str(folder / "server")
    relay = Http2Relay(path, PATIENCE_SECONDS)
    port = small_server(Operations(lambda: None, lambda: b""), "test").port
    limits = ListenerLimits(connections=connections)
    context = certificate.context_for(ALPN) if certificate else None
    front = HttpServer("test", port, limits, context=context, connection=relay.connection)
    client = ssl.create_default_context(cafile=str(folder / "ca.pem")) if tls else None
    with socket.create_server(("127.0.0.1", 0)) as sock:
        world = World(sock.getsockname(), relay, front, client)
        server = await asyncio.get_running_loop().create_unix_server(lambda: Echo(world), path)
        front.start(sock)
        try:
            yield world
        finally:
            relay.prepare_stop()
            await front.stop(0)
            relay.close()
            server.close()
            await world.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_bytes_of_http_2_go_on_as_they_came_and_who_sent_them_is_known(tmp_path: Path, tls: bool) -> None:
    async with run_relay(tmp_path, tls=tls) as world:
        reader, writer = await world.connect("h2")
        writer.write(PREFACE[:5])
        await writer.drain()
        writer.write(PREFACE[5:] + b"x" * 1_000_000)
        assert await reader.readexactly(len(HELLO)) == HELLO
        assert await reader.readexactly(len(PREFACE) + 1_000_000) == PREFACE + b"x" * 1_000_000
        assert world.names == [(*writer.get_extra_info("sockname"), tls)]
        writer.close()
        await wait_until_async(lambda: not world.relay.relayed and not world.front.listener.open_connections)


@pytest.mark.parametrize(("tls", "protocols"), [(False, ()), (True, ()), (True, ("h2", "http/1.1"))])
async def test_what_can_speak_http_1_is_served_here(tmp_path: Path, tls: bool, protocols: tuple[str, ...]) -> None:
    async with run_relay(tmp_path, tls=tls) as world:
        reader, writer = await world.connect(*protocols)
        for piece in (HEALTH[:1], HEALTH[1:], HEALTH):
            writer.write(piece)
            await writer.drain()
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(3)
        assert not world.names


async def test_what_the_server_does_not_read_is_not_taken_from_the_client(tmp_path: Path) -> None:
    async with run_relay(tmp_path) as world:
        world.reads = False
        reader, writer = await world.connect()
        writer.write(PREFACE)
        assert await reader.readexactly(len(HELLO)) == HELLO
        writer.write(b"x" * 64 * 2**20)
        await wait_until_async(lambda: not any(each.transport.is_reading() for each in world.relay.relayed))
        assert writer.transport.get_write_buffer_size() > 32 * 2**20  # the system holds some for each socket
        for server in world.servers:
            server.transport.resume_reading()
        await reader.readexactly(len(PREFACE) + 64 * 2**20)


async def test_an_end_on_one_side_is_one_on_the_other(tmp_path: Path) -> None:
    async with run_relay(tmp_path) as world:
        reader, writer = await world.connect()
        writer.write(PREFACE)
        assert await reader.readexactly(len(HELLO + PREFACE)) == HELLO + PREFACE
        [server] = world.servers
        server.transport.write(b"the last")
        server.transport.close()
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b"the last"
        _, writer = await world.connect()
        writer.write(PREFACE)
        await wait_until_async(lambda: bool(world.servers))
        writer.write_eof()
        await wait_until_async(lambda: not world.servers and not world.relay.relayed)


async def test_a_silent_connection_ends_in_time_and_at_a_stop(tmp_path: Path) -> None:
    async with run_relay(tmp_path) as world:
        world.relay.seconds = 0
        reader, _ = await world.connect()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
        world.relay.seconds = PATIENCE_SECONDS
        reader, writer = await world.connect()
        await wait_until_async(lambda: bool(world.relay.undecided))
        writer.write(b"PRI")
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""


async def test_a_server_that_is_not_there_ends_the_connection(tmp_path: Path) -> None:
    async with run_relay(tmp_path) as world:
        world.relay.path = str(tmp_path / "nothing")
        reader, writer = await world.connect()
        writer.write(PREFACE)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""


async def test_an_address_gets_its_share_of_connections_whatever_they_speak(tmp_path: Path) -> None:
    async with run_relay(tmp_path, connections=4) as world:
        clients = [await world.connect() for _ in range(3)]
        for _, writer in clients:
            writer.write(PREFACE)
        assert await clients[0][0].readexactly(len(HELLO)) == HELLO
        assert (await clients[2][0].read()).startswith(b"HTTP/1.1 503 ")
        assert world.front.listener.refused == {"address": 1}


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.booleans())
def test_a_name_tells_where_a_client_is(address: str, port: int, is_secure: bool) -> None:
    name = peer_name(address, port, is_secure=is_secure)
    assert read_peer_name(f"unix-abstract:ams/1/2/3/{name}") == (address, port, is_secure)


@pytest.mark.parametrize("text", ["", "unix:", "ipv4:127.0.0.1:80", "unix:/a/b"])
def test_another_name_tells_nothing(text: str) -> None:
    assert read_peer_name(text) == ("", 0, False)
