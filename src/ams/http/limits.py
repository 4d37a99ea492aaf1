"""What a client may cost: bodies are read with a limit, in time, and within one budget of memory."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from ams.errors import BadRequest, Overloaded, TooLarge
from ams.http.asgi import Receive

Headers = Iterable[tuple[bytes, bytes]]

SMALL_BODY = 2**20
"""Limit for every body but those that hold messages, or their numbers."""
SMALL_PIECE = 2**16
"""Bodies up to this size are not counted: connections are."""


LATE_SECONDS = 0.05
"""A body that took longer than this to come may be another's: who asks is looked at again."""


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class Bodies:
    """Reads request bodies. Those being received or held, the small ones aside, stay under `max_buffered` together."""

    def __init__(self, max_body: int, max_buffered: int, seconds: float) -> None:
        self._max_body = max_body
        self._max_buffered = max_buffered
        self._seconds = seconds
        self._buffered = 0

    async def read(self, headers: Headers, receive: Receive, limit: int | None = None) -> bytes:
        """Return the whole body, of at most `limit` bytes (absent: the most any request may have).

        Raises `TooLarge` over the limit, `Overloaded` when all bodies together need too much memory, `BadRequest`
        when it takes too long, `ClientLeft` when nobody is there any more.
        """
        limit = self._max_body if limit is None else min(limit, self._max_body)
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientLeft
        body: bytes = event.get("body", b"")
        if not event.get("more_body", False):
            if len(body) > limit:
                raise TooLarge
            return body
        if _announced(headers) > limit:
            raise TooLarge
        try:
            async with asyncio.timeout(self._seconds):
                return await self._read_on(body, receive, limit)
        except TimeoutError:
            raise BadRequest("Request took too long to arrive") from None

    async def read_with(
        self, headers: Headers, receive: Receive, limit: int | None, when_late: Callable[[], Awaitable[object]]
    ) -> bytes:
        """Return the whole body as `read` does; ask `when_late` when it took a while to come.

        A client can send its head, have its token revoked, and send its body half a minute later.
        """
        began = time.monotonic()
        body = await self.read(headers, receive, limit)
        if time.monotonic() - began > LATE_SECONDS:
            await when_late()
        return body

    def hold(self, body: bytes) -> int:
        """Count a body while it is worked on: what waits to be stored takes memory too. Returns what to `release`."""
        weight = len(body) if len(body) > SMALL_PIECE else 0
        self._buffered += weight
        return weight

    def release(self, weight: int) -> None:
        """Stop counting."""
        self._buffered -= weight

    async def _read_on(self, first: bytes, receive: Receive, limit: int) -> bytes:
        chunks, size, more = [first], len(first), True
        self._buffered += size
        try:
            while more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ClientLeft
                chunk: bytes = event.get("body", b"")
                more = event.get("more_body", False)
                chunks.append(chunk)
                size += len(chunk)
                self._buffered += len(chunk)
                if size > limit:
                    raise TooLarge
                if self._buffered > self._max_buffered:
                    raise Overloaded("Too many large requests at once")
            return b"".join(chunks)
        finally:
            self._buffered -= size


def gone(receive: Receive) -> asyncio.Future[None]:
    """Watch for the client to leave, after its request was read; to be cancelled when nobody asks any more."""

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return asyncio.ensure_future(disconnect())


def _announced(headers: Headers) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
