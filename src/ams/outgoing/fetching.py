"""Fetching: small files and answers of others by HTTP, from addresses that the guard permits.

Certificates say where their lists are, and issuers of tokens where their keys are, so that whoever makes one names a
host that this service connects to. No redirects are followed, no proxies known, and bodies have a limit. Whether plain
HTTP is fine is the caller's to say: it is for what is signed.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpcore

from ams.outgoing.guard import Address, Guard, Refused, trust
from ams.outgoing.requests import PORTS, Headers, new_request

MOST_BYTES = 20 * 1024 * 1024
"""Of a file."""
SECONDS = 8.0
"""For all of one fetch; several who want the same file wait for one."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_PIECE = 64 * 1024
_PLAIN = (b"Accept-Encoding", b"identity")
"""Bodies are read as they come."""


class NotFetched(Exception):
    """There is no such file to be had; the text says why, for a log."""


class TooMuch(NotFetched):
    """It is longer than `MOST_BYTES`."""


class Fetcher:
    """Fetches through a guard."""

    def __init__(
        self,
        guard: Guard,
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` is what https is trusted by; without it the system's CAs."""
        self._guard = guard
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._tls = tls
        self.fetches = 0
        self.failures = 0

    async def get(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        """Return what is at a URL, asked for with these headers besides; raise `NotFetched`."""
        return await self._ask("GET", url, _encoded(headers), b"")

    async def post(self, url: str, body: bytes, media_type: str, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        """Return the answer to a body, sent with these headers besides; raise `NotFetched`."""
        return await self._ask("POST", url, _encoded({"Content-Type": media_type, **headers}), body)

    async def _ask(self, method: str, url: str, headers: Headers, body: bytes) -> bytes:
        self.fetches += 1
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(method, url, headers, body)
        except TimeoutError:
            self.failures += 1
            raise NotFetched("it took too long") from None
        except NotFetched:
            self.failures += 1
            raise
        except (OSError, ValueError, Refused, httpcore.ProtocolError, httpcore.NetworkError) as error:
            self.failures += 1
            raise NotFetched(str(error) or type(error).__name__) from error

    async def _answer(self, method: str, url: str, headers: Headers, body: bytes) -> bytes:
        parts = urlsplit(url)
        scheme = parts.scheme.encode()
        if scheme not in PORTS or not parts.hostname:
            raise NotFetched("it is no http or https URL")
        port = parts.port or PORTS[scheme]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        asked = httpcore.URL(scheme=scheme, host=parts.hostname.encode(), port=port, target=target.encode())
        stream = await self._connected(parts.hostname, port, is_secure=parts.scheme == "https")
        try:
            return await self._heard(stream, new_request(method, asked, [_PLAIN, *headers], body, closes=True))
        finally:
            await stream.aclose()

    async def _heard(self, stream: "_Stream", request: httpcore.Request) -> bytes:
        origin = httpcore.Origin(request.url.scheme, request.url.host, request.url.port or 0)
        answer = await httpcore.AsyncHTTP11Connection(origin, stream).handle_async_request(request)
        if answer.status != 200:
            raise NotFetched(f"the answer was {answer.status}")
        kept = bytearray()
        async for part in answer.aiter_stream():
            kept += part
            if len(kept) > self._most_bytes:
                raise TooMuch(f"it has more than {self._most_bytes} bytes")
        return bytes(kept)

    async def _connected(self, host: str, port: int, *, is_secure: bool) -> "_Stream":
        """Connect to the first of the permitted addresses that answers; each leaves some time for the next."""
        *others, last = await self._guard.addresses(host, port)
        for address in others:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._seconds / (len(others) + 1)):
                    return await self._stream(address, port, host if is_secure else "")
        return await self._stream(last, port, host if is_secure else "")

    async def _stream(self, address: Address, port: int, tls_name: str) -> "_Stream":
        if not tls_name:
            return _Stream(*await asyncio.open_connection(str(address), port))
        if self._tls is None:
            self._tls = trust()
        return _Stream(*await asyncio.open_connection(str(address), port, ssl=self._tls, server_hostname=tls_name))


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


class _Stream(httpcore.AsyncNetworkStream):
    """A connection as httpcore wants it; times are the caller's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what came; empty at the end."""
        return await self._reader.read(min(max_bytes, _PIECE))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._writer.write(buffer)
        await self._writer.drain()

    async def aclose(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """Know nothing."""
        return None
