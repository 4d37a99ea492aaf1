"""HTTP/2 relay: connections of HTTP/2 on a port of HTTP/1.1 go on to a server behind a Unix socket, byte by byte.

The first bytes tell both apart: HTTP/2 begins with a preface that no request of HTTP/1.1 begins with. TLS ends here.
The listener of the port has counted a connection by then, whatever it speaks.

That server sees connections of this process only. So each has a name, which tells where its client is (`peer_name`).
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

import structlog

from ams.web.connection import PORTION_BYTES, Port

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ALPN = ("http/1.1", "h2")  # of what a client can speak the first one is taken: none but gRPC speaks `h2` alone
UNREAD_SECONDS = 10.0  # for one end to read what is left when the other one is closed
_SECURE = "tls"
_SEPARATOR = ","

logger = structlog.get_logger("ams.web")

Http = Callable[[Port, Callable[[], None]], asyncio.Protocol]


class Http2Relay:
    """Tells connections apart, and relays those of HTTP/2. Used from one event loop."""

    def __init__(self, path: str, http: Http, seconds: float) -> None:
        """`path`: the Unix socket; `http` makes HTTP/1.1 connections; one that says nothing for `seconds` is closed."""
        self.path, self.http, self.seconds = path, http, seconds
        self.undecided: set[_Client] = set()  # connections that have not said yet what they speak
        self.relayed: set[_Client] = set()
        self._made = 0

    def connection(self, port: Port, when_lost: Callable[[], None]) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Client(self, port, when_lost)

    def prepare_stop(self) -> None:
        """Close the connections that have not said what they speak; nothing new is accepted by then."""
        for each in list(self.undecided):
            each.transport.abort()

    def close(self) -> None:
        """Close the connections that are relayed still."""
        for each in list(self.relayed):
            each.transport.abort()

    def connect(self, name: str) -> socket.socket:
        """Return a new connection to the server, under this name; raise `OSError`."""
        self._made += 1
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # An abstract name is no file. It is unique; only what follows its last slash is read.
            sock.bind(f"\0ams/{os.getpid()}/{id(self)}/{self._made}/{name}")
            sock.connect(self.path)
        except OSError:
            sock.close()
            raise
        return sock


class _Side(asyncio.Protocol):
    """One end of a relayed connection: what comes is written to the other end, as fast as that is read."""

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
        """Close the other end when it has read what it was sent; it is not waited for long."""
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
        self._held = b""  # what came before the connection goes on
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
        if self._connecting is not None:
            return
        if self._held.startswith(PREFACE):
            self._relay_on()
        elif not PREFACE.startswith(self._held):
            self._serve_here()

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

    def _serve_here(self) -> None:
        self._decide()
        protocol = self._relay.http(self._port, self._when_lost)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(self._held)

    def _relay_on(self) -> None:
        self._decide()
        self._relay.relayed.add(self)
        self.transport.pause_reading()
        address, port = (self.transport.get_extra_info("peername") or ("", 0))[:2]
        name = peer_name(address, port, is_secure=bool(self.transport.get_extra_info("sslcontext")))
        self._connecting = self._loop.create_task(self._connect(name))

    async def _connect(self, name: str) -> None:
        try:
            sock = self._relay.connect(name)
            await self._loop.create_unix_connection(lambda: _Server(self), sock=sock)
        except OSError as error:
            logger.error("relay.failed", reason=error.strerror)
            self.transport.abort()

    def begin(self, server: "_Server") -> None:
        """Pass on what came before the server was there, and all that comes from now on."""
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
        self.other = self._client  # before anything comes: the server speaks first
        self._client.begin(self)


def peer_name(address: str, port: int, *, is_secure: bool) -> str:
    """Return the name under which the connection of a client goes on."""
    return _SEPARATOR.join((_SECURE if is_secure else "", address, str(port)))


def read_peer_name(text: str) -> tuple[str, int, bool]:
    """Return where a client is, and whether it came by TLS, from the name of a connection; nothing for no such name."""
    security, _, rest = text.rpartition("/")[2].partition(_SEPARATOR)
    address, _, port = rest.rpartition(_SEPARATOR)
    return (address, int(port), security == _SECURE) if port.isdigit() else ("", 0, False)
