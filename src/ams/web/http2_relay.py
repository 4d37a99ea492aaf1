"""HTTP/2 relay: forwards HTTP/2 connections on a port of HTTP/1.1 to a server on a Unix socket, byte by byte.

The first bytes tell both apart: no HTTP/1.1 request starts with the preface of HTTP/2. TLS ends here. The listener has
counted a connection before, whatever it speaks.

The server sees only local connections. So each has a name with the client's address (`peer_name`).
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

import structlog

from ams.web.connection import PORTION_BYTES, HttpConnection, Port

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ALPN = ("http/1.1", "h2")  # the first that the client knows is chosen: only gRPC speaks `h2` alone
UNREAD_SECONDS = 10.0  # for one end to read the rest after the other has closed

logger = structlog.get_logger("ams.web")


class Http2Relay:
    """Detects HTTP/2 connections and relays them. Used from one event loop."""

    def __init__(self, path: str, seconds: float) -> None:
        """`path`: the Unix socket; silent connections close after `seconds`."""
        self.path, self.seconds = path, seconds
        self.undecided: set[_Client] = set()  # connections whose first bytes have not arrived
        self.relayed: set[_Client] = set()
        self._made = 0

    def connection(self, port: Port, when_lost: Callable[[], None]) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Client(self, port, when_lost)

    def prepare_stop(self) -> None:
        """Close undecided connections. The caller accepts no new ones by now."""
        for each in list(self.undecided):
            each.transport.abort()

    def close(self) -> None:
        """Close the relayed connections."""
        for each in list(self.relayed):
            each.transport.abort()

    def connect(self, name: str) -> socket.socket:
        """Return a new connection to the server, under this name. Raises `OSError`."""
        self._made += 1
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # An abstract name is not a file. It is unique; only the part after its last slash is parsed.
            sock.bind(f"\0ams/{os.getpid()}/{id(self)}/{self._made}/{name}")
            sock.connect(self.path)
        except OSError:
            sock.close()
            raise
        return sock


class _Side(asyncio.Protocol):
    """One end of a relayed connection: received bytes go to the other end, with back-pressure."""

    transport: asyncio.Transport
    other: "_Side | None" = None  # None: not connected yet, or lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=PORTION_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end when it has read its output, or after a timeout."""
        other, self.other = self.other, None
        if other is None:
            return
        other.other = None
        other.transport.close()
        asyncio.get_running_loop().call_later(UNREAD_SECONDS, other.transport.abort)


class _Client(_Side):
    def __init__(self, relay: Http2Relay, port: Port, when_lost: Callable[[], None]) -> None:
        self._relay, self._port, self._when_lost = relay, port, when_lost
        self._loop = asyncio.get_running_loop()
        self._held = b""  # bytes received before the connection is forwarded
        self._timer: asyncio.TimerHandle
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relay.undecided.add(self)
        self._timer = self._loop.call_later(self._relay.seconds, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._held += data
        is_http2 = self._held.startswith(PREFACE)
        if self._connecting is not None or (not is_http2 and PREFACE.startswith(self._held)):
            return
        self._decide()
        if is_http2:
            self._relay.relayed.add(self)
            self.transport.pause_reading()
            self._connecting = self._loop.create_task(self._connect())
            return
        connection = HttpConnection(self._port, self._when_lost)
        self.transport.set_protocol(connection)
        connection.connection_made(self.transport)
        connection.data_received(self._held)

    def connection_lost(self, exc: Exception | None) -> None:
        self._decide()
        self._relay.relayed.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        super().connection_lost(exc)
        self._when_lost()

    def _decide(self) -> None:
        self._relay.undecided.discard(self)
        self._timer.cancel()

    async def _connect(self) -> None:
        address, port = (self.transport.get_extra_info("peername") or ("", 0))[:2]
        name = peer_name(address, port, is_secure=bool(self.transport.get_extra_info("sslcontext")))
        try:
            sock = self._relay.connect(name)
            await self._loop.create_unix_connection(lambda: _Server(self), sock=sock)
        except OSError as error:
            logger.error("relay.failed", reason=error.strerror)
            self.transport.abort()

    def begin(self, server: "_Server") -> None:
        """Pass on the bytes received so far, and relay from now on."""
        self.other = server
        server.transport.write(self._held)
        self._held = b""
        self.transport.resume_reading()


class _Server(_Side):
    def __init__(self, client: _Client) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._client.transport.is_closing():
            self.transport.abort()
            return
        self.other = self._client  # before any data: the server speaks first
        self._client.begin(self)


def peer_name(address: str, port: int, *, is_secure: bool) -> str:
    """Return the name of a client's relayed connection."""
    return f"{'tls' if is_secure else ''},{address},{port}"


def read_peer_name(text: str) -> tuple[str, int, bool]:
    """Return the client's address and whether it used TLS, from a connection's name; empty for other names."""
    security, _, rest = text.rpartition("/")[2].partition(",")
    address, _, port = rest.rpartition(",")
    return (address, int(port), security == "tls") if port.isdigit() else ("", 0, False)
