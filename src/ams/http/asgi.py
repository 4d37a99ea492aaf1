"""ASGI in a few words: its types, where a request comes from, values of a query, and an answer sent as a whole.

A proxy adds the address it was asked from to the end of `X-Forwarded-For`. So the last address in it that is no proxy
of ours is the client's; what stands before that can be forged.
"""

import ipaddress
from collections.abc import MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from ams.outgoing.guard import Network
from ams.web import answers, asgi_exchange
from ams.web.listener import is_within

Event = asgi_exchange.Event
Receive = asgi_exchange.Receive
Send = asgi_exchange.Send
Application = asgi_exchange.Application
Header = answers.Header
JSON_TYPE, JSON = answers.JSON_TYPE, answers.JSON


async def answer(send: Send, status: int, body: bytes, headers: list[Header]) -> None:
    """Send an answer; the length of its body is added to `headers`."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def project_of(scope: MutableMapping[str, Any]) -> str:
    """Return the project that a path names; empty without one."""
    parts = scope["path"].split("/", 4)
    return parts[3] if len(parts) > 3 and parts[2] == "projects" else ""


def query_value(query: bytes, name: str) -> str | None:
    """Return the first value of a query parameter, whose name is case-sensitive; nothing behind it is decoded."""
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


_FORWARDED = b"x-forwarded-for"
MOST_HOPS = 20  # a longer list is not read to its end: no service has so many proxies before it


def client_address(scope: MutableMapping[str, Any], proxies: Sequence[Network]) -> str:
    """Return the address of the client of an ASGI request; empty when it is not known."""
    peer = scope.get("client")
    near = usual_address(peer[0]) if peer else ""
    if not proxies or not is_within(near, proxies):
        return near
    said = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == _FORWARDED)
    for hop in reversed(said.rsplit(",", MOST_HOPS)[-MOST_HOPS:] if said else ()):
        address = usual_address(hop.strip())
        if not address:  # what no proxy of ours wrote
            return near
        near = address
        if not is_within(address, proxies):
            return address
    return near


def usual_address(text: str) -> str:
    """Return an address in the one way it is written here; empty for what is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
