"""Streams: TCP and TLS connections for an HTTP client, on the event loop's own transports, and why there is none.

httpcore comes with streams whose TLS is driven from Python. The loop's own cost half of that, and they know at once
when the other side has closed a connection that is idle. Reasons are for those who configured the endpoint: short, on
one line.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Any, cast

import httpcore

MAX_TEXT = 300  # characters of a reason
_TLS = {
    "WRONG_VERSION_NUMBER": "the endpoint does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the endpoint has no TLS 1.2 or newer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the endpoint has no TLS 1.2 or newer",
    "UNEXPECTED_EOF_WHILE_READING": "the endpoint closed the connection",
}


class Unreachable(Exception):
    """There is no connection, or it broke; the text says why."""


@dataclass(slots=True)
class Progress:
    """How far an attempt has come, to say where it ended."""

    step: str = "waiting for others to be done"  # what it is doing, in words that follow `while`


def of_socket(error: OSError) -> str:
    """Return what happened to a connection."""
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


def of_http(error: httpcore.ProtocolError | httpcore.NetworkError, *, heard: bool) -> str:
    """Return why there was no answer, or no whole one; `heard` whether anything of it came."""
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
    """Return a text without line breaks and what cannot be shown, at most so many characters."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())[:most]


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TOGETHER = 8 * 1024
"""Bytes of a request that are sent at once: its head and a small body are one record of TLS and one call."""
_PIECE = 4096  # read at once: others go on between two pieces of a long answer
_HIGH_WATER = 32 * 1024  # bytes that wait to be read before nothing more is received
_RECEIVE_BYTES = 16 * 1024
"""What the kernel keeps of an answer that is not read yet: a server that sends without end fills no memory here, and
what comes at once takes little time to be deciphered."""
_SEND_BYTES = 64 * 1024
"""Written at once: TLS and the transport keep several copies of what the other side has not taken yet."""
_GOODBYE_SECONDS = 1.0  # how long the other side has to answer the end of a TLS connection
_INFO = {"ssl_object": "ssl_object", "client_addr": "sockname", "server_addr": "peername", "socket": "socket"}
"""httpcore's names for what asyncio calls otherwise."""


class TooLong(httpcore.ReadError):
    """More came than was allowed."""


class Stream(httpcore.AsyncNetworkStream):
    """A connection as httpcore wants it, from which only so much is read as `allow` says."""

    def __init__(self, wire: "_Wire") -> None:
        self._wire = wire
        self._progress = Progress()
        self._left = 0
        self._unsent = b""
        self.heard = False  # whether anything came since `begin`

    def begin(self, max_bytes: int, progress: Progress) -> None:
        """Expect a request to be sent, and an answer to it whose beginning has at most so many bytes."""
        self._progress = progress
        self._left = max_bytes
        self.heard = False
        progress.step = "sending the request"

    def allow(self, max_bytes: int) -> None:
        """Allow so many bytes from here on."""
        self._left = max_bytes

    @property
    def is_readable(self) -> bool:
        """Whether something came without a request, or the end."""
        return self._wire.ended or bool(self._wire.received)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what came, empty at the end; raise `TooLong`, or `httpcore.ReadError`. Times are the caller's."""
        if self._left <= 0:
            raise TooLong("The answer is too long")
        await self._send_rest()
        if not self.heard:
            self._progress.step = "waiting for the answer"
        try:
            data = await self._wire.read(min(max_bytes, _PIECE))
        except OSError as error:
            raise httpcore.ReadError(of_socket(error)) from error
        self._left -= len(data)
        self.heard = self.heard or bool(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes, at the latest when something is read; raise `httpcore.WriteError`. Times are the caller's."""
        if len(self._unsent) + len(buffer) < _TOGETHER:
            self._unsent += buffer
            return
        unsent, self._unsent = self._unsent, b""
        try:
            if unsent:
                await self._wire.write(unsent)
            await self._wire.write(buffer)
        except OSError as error:
            raise httpcore.WriteError(of_socket(error)) from error

    async def _send_rest(self) -> None:
        """Send what waits. Whether that succeeds shows in what is read: an answer may have come before."""
        unsent, self._unsent = self._unsent, b""
        if unsent:
            with contextlib.suppress(OSError):
                await self._wire.write(unsent)

    async def aclose(self) -> None:
        """End the connection at once: what is left of an answer is of no use."""
        self._wire.transport.abort()

    def close(self) -> None:
        """End an idle connection in order."""
        self._wire.transport.close()

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks for by its names."""
        if info == "is_readable":
            return self.is_readable
        return self._wire.transport.get_extra_info(_INFO[info]) if info in _INFO else None


async def connected(address: Address, port: int) -> socket.socket:
    """Connect to an address; raise `Unreachable`. How long it may take is the caller's to say."""
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
        raise Unreachable(of_socket(error)) from error


async def unsecured(plain: socket.socket) -> Stream:
    """Speak without TLS. The socket is closed with the stream."""
    _, wire = await asyncio.get_running_loop().create_connection(_Wire, sock=plain)
    return Stream(wire)


async def secured(plain: socket.socket, trust: ssl.SSLContext, host: str) -> Stream:
    """Speak TLS with `host`; raise `Unreachable`. The socket is closed with the stream, or when there is none.

    Nothing is read before TLS is: what a server says first, as an alert or a greeting of another protocol, is an answer
    to it.
    """
    try:
        _, wire = await asyncio.get_running_loop().create_connection(
            _Wire, sock=plain, ssl=trust, server_hostname=host, ssl_shutdown_timeout=_GOODBYE_SECONDS
        )
    except OSError as error:
        raise Unreachable(_of_handshake(error)) from error
    except ValueError as error:
        raise Unreachable(f"TLS: {host} is no host name") from error
    return Stream(wire)


def _of_handshake(error: OSError) -> str:
    said = of_socket(error)
    return said if said.startswith("TLS") else f"TLS: {said[0].lower()}{said[1:]} during the handshake"


class _Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of it
        self.transport.set_write_buffer_limits(_SEND_BYTES)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > _HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self.ended = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._failure = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writer)

    async def read(self, max_bytes: int) -> bytes:
        """Return what came, empty at the end; raise the `OSError` that ended the connection."""
        while not self.received and not self.ended:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
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
            while self._is_full and not self.ended:
                self._writer = asyncio.get_running_loop().create_future()
                await self._writer


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
