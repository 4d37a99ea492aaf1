"""What a client may cost: bodies are read with a limit, in time, and within one budget of memory."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from ams.errors import BadRequest, Overloaded, TooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = Iterable[tuple[bytes, bytes]]


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class Bodies:
    """Reads request bodies. Memory of all bodies being received stays under `max_buffered`."""

    def __init__(self, max_body: int, max_buffered: int, seconds: float) -> None:
        self._max_body = max_body
        self._max_buffered = max_buffered
        self._seconds = seconds
        self._buffered = 0

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body.

        Raises `TooLarge` over the limit, `Overloaded` when all bodies together need too much memory, `BadRequest`
        when it takes too long, `ClientLeft` when nobody is there any more.
        """
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientLeft
        body: bytes = event.get("body", b"")
        if not event.get("more_body", False):
            if len(body) > self._max_body:
                raise TooLarge
            return body
        if _announced(headers) > self._max_body:
            raise TooLarge
        try:
            async with asyncio.timeout(self._seconds):
                return await self._read_on(body, receive)
        except TimeoutError:
            raise BadRequest("Request took too long to arrive") from None

    async def _read_on(self, first: bytes, receive: Receive) -> bytes:
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
                if size > self._max_body:
                    raise TooLarge
                if self._buffered > self._max_buffered:
                    raise Overloaded("Too many large requests at once")
            return b"".join(chunks)
        finally:
            self._buffered -= size


def _announced(headers: Headers) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
