"""A listener counts connections from accept on, and limits the share of one address."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.core.urls import client_of
from ams.http.tls import Certificate
from ams.web import listener as module
from ams.web.connection import PORTION_BYTES
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import listen
from tests.support.waiting import wait_until_async

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo(asyncio.Protocol):
    def __init__(self, when_lost: Callable[[], None]) -> None:
        self._when_lost = when_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._when_lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


class World:
    def __init__(self, listener: Listener, sock: socket.socket) -> None:
        self.listener = listener
        self.address = sock.getsockname()
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, source: str = HERE, context: ssl.SSLContext | None = None) -> Streams:
        name = "localhost" if context else None
        made = await asyncio.open_connection(*self.address, local_addr=(source, 0), ssl=context, server_hostname=name)
        self._writers.append(made[1])
        return made

    async def answers(self, client: Streams) -> bool:
        reader, writer = client
        with contextlib.suppress(ConnectionError):
            writer.write(b"x")
            return await reader.read(1) == b"x"
        return False

    def close(self) -> None:
        for each in self._writers:
            each.close()


@contextlib.asynccontextmanager
async def run_listener(limits: ListenerLimits, context: ssl.SSLContext | None = None) -> AsyncIterator[World]:
    sock = socket.create_server((HERE, 0))
    listener = Listener("test", limits, context=context, refusal=REFUSAL)
    listener.start(sock, Echo)
    world = World(listener, sock)
    try:
        yield world
        world.close()
        await wait_until_async(lambda: listener.open_connections == 0)
    finally:
        world.close()  # uvloop waits for open connections when it is closed
        listener.close()
        await listener.wait_closed()
        sock.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.local(str(tmp_path_factory.mktemp("tls")))


@pytest.fixture(scope="module")
def trusting_context(certificate: Certificate) -> ssl.SSLContext:
    """A client's context that trusts the listener's certificate."""
    return ssl.create_default_context(cafile=str(Path(certificate.chain).parent / "ca.pem"))


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_the_system_holds_little_of_an_answer_on_every_connection() -> None:
    with (contextlib.closing(listen(HERE, 0, "port")) as sock, socket.create_connection(sock.getsockname()),
          sock.accept()[0] as connection):  # fmt: skip
        assert connection.getsockopt(socket.IPPROTO_TCP, 25) == PORTION_BYTES  # TCP_NOTSENT_LOWAT


async def test_a_connection_counts_until_it_is_closed() -> None:
    async with run_listener(ListenerLimits(connections=10)) as world:
        for _ in range(3):  # more than the share of one address, in a row
            clients = [await world.connect() for _ in range(5)]
            assert all([await world.answers(each) for each in clients])
            assert world.listener.open_connections == 5
            world.close()
            await wait_until_async(lambda: world.listener.open_connections == 0)


@pytest.mark.parametrize(("limits", "sources", "let_in", "refused"), [
    (ListenerLimits(connections=10), [HERE] * 10 + [ELSEWHERE], [True] * 5 + [False] * 5 + [True], {"address": 5}),
    (ListenerLimits(connections=10, unshared=LOOPBACK), [HERE] * 11, [True] * 10 + [False], {"connections": 1}),
    (ListenerLimits(connections=10, only_from=(ipaddress.ip_network(HERE),)), [HERE, ELSEWHERE], [True, False],
     {"proxy": 1}),
], ids=["an address has as many as it leaves free", "a proxy has all of them", "only proxies are let in"])  # fmt: skip
async def test_connections_are_shared_and_many_refusals_are_one_line_of_the_log(
    limits: ListenerLimits, sources: list[str], let_in: list[bool], refused: dict[str, int]
) -> None:
    with capture_logs() as lines:
        async with run_listener(limits) as world:
            clients = [await world.connect(each) for each in sources]
            assert [await world.answers(each) for each in clients] == let_in
            assert world.listener.refused == refused

    assert [(each["event"], each["listener"], each["why"]) for each in lines] == [
        ("connections.refused", "test", why) for why in refused
    ]


async def test_who_is_refused_reads_why_although_a_request_was_sent() -> None:
    async with run_listener(ListenerLimits(connections=1)) as world:
        assert await world.answers(await world.connect())
        reader, writer = await world.connect(ELSEWHERE)
        writer.write(b"GET / HTTP/1.1\r\n" + b"x" * 1000)
        assert await reader.read() == REFUSAL


def test_limits_that_no_setting_changes() -> None:
    limits = ListenerLimits(connections=1)
    assert (limits.handshakes, limits.handshake_seconds, limits.goodbye_seconds) == (1_000, 10, 30)


async def test_silent_handshakes_are_bounded_and_end(certificate: Certificate, trusting_context: ssl.SSLContext):
    limits = ListenerLimits(connections=100, handshakes=8, handshake_seconds=2.0, goodbye_seconds=0.5)
    async with run_listener(limits, certificate.context) as world:
        silent = [await world.connect() for _ in range(10)]
        await wait_until_async(lambda: world.listener.refused.total() == 6)
        assert world.listener.open_connections == 4

        client = await world.connect(ELSEWHERE, trusting_context)
        assert await world.answers(client)

        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await wait_until_async(lambda: world.listener.failed_handshakes == 4)
        assert (world.listener.open_connections, world.listener.refused) == (1, {"address": 6})
        assert await world.answers(await world.connect(HERE, trusting_context))


async def test_all_handshakes_together_are_bounded_for_a_proxy_too(certificate: Certificate) -> None:
    limits = ListenerLimits(connections=100, handshakes=3, handshake_seconds=60, unshared=LOOPBACK)
    async with run_listener(limits, certificate.context) as world:
        for _ in range(5):
            await world.connect()
        await wait_until_async(lambda: world.listener.refused == {"handshakes": 2})


async def test_a_stop_ends_handshakes_but_no_connection(certificate: Certificate, trusting_context: ssl.SSLContext):
    async with run_listener(ListenerLimits(connections=100), certificate.context) as world:
        client = await world.connect(context=trusting_context)
        await world.connect()
        await wait_until_async(lambda: world.listener.open_connections == 2)
        world.listener.close()
        await world.listener.wait_closed()
        assert world.listener.open_connections == 1
        assert await world.answers(client)


class NoFiles(socket.socket):
    """A socket without a free file descriptor for its next connection."""

    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_a_file_accepting_rests_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.2)
    listener = Listener("test", ListenerLimits(connections=10))
    with contextlib.closing(NoFiles()) as sock:
        sock.bind((HERE, 0))
        sock.listen()
        listener.start(sock, Echo)
        world = World(listener, sock)
        assert await world.answers(await world.connect())
        assert listener.refused == {"files": 1}
        assert sock.asked <= 4  # the failure, the connection, and an empty accept
        world.close()
        listener.close()


@pytest.mark.parametrize(("one", "other", "is_same"), [
    ("192.0.2.1", "192.0.2.2", False), ("192.0.2.1", "::ffff:192.0.2.1", True),
    ("2001:db8::1", "2001:db8::ffff:2", True), ("2001:db8::1", "2001:db8:0:1::1", False),
    ("fe80::1%eth0", "fe80::2%eth1", True),
])  # fmt: skip
def test_a_client_is_an_address_of_ipv4_or_a_network_of_ipv6(one: str, other: str, is_same: bool) -> None:
    assert (client_of(one) == client_of(other)) is is_same
