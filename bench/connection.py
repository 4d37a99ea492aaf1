"""One HTTP/1.1 keep-alive connection for measuring: whole requests go out ready-made, answers are barely looked at.

A general client library would cost more than the service under test and hide what is measured. So this one supports
only what our servers send: a status line, a `content-length` or chunks, and a body.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

Pieces = Sequence[bytes]
"""A request as it goes out, in pieces, so that requests may share their bodies."""
CONNECT_SECONDS = 30.0
LOOPBACK = "127.0.0.1"
"""Address of all servers; a lookup of `localhost` for every connection would be measured too."""
CLOSED = 0
"""The status of a request whose connection ended before the answer."""


_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Response(NamedTuple):
    """Answer to a request; the body is empty unless the connection keeps bodies."""

    status: int
    body: bytes = b""
    size: int = 0
    """Bytes of the body, whether kept or not."""
    retry_after: bool = False
    """True if the answer has a Retry-After header."""


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Address":
        """Read `http://HOST:PORT` or `https://HOST:PORT`."""
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{url} names no host and port")
        return cls(parts.hostname, parts.port)


class Connection(asyncio.Protocol):
    """A connection with at most one request on its way; `answered` is called with each answer."""

    answered: Callable[[Response], None]

    def __init__(self) -> None:
        self.keep_bodies = True
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._tail: bytes | None = None
        """The last bytes of an answer in chunks; None for any other."""
        self._answer = Response(CLOSED)
        self._waiting = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of it

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._waiting:
            self._finish(Response(CLOSED))

    def send(self, request: Pieces) -> None:
        """Send one whole request; the answer comes to `answered`, also when the connection ends first."""
        assert self._transport is not None
        self._waiting = True
        self._transport.writelines(request)

    def close(self) -> None:
        self._waiting = False
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._tail is not None:
            self._take_chunks(data)
            return
        if self._missing:
            self._take_body(data)
            return
        head = self._head + data if self._head else data
        end = head.find(b"\r\n\r\n")
        if end < 0:
            self._head = head
            return
        self._head = b""
        self._take_head(head[:end].lower())
        if self._tail is None:
            self._take_body(head[end + 4 :])
        else:
            self._take_chunks(head[end + 4 :])

    def _take_head(self, head: bytes) -> None:
        place = head.find(b"content-length:")
        stop = head.find(b"\r\n", place)
        self._missing = int(head[place + 15 : stop if stop >= 0 else None]) if place >= 0 else 0
        self._tail = b"" if b"\r\ntransfer-encoding: chunked" in head else None
        self._answer = Response(int(head[9:12]), b"", self._missing, b"\r\nretry-after:" in head)

    def _take_chunks(self, data: bytes) -> None:
        """Count chunks, framing included, until the last one; their bodies are not kept."""
        assert self._tail is not None
        self._answer = self._answer._replace(size=self._answer.size + len(data))
        self._tail = (self._tail + data[-len(_LAST_CHUNK) :])[-len(_LAST_CHUNK) :]
        if self._tail == _LAST_CHUNK:
            self._tail = None
            self._finish(self._answer)

    def _take_body(self, data: bytes) -> None:
        self._missing -= len(data)
        if self.keep_bodies:
            self._parts.append(data)
        if self._missing > 0:
            return
        answer = self._answer
        if self.keep_bodies:
            answer = answer._replace(body=b"".join(self._parts))
            self._parts.clear()
        self._finish(answer)

    def _finish(self, answer: Response) -> None:
        self._waiting = False
        self.answered(answer)


class SerialClient:
    """Sends one request at a time and waits for its answer; for preparations and others that need not be fast."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._coming: asyncio.Future[Response] | None = None
        connection.answered = self._on_answer

    async def ask(self, request: Pieces) -> Response:
        self._coming = asyncio.get_running_loop().create_future()
        self._connection.send(request)
        return await self._coming

    def close(self) -> None:
        self._connection.close()

    def _on_answer(self, answer: Response) -> None:
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(answer)


async def connect(address: Address, tls: ssl.SSLContext | None = None) -> Connection:
    """Open a connection; raises `OSError` or `TimeoutError` when there is no answer."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_SECONDS):
        _, connection = await loop.create_connection(
            Connection, LOOPBACK, address.port, ssl=tls, server_hostname=address.host if tls else None
        )
    return connection


def request(method: str, path: str, token: str, body: bytes = b"", **headers: str) -> tuple[bytes, ...]:
    """Return the pieces of a request to the API; the body stays a piece of its own, so that many may share it.

    A token with dots is an issuer's and goes as a bearer token. `headers` are more of them, with underscores for
    dashes.
    """
    login = f"authorization: Bearer {token}" if "." in token else f"x-api-key: {token}"
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{login}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    )
    return (head.encode(), body) if body else (head.encode(),)
