"""ASGI in a few words: its types, values of a query, and an answer that is there as a whole."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_plus

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


def query_value(query: bytes, name: str) -> str | None:
    """Return the first value of a query parameter; parameter names are case-sensitive (contract 1).

    Only the fields up to it are looked at, and only its value is decoded.
    """
    if not query:
        return None
    for field in query.split(b"&"):
        key, _, value = field.partition(b"=")
        if field and _decoded(key) == name:
            return _decoded(value)
    return None


def _decoded(text: bytes) -> str:
    plain = text.decode("latin-1")
    return unquote_plus(plain, errors="replace") if b"%" in text or b"+" in text else plain
