"""ASGI in a few words: its types, and an answer that is there as a whole."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON_TYPE = "application/json; charset=utf-8"
JSON: Header = (b"content-type", JSON_TYPE.encode())


async def answer(send: Send, status: int, body: bytes, headers: list[Header]) -> None:
    """Send an answer; the length of its body is added to `headers`."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
