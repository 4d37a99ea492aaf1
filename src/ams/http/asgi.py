"""ASGI helpers: types, client addresses, query values, and whole answers.

A proxy appends the address of its peer to `X-Forwarded-For`. So the last address in it that is not one of our proxies
is the client's. Everything before can be forged.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from ams.core.urls import parse_address
from ams.outgoing.address_guard import Network
from ams.web import answers, asgi_exchange
from ams.web.listener import is_within

Event = asgi_exchange.Event
Receive = asgi_exchange.Receive
Send = asgi_exchange.Send
Application = asgi_exchange.Application
Header = answers.Header
JSON_TYPE, JSON = answers.JSON_TYPE, answers.JSON


async def answer(send: Send, status: int, body: bytes, headers: list[Header]) -> None:
    """Send an answer. Appends the length of its body to `headers`."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def project_of(scope: MutableMapping[str, Any]) -> str:
    """Return the project named in a path; empty if none."""
    parts = scope["path"].split("/", 4)
    return parts[3] if len(parts) > 3 and parts[2] == "projects" else ""


def query_value(query: bytes, name: str) -> str | None:
    """Return the first value of a query parameter (name is case-sensitive). Decodes nothing after it."""
    if not query:
        return None
    for field in query.split(b"&"):
        key, _, value = field.partition(b"=")
        if field and _decode_query(key) == name:
            return _decode_query(value)
    return None


def _decode_query(text: bytes) -> str:
    plain = text.decode("latin-1")
    return unquote_plus(plain, errors="replace") if b"%" in text or b"+" in text else plain


MAX_HOPS = 20  # a longer list is ignored: no service is behind so many proxies


def client_address(scope: MutableMapping[str, Any], proxies: Sequence[Network]) -> str:
    """Return the client address of an ASGI request; empty if unknown."""
    peer = scope.get("client")
    near = usual_address(peer[0]) if peer else ""
    if not proxies or not is_within(near, proxies):
        return near
    said = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for")
    for hop in reversed(said.rsplit(",", MAX_HOPS)[-MAX_HOPS:] if said else ()):
        address = usual_address(hop.strip())
        if not address:  # not written by one of our proxies
            return near
        near = address
        if not is_within(address, proxies):
            return address
    return near


def usual_address(text: str) -> str:
    """Return an address in canonical form; empty if invalid."""
    try:
        return str(parse_address(text))
    except ValueError:
        return ""
