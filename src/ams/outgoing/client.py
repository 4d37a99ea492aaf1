"""HTTP client for hosts that others configure, through the guard, with limits of bytes and time.

Hosts come from certificates (revocation lists), token issuers (keys) and administrators (services with tokens). The
client uses no proxies and no content codings. The caller decides whether plain HTTP is allowed; it is for signed data.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import httpcore

import ams
from ams.core.urls import has_credentials
from ams.outgoing.address_guard import Address, AddressRefused, Guard, trust

PORTS = {b"http": 80, b"https": 443}  # default ports
MAX_BODY_BYTES = 20 * 1024 * 1024
REQUEST_SECONDS = 8.0
IDLE_SECONDS = 30.0  # unused connections are closed after it
MAX_REQUESTS_PER_HOST = 64  # default of concurrent `ask` requests per host and port
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_READ_BYTES = 64 * 1024

Headers = Sequence[tuple[bytes, bytes]]
Origin = tuple[bytes, bytes, int | None]  # scheme, host and port of a URL


class RequestFailed(Exception):
    """There is no usable answer. The text says why, for a log; the cause is the original error."""


class TimedOut(RequestFailed):
    """There was no complete answer in time."""


class NotReached(RequestFailed):
    """The connection failed, so nothing was sent."""


class AnswerTooLong(RequestFailed):
    """The body is over the limit."""


class _Redirected(RequestFailed):
    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"the answer was {status}")
        self.location = location


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = b"User-Agent", f"ams/{ams.__version__}".encode()


class Response(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes
    headers: Headers = ()


def authority(scheme: bytes, host: bytes, port: int) -> bytes:
    """Return the value of `Host`, with the port only if it is not the default."""
    shown = b"[%b]" % host if b":" in host else host
    return shown if port == PORTS[scheme] else b"%b:%d" % (shown, port)


def new_request(
    method: str, url: httpcore.URL, headers: Headers, body: bytes, *, closes: bool = False
) -> httpcore.Request:
    """Return a request with the common headers, then `headers`; `closes` ends the connection after the answer.

    Of headers with the same name (case-insensitive) only the first is sent, except that `headers` may set `User-Agent`:
    some receivers refuse duplicates, others use the first or the last.
    """
    assert url.port is not None
    agent = next((each for each in headers if each[0].lower() == b"user-agent"), _AGENT)
    common = [(b"Host", authority(url.scheme, url.host, url.port)), agent]
    if body or method != "GET":
        common.append((b"Content-Length", b"%d" % len(body)))
    if closes:
        common.append((b"Connection", b"close"))
    each_once: dict[bytes, tuple[bytes, bytes]] = {}
    for name, value in (*common, *headers):
        each_once.setdefault(name.lower(), (name, value))
    return httpcore.Request(method, url, headers=list(each_once.values()), content=body)


class HttpClient:
    """HTTP/1.1 client that connects through a guard."""

    def __init__(
        self, guard: Guard, tls: ssl.SSLContext | None = None, *, seconds: float = REQUEST_SECONDS,
        connect_seconds: float | None = None, most_bytes: int = MAX_BODY_BYTES, at_once: int = MAX_REQUESTS_PER_HOST,
    ) -> None:  # fmt: skip
        """Make a client.

        `tls` is for https (None: the system's CAs). Limits are per request. `ask` sends at most `at_once` concurrent
        requests to one host and port; others wait, within their own time limit.
        """
        self._guard, self._tls, self._seconds, self._connect_seconds = guard, tls, seconds, connect_seconds
        self._most_bytes, self._at_once = most_bytes, at_once
        self._idle: dict[Origin, list[_Connection]] = {}
        self._slots: dict[Origin, asyncio.Semaphore] = {}
        self.requests = 0
        self.failures = 0

    async def get(self, url: str, headers: Mapping[str, str] = NO_HEADERS, *, redirects: int = 0) -> bytes:
        """Send a GET; return the body of a 200, else raise `RequestFailed`. With `redirects` pass no secret headers."""
        return await self._fetch("GET", url, headers, b"", redirects)

    async def post(self, url: str, body: bytes, media_type: str, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        """Send a POST with these extra headers; return the body of a 200, else raise `RequestFailed`."""
        return await self._fetch("POST", url, {"Content-Type": media_type, **headers}, body, 0)

    async def ask(self, request: httpcore.Request) -> Response:
        """Send an idempotent request. Raises `RequestFailed`, or `NotReached` if nothing was sent.

        The connection is kept alive. If the server has just closed a kept connection, and no part of an answer came,
        the request is sent again on a new one.
        """
        url = request.url
        origin: Origin = (url.scheme, url.host, url.port)
        async with self._limit_request(), self._slots.setdefault(origin, asyncio.Semaphore(self._at_once)):
            kept = self._take(origin)
            if kept is not None:
                try:
                    return await self._exchange(kept, request, origin)
                except (OSError, httpcore.ProtocolError):
                    if kept.was_heard:
                        raise
            try:
                fresh = await self._take_or_connect(url)
            except NotReached as error:
                if kept is None:
                    raise
                raise RequestFailed(f"it ended on a request, and then: {error}") from error
            return await self._exchange(fresh, request, origin)

    async def close(self) -> None:
        """Close all idle connections."""
        for connection in [each for idle in self._idle.values() for each in idle]:
            await connection.aclose()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes them in its next iteration

    async def _fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes, redirects: int) -> bytes:
        said = [("Accept-Encoding", "identity"), *headers.items()]
        encoded = [(name.encode(), value.encode()) for name, value in said]
        async with self._limit_request():
            while True:
                request = new_request(method, _parse_url(url), encoded, body, closes=True)
                connection = await self._connect(request.url)
                try:
                    return (await connection.exchange(request, self._most_bytes, only_good=True)).body
                except _Redirected as error:
                    if not redirects:
                        raise
                    redirects -= 1
                    url = urljoin(url, error.location)
                finally:
                    await connection.aclose()

    @contextlib.asynccontextmanager
    async def _limit_request(self) -> AsyncIterator[None]:
        """Limit the time of a request, count it, and turn all its failures into `RequestFailed`."""
        self.requests += 1
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except (OSError, ValueError, AddressRefused, httpcore.ProtocolError, RequestFailed) as error:
            self.failures += 1
            if isinstance(error, RequestFailed):
                raise
            if isinstance(error, TimeoutError):
                raise TimedOut("it took too long") from error
            raise RequestFailed(str(error) or type(error).__name__) from error

    async def _exchange(self, connection: "_Connection", request: httpcore.Request, origin: Origin) -> Response:
        try:
            response = await connection.exchange(request, self._most_bytes)
        except BaseException:
            await connection.aclose()
            raise
        if connection.rest():
            self._idle.setdefault(origin, []).append(connection)
        return response

    def _take(self, origin: Origin) -> "_Connection | None":
        """Return the most recently used connection that is still open."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.wake():
                return connection
        return None

    async def _take_or_connect(self, url: httpcore.URL) -> "_Connection":
        try:
            async with asyncio.timeout(self._connect_seconds) as limit:
                return await self._connect(url)
        except TimeoutError as error:
            if limit.expired():
                raise NotReached("no connection in time") from error
            raise
        except (OSError, AddressRefused) as error:
            raise NotReached(str(error) or type(error).__name__) from error

    async def _connect(self, url: httpcore.URL) -> "_Connection":
        """Connect to the first permitted address that answers; each attempt gets half of the remaining time."""
        assert url.port is not None
        host, seconds = url.host.decode("latin-1"), self._seconds
        *others, last = await self._guard.addresses(host, url.port)
        for address in others:
            seconds /= 2
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self._connection(address, url.port, host if url.scheme == b"https" else "")
        return await self._connection(last, url.port, host if url.scheme == b"https" else "")

    async def _connection(self, address: Address, port: int, tls_name: str) -> "_Connection":
        if tls_name and self._tls is None:
            self._tls = trust()
        loop = asyncio.get_running_loop()
        reader = _CountingReader(loop=loop)
        transport, protocol = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), str(address), port,
            ssl=self._tls if tls_name else None, server_hostname=tls_name or None,
        )  # fmt: skip
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _parse_url(url: str) -> httpcore.URL:
    if has_credentials(url):
        raise RequestFailed("its URL has a user and password in it, which are not sent")
    parts = urlsplit(url)
    scheme = parts.scheme.encode()
    if scheme not in PORTS or not parts.hostname:
        raise RequestFailed("it is no http or https URL")
    host, port = parts.hostname.encode(), parts.port or PORTS[scheme]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return httpcore.URL(scheme=scheme, host=host, port=port, target=target.encode())


class _CountingReader(asyncio.StreamReader):
    received = 0

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # the loop gives nothing else
        self.received += len(data)
        super().feed_data(data)


class _Connection(httpcore.AsyncNetworkStream):
    """A connection with httpcore's interface, for one request at a time. The caller enforces timeouts."""

    def __init__(self, reader: _CountingReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._read = 0
        self._before = 0  # bytes received before the last request
        self._can_be_kept = False
        self._idle: asyncio.TimerHandle | None = None

    async def exchange(self, request: httpcore.Request, most_bytes: int, *, only_good: bool = False) -> Response:
        """Send a request and return the answer; with `only_good`, raise `RequestFailed` unless it is a 200."""
        self._before = self._reader.received
        # A parser per request: bytes after an answer must not count as the next one.
        http = httpcore.AsyncHTTP11Connection(request.url.origin, self)
        answer = await http.handle_async_request(request)
        if only_good and answer.status != 200:
            location = next((value for name, value in answer.headers if name.lower() == b"location"), b"")
            if location and answer.status in _REDIRECTS:
                raise _Redirected(answer.status, location.decode("latin-1"))
            raise RequestFailed(f"the answer was {answer.status}")
        body = bytearray()
        async for part in answer.aiter_stream():
            body += part
            if len(body) > most_bytes:
                raise AnswerTooLong(f"it has more than {most_bytes} bytes")
        await answer.aclose()
        self._can_be_kept = http.is_idle()
        return Response(answer.status, bytes(body), tuple(answer.headers))

    @property
    def was_heard(self) -> bool:
        return self._reader.received > self._before

    def rest(self) -> bool:
        """Become idle until the next request; close and return False if the connection cannot be reused."""
        if not self._is_clean:
            self._writer.close()
            return False
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._writer.close)
        return True

    def wake(self) -> bool:
        """Leave the idle state; return False if the connection has ended or received unexpected bytes."""
        if self._idle is not None:
            self._idle.cancel()
        if self._is_clean:
            return True
        self._writer.transport.abort()
        return False

    @property
    def _is_clean(self) -> bool:
        is_open = not self._reader.at_eof() and not self._writer.is_closing()
        return self._can_be_kept and is_open and self._reader.received == self._read

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._reader.read(min(max_bytes, _READ_BYTES))
        if self._read == self._before and not data.startswith(b"HTTP/1."[: len(data)]):
            raise httpcore.RemoteProtocolError("illegal status line")  # httpcore would wait for the end of headers
        self._read += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._writer.write(buffer)
        await self._writer.drain()

    async def aclose(self) -> None:
        """Close the connection at once, without reading the rest of an answer."""
        if self._idle is not None:
            self._idle.cancel()
        self._writer.transport.abort()
