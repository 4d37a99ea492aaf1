"""Connecting: HTTP/1.1 connections to endpoints, at addresses the guard permits, that read brief answers only.

They know no proxies, follow no redirects, and leave bodies compressed as they are. Times are the caller's.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple

import httpcore

from ams.outgoing.client import Headers, new_request
from ams.outgoing.guard import Address, Guard
from ams.push.streams import Progress, Stream, Unreachable, connected, of_http, secured, unsecured

MAX_HEAD = 16 * 1024  # bytes of the head of an answer, with all the heads of status 1xx before it
MAX_BODY = 64 * 1024
"""Bytes of its body, as sent. More than any answer to a delivery needs; what is read of it costs others time."""

TLS_GAP_SECONDS = 0.002
"""Between two beginnings of TLS, which take the processor a millisecond each. Many connections are made at once when
many endpoints come back, or time out, together; without a gap the others would wait for all of them."""


Place = tuple[str, int, bool]  # host, port, and whether connections are plain


_LOCALHOST = ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")


class Endpoint(NamedTuple):
    """What is asked, and where connections to it go."""

    host: str
    port: int
    target: str = ""  # Path and query: an endpoint is a whole URL. What else is at its host may have another owner.
    is_plain: bool = False  # without TLS, at an address of this machine

    @property
    def place(self) -> "Place":
        """Where connections to it go; others may be there too."""
        return self.host, self.port, self.is_plain

    @property
    def scheme(self) -> bytes:
        """Of its URL."""
        return b"http" if self.is_plain else b"https"


class Reply(NamedTuple):
    """What an endpoint said."""

    status: int
    headers: Headers
    body: bytes  # the beginning, as much as was to be kept
    cut: str  # why the body is not whole; empty: it is


class Connection:
    """A connection to one endpoint, for one request at a time."""

    def __init__(self, endpoint: Endpoint, stream: Stream) -> None:
        self.endpoint = endpoint
        self.idle_since = 0.0  # loop time; for the table that keeps it
        self._stream = stream
        self._origin = httpcore.Origin(endpoint.scheme, endpoint.host.encode(), endpoint.port)
        self._http = httpcore.AsyncHTTP11Connection(self._origin, stream)

    async def ask(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes,
        *,
        keep: int,
        progress: Progress,
        closes: bool = False,
    ) -> Reply:
        """Send a request and return the answer with the first `keep` bytes of its body; raise `Unreachable`.

        `closes` says that there will be no other one.
        """
        url = httpcore.URL(
            scheme=self._origin.scheme, host=self._origin.host, port=self._origin.port, target=target.encode()
        )
        request = new_request(method, url, headers, body, closes=closes)
        self._stream.begin(MAX_HEAD, progress)
        try:
            answer = await self._http.handle_async_request(request)
        except (httpcore.ProtocolError, httpcore.NetworkError) as error:
            raise Unreachable(of_http(error, heard=self.was_heard)) from error
        progress.step = "reading the answer"
        self._stream.allow(MAX_BODY)
        kept = bytearray()
        cut = ""
        try:
            async for part in answer.aiter_stream():
                if len(kept) < keep:
                    kept += part[: keep - len(kept)]
        except (httpcore.ProtocolError, httpcore.NetworkError) as error:
            cut = of_http(error, heard=self.was_heard)
        finally:
            await answer.aclose()
        return Reply(answer.status, answer.headers, bytes(kept), cut)

    @property
    def is_kept(self) -> bool:
        """Whether it can be asked again."""
        return self._http.is_idle() and not self._stream.is_readable

    @property
    def was_heard(self) -> bool:
        """Whether anything of the last answer came."""
        return self._stream.heard

    def close(self) -> None:
        """End it in order."""
        self._stream.close()

    async def abort(self) -> None:
        """End it at once."""
        await self._stream.aclose()


class Connector:
    """Makes connections through a guard, with certificates checked for the name that was configured."""

    def __init__(self, guard: Guard, trust: ssl.SSLContext) -> None:
        self._guard = guard
        self._trust = trust
        self._next_tls = 0.0  # loop time

    async def connect(self, endpoint: Endpoint, progress: Progress, until: float) -> Connection:
        """Connect to one of the permitted addresses, the first that answers.

        The time `until` then (loop time) is shared out to the addresses: one that swallows everything leaves some for
        the next. Raises `Refused` or `Unreachable`.
        """
        progress.step = f"looking up {endpoint.host}"
        addresses = await self._addresses(endpoint)
        progress.step = "connecting"
        plain = await _first(addresses, endpoint.port, until)
        if endpoint.is_plain:
            return Connection(endpoint, await unsecured(plain))
        progress.step = "agreeing on TLS"
        try:
            await self._turn()
        except BaseException:
            plain.close()
            raise
        return Connection(endpoint, await secured(plain, self._trust, endpoint.host))

    async def _turn(self) -> None:
        """Wait until TLS may begin. A turn is a moment in time: no connection can hold it and keep it from others."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_tls)
        self._next_tls = turn + TLS_GAP_SECONDS
        if turn > now:
            await asyncio.sleep(turn - now)

    async def _addresses(self, endpoint: Endpoint) -> Sequence[Address]:
        if endpoint.is_plain:  # nobody is asked for a name: it is not to lead elsewhere
            return _LOCALHOST if endpoint.host == "localhost" else [ipaddress.ip_address(endpoint.host)]
        try:
            return await self._guard.addresses(endpoint.host, endpoint.port)
        except OSError as error:
            raise Unreachable(f"{endpoint.host} has no address: {error.strerror or error}") from error
        except UnicodeError as error:  # what can be no name, as an empty label
            raise Unreachable(f"{endpoint.host} has no address: it is no host name") from error


async def _first(addresses: Sequence[Address], port: int, until: float) -> socket.socket:
    loop = asyncio.get_running_loop()
    *others, last = addresses
    for address in others:
        try:
            async with asyncio.timeout((until - loop.time()) / 2):
                return await connected(address, port)
        except (TimeoutError, Unreachable):
            continue
    return await connected(last, port)
