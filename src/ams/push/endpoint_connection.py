"""HTTP/1.1 connections to endpoints, at addresses that the guard permits. They read short answers only.

No proxies, no redirects, no decompression. Timeouts are the caller's.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import httpcore

from ams.outgoing.address_guard import Address, Guard
from ams.outgoing.client import Headers, new_request

MAX_TEXT = 300  # characters of a reason
_TLS = {
    "WRONG_VERSION_NUMBER": "the endpoint does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the endpoint has no TLS 1.2 or newer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the endpoint has no TLS 1.2 or newer",
    "UNEXPECTED_EOF_WHILE_READING": "the endpoint closed the connection",
}

_COALESCED_BYTES = 8 * 1024  # a smaller request is sent in one call and one TLS record
_READ_BYTES = 4096  # per read: other tasks run between two reads of a long answer
_HIGH_WATER_BYTES = 32 * 1024  # unread bytes above which receiving pauses
_RECEIVE_BYTES = 16 * 1024
"""Kernel receive buffer: bounds the memory of an endless answer, and the time to decrypt what arrives at once."""
_SEND_BYTES = 64 * 1024  # per write: TLS and the transport keep several copies of it
_GOODBYE_SECONDS = 1.0  # for the peer to answer the shutdown of TLS
MAX_HEAD = 16 * 1024  # bytes of the head of an answer, with all the heads of status 1xx before it
MAX_BODY = 64 * 1024  # bytes of its body, as sent: more than any answer to a delivery needs
TLS_GAP_SECONDS = 0.002
"""Gap between two TLS handshakes, which take a millisecond of CPU each. Without it, other tasks would wait for all
handshakes of endpoints that come back together."""
Place = tuple[str, int, bool]  # host, port, and whether connections are plain
_LOCALHOST = ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")


class Unreachable(Exception):
    """The connection failed or broke; the text says why."""


@dataclass(slots=True)
class AttemptProgress:
    """Present step of an attempt, for the text of a timeout."""

    step: str = "waiting for others to be done"  # text that follows `while`


def socket_error_text(error: OSError) -> str:
    """Return a text for an error of a connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "failed"
        return f"TLS: {_TLS.get(reason) or reason.lower().replace('_', ' ')}"
    if isinstance(error, ConnectionRefusedError):
        return "The connection was refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "The connection was reset"
    if isinstance(error, ConnectionAbortedError):
        return "The connection was closed"
    return error.strerror or str(error) or type(error).__name__


def _http_error_text(error: httpcore.ProtocolError | httpcore.NetworkError, *, heard: bool) -> str:
    said = one_line(str(error))
    if isinstance(error, httpcore.LocalProtocolError):
        return f"The request cannot be sent: {said}"
    if isinstance(error, httpcore.NetworkError):
        return said
    if "without sending" in said:  # a response, or a complete message body
        return f"The connection was closed {'before the answer was whole' if heard else 'without an answer'}"
    if "_SWITCH_" in said:
        return "The endpoint wants to speak another protocol"
    return f"The answer is not HTTP/1.1: {said}"[:MAX_TEXT]


def one_line(text: str, most: int = MAX_TEXT) -> str:
    """Return a text without line breaks and unprintable characters, at most `most` characters."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())[:most]


async def connect_socket(address: Address, port: int) -> socket.socket:
    """Connect to an address. Raises `Unreachable`. The caller sets a timeout."""
    try:
        with contextlib.ExitStack() as made:
            family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
            plain = made.enter_context(socket.socket(family))
            plain.setblocking(False)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(plain, (str(address), port))
            made.pop_all()
            return plain
    except OSError as error:
        raise Unreachable(socket_error_text(error)) from error


async def start_tls(plain: socket.socket, trust: ssl.SSLContext, host: str) -> "_Wire":
    """Start TLS with `host`. Raises `Unreachable`. The socket is closed with the wire, or on failure."""
    try:
        _, wire = await asyncio.get_running_loop().create_connection(
            _Wire, sock=plain, ssl=trust, server_hostname=host, ssl_shutdown_timeout=_GOODBYE_SECONDS
        )
    except OSError as error:
        said = socket_error_text(error)
        reason = said if said.startswith("TLS") else f"TLS: {said[0].lower()}{said[1:]} during the handshake"
        raise Unreachable(reason) from error
    except ValueError as error:
        raise Unreachable(f"TLS: {host} is no host name") from error
    return wire


class _Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.ended = False
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of it
        self.transport.set_write_buffer_limits(_SEND_BYTES)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > _HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> None:
        self.ended = True
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._failure = exc
        self._arrived.set()
        self._has_room.set()

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    async def read(self, max_bytes: int) -> bytes:
        """Return received bytes, empty at the end. Raises the `OSError` that ended the connection."""
        while not self.received and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()
        if not self.received and self._failure is not None:
            raise self._failure
        data = bytes(self.received[:max_bytes])
        del self.received[:max_bytes]
        if self._is_paused and not self.received:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        pieces = memoryview(data)
        for begin in range(0, len(data), _SEND_BYTES):
            if self.ended:
                raise self._failure or ConnectionResetError()
            self.transport.write(pieces[begin : begin + _SEND_BYTES])
            await self._has_room.wait()


class Endpoint(NamedTuple):
    """A parsed URL."""

    host: str
    port: int
    target: str = ""  # path and query: endpoints of one host may have different owners
    is_plain: bool = False  # without TLS, at an address of this machine

    @property
    def place(self) -> Place:
        """Key of its connections, which endpoints of the same host and port share."""
        return self.host, self.port, self.is_plain


class Reply(NamedTuple):
    """Answer of an endpoint."""

    status: int
    headers: Headers
    body: bytes  # the beginning of the body
    cut: str  # why the body is incomplete; empty: it is complete


class EndpointConnection(httpcore.AsyncNetworkStream):
    """A connection to one endpoint, for one request at a time. httpcore reads and writes through it."""

    def __init__(self, endpoint: Endpoint, wire: _Wire) -> None:
        self.endpoint, self._wire = endpoint, wire
        self.idle_since = 0.0  # loop time; for the table that keeps it
        self.was_heard = False  # True if a part of the last answer arrived
        self._progress = AttemptProgress()
        self._left = 0  # bytes that may still be read
        self._unsent = b""
        self._can_be_kept = False

    async def ask(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes,
        *,
        keep: int,
        progress: AttemptProgress,
        closes: bool = False,
    ) -> Reply:
        """Send a request; return the answer with at most `keep` bytes of its body. Raises `Unreachable`."""
        host, port, _, is_plain = self.endpoint
        scheme = b"http" if is_plain else b"https"
        url = httpcore.URL(scheme=scheme, host=host.encode(), port=port, target=target.encode())
        request = new_request(method, url, headers, body, closes=closes)
        self._progress, self._left = progress, MAX_HEAD
        self.was_heard = self._can_be_kept = False
        progress.step = "sending the request"
        # A parser per request: bytes after an answer must not count as the next one.
        http = httpcore.AsyncHTTP11Connection(url.origin, self)
        try:
            answer = await http.handle_async_request(request)
        except (httpcore.ProtocolError, httpcore.NetworkError) as error:
            raise Unreachable(_http_error_text(error, heard=self.was_heard)) from error
        progress.step = "reading the answer"
        self._left = MAX_BODY
        kept, cut = bytearray(), ""
        try:
            async for part in answer.aiter_stream():
                if len(kept) < keep:
                    kept += part[: keep - len(kept)]
        except (httpcore.ProtocolError, httpcore.NetworkError) as error:
            cut = _http_error_text(error, heard=self.was_heard)
        finally:
            await answer.aclose()
        self._can_be_kept = http.is_idle()
        return Reply(answer.status, answer.headers, bytes(kept), cut)

    @property
    def is_kept(self) -> bool:
        """True if the connection can be reused: no bytes, nor the end, arrived without a request."""
        return self._can_be_kept and not (self._wire.ended or self._wire.received)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes, empty at the end. Raises `httpcore.ReadError`. `timeout` is ignored."""
        if self._left <= 0:
            raise httpcore.ReadError("The answer is too long")
        unsent, self._unsent = self._unsent, b""
        if unsent:
            with contextlib.suppress(OSError):  # an answer may have come before: the read shows it
                await self._wire.write(unsent)
        if not self.was_heard:
            self._progress.step = "waiting for the answer"
        try:
            data = await self._wire.read(min(max_bytes, _READ_BYTES))
        except OSError as error:
            raise httpcore.ReadError(socket_error_text(error)) from error
        self._left -= len(data)
        self.was_heard = self.was_heard or bool(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes, at the latest before the next read. Raises `httpcore.WriteError`. `timeout` is ignored."""
        if len(self._unsent) + len(buffer) < _COALESCED_BYTES:
            self._unsent += buffer
            return
        unsent, self._unsent = self._unsent, b""
        try:
            await self._wire.write(unsent)
            await self._wire.write(buffer)
        except OSError as error:
            raise httpcore.WriteError(socket_error_text(error)) from error

    async def aclose(self) -> None:
        """Abort the connection; the rest of an answer is not read."""
        self._wire.transport.abort()

    def close(self) -> None:
        """Close it while it is idle."""
        self._wire.transport.close()


class Connector:
    """Makes connections through a guard, with certificates checked for the name that was configured."""

    def __init__(self, guard: Guard, trust: ssl.SSLContext) -> None:
        self._guard, self._trust = guard, trust
        self._next_tls = 0.0  # loop time

    async def connect(self, endpoint: Endpoint, progress: AttemptProgress, until: float) -> EndpointConnection:
        """Connect to the first permitted address that answers. Raises `AddressRefused` or `Unreachable`.

        The addresses share the time until `until` (loop time): a silent one leaves half of it for the next.
        """
        progress.step = f"looking up {endpoint.host}"
        addresses = await self._addresses(endpoint)
        progress.step = "connecting"
        plain = await _connect_first(addresses, endpoint.port, until)
        if endpoint.is_plain:
            _, wire = await asyncio.get_running_loop().create_connection(_Wire, sock=plain)
            return EndpointConnection(endpoint, wire)
        progress.step = "agreeing on TLS"
        # Turns are moments in time, not a lock: a slow connection delays no other one.
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_tls)
        self._next_tls = turn + TLS_GAP_SECONDS
        if turn > now:
            try:
                await asyncio.sleep(turn - now)
            except BaseException:
                plain.close()
                raise
        return EndpointConnection(endpoint, await start_tls(plain, self._trust, endpoint.host))

    async def _addresses(self, endpoint: Endpoint) -> Sequence[Address]:
        if endpoint.is_plain:  # no DNS: the name must not lead elsewhere
            return _LOCALHOST if endpoint.host == "localhost" else [ipaddress.ip_address(endpoint.host)]
        try:
            return await self._guard.addresses(endpoint.host, endpoint.port)
        except OSError as error:
            raise Unreachable(f"{endpoint.host} has no address: {error.strerror or error}") from error
        except UnicodeError as error:  # not a name, such as an empty label
            raise Unreachable(f"{endpoint.host} has no address: it is no host name") from error


async def _connect_first(addresses: Sequence[Address], port: int, until: float) -> socket.socket:
    loop = asyncio.get_running_loop()
    *others, last = addresses
    for address in others:
        try:
            async with asyncio.timeout((until - loop.time()) / 2):
                return await connect_socket(address, port)
        except (TimeoutError, Unreachable):
            continue
    return await connect_socket(last, port)
