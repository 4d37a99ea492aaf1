"""Headers and address of a call, and size checks of a request before it is parsed.

A call gets an ASGI scope, so that rates, logs and audit treat it as an HTTP request. Requests are checked before they
are parsed, as two bytes may take a hundred in memory. The check reads only field numbers and lengths.
"""

import asyncio
import functools
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from ams.core.errors import InvalidInput, Overloaded, TooLarge
from ams.http.asgi import client_address
from ams.outgoing.address_guard import Network
from ams.pubsub.protos import Message
from ams.web.http2_relay import read_peer_name
from ams.web.listener import is_within

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Scope = MutableMapping[str, Any]  # members of an ASGI scope; and `leaf`, the last part of the name a call is about
Headers = list[tuple[bytes, bytes]]

MOST_REQUEST = 20 * 2**20  # bytes of a request that are read
MOST_PAYLOAD = 10 * 2**20  # bytes of a request that is served, unless a publish may have more: Google's limit
MOST_ANSWER = 2**30
AGENT = b"x-ams-user-agent"  # user agent of the client in a call that a node forwards
API_KEY, USUAL_KEY = b"x-goog-api-key", b"x-api-key"
SMALL = 128 * 2**10  # bytes of a request that needs no check
MOST_FLAT = 524_288  # bytes of a request of ids and names, without nested messages
MOST_FIELDS = 10_000  # of a request, nested messages included
MOST_PUBLISHED = 128_000  # fields of a publish: 1,000 messages with 100 attributes each have 107,001
NO_MESSAGE = "The request is no valid message of its type."
_PUBLISH = "google.pubsub.v1.PublishRequest"
_OWN: Mapping[str, tuple[int, str]] = {
    _PUBLISH: (1_016, "The value for message_count is too large. The maximum value is 1000."),
    "google.pubsub.v1.PubsubMessage": (116, "A message has too many attributes: at most 100 are allowed."),
}  # maximum fields of these types, some unknown ones included, and the error text
_VARINT, _LENGTH = 0, 2
_FIXED: Mapping[int, int] = {1: 8, 5: 4}  # bytes of the types of fixed size
_LONGEST_VARINT = 10


def scope_of(context: Context, method: str, proxies: Sequence[Network]) -> Scope:
    """Return the scope of a call; its path is the method until the request names a resource."""
    came = context.invocation_metadata() or ()
    headers = [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in came]
    host, port, is_secure = read_peer_name(unquote(context.peer()))  # an empty host: unknown
    scope: Scope = {"path": f"/v1{method}", "headers": usual_headers(headers), "query_string": b""}
    scope.update(client=(host, port), scheme="https" if is_secure else "http")
    note_address(scope, proxies)
    return scope


def usual_headers(headers: Headers) -> Headers:
    """Return header fields with an API key under the name that the HTTP API reads."""
    return [(USUAL_KEY if name == API_KEY else name, value) for name, value in headers]


def note_address(scope: Scope, proxies: Sequence[Network]) -> None:
    """Store the client's address in a scope, for its fair share; of a proxy that tells none, its own, with the port."""
    address = client_address(scope, proxies)
    if is_within(address, proxies):
        shown = f"[{address}]" if ":" in address else address
        address = f"{shown}:{scope['client'][1]}"
    scope["address"] = address


async def first_of(context: Context, seconds: float) -> bytes:
    """Return the first request as it came; raise `Overloaded` when it takes longer, `InvalidInput` without one."""
    try:
        async with asyncio.timeout(seconds):
            said: Any = await context.read()
    except TimeoutError:
        raise Overloaded("The first request did not come in time") from None
    if said is grpc.aio.EOF:
        raise InvalidInput("The call ended before its first request.")
    return bytes(said)


def read(kind: Any, said: bytes, most: int = MOST_PAYLOAD) -> Message:
    """Parse a request. Raises `InvalidInput` for a bad one, which clients do not retry, and `TooLarge`."""
    if len(said) > most:
        raise TooLarge(
            f"Request payload size exceeds the limit: {most} bytes. You passed {len(said)}"
            " (setting pubsub_max_message_bytes)."
        )
    check_fields(kind.DESCRIPTOR, said)
    try:
        return kind.FromString(said)
    except DecodeError:
        raise InvalidInput(NO_MESSAGE) from None


def check_fields(descriptor: Any, said: bytes) -> None:
    """Raise `InvalidInput` for a request with too many fields, and for a bad one."""
    if len(said) <= SMALL:
        return
    kind = _type(descriptor)
    if kind.is_flat:
        if len(said) > MOST_FLAT:
            raise InvalidInput(f"The request is too large: at most {MOST_FLAT} bytes are allowed, it has {len(said)}.")
        return
    try:
        _count(kind, said, MOST_PUBLISHED if descriptor.full_name == _PUBLISH else MOST_FIELDS)
    except IndexError:  # it ends within a field
        raise InvalidInput(NO_MESSAGE) from None


def _count(kind: "_Type", said: bytes, most: int) -> None:
    around: list[tuple[int, _Type, int]] = []  # messages around this one: end, type, fields they may still have
    at, end, left, in_all = 0, len(said), kind.most, most
    while True:
        while at == end:
            if not around:
                return
            end, kind, left = around.pop()
        in_all, left = in_all - 1, left - 1
        if left < 0 or in_all < 0:
            in_general = f"The request has too much in it: at most {most} fields are allowed."
            raise InvalidInput(kind.refusal if left < 0 else in_general)
        key, at = _varint(said, at)
        form = key & 7
        if form == _LENGTH:
            size, at = _varint(said, at)
            inner = kind.messages.get(key >> 3)
            if inner is not None and at + size <= end:
                around.append((end, kind, left))
                kind, end = _type(inner), at + size
                left = kind.most
                continue
            at += size
        elif form == _VARINT:
            _, at = _varint(said, at)
        elif form in _FIXED:
            at += _FIXED[form]
        else:
            raise InvalidInput(NO_MESSAGE)
        if at > end:
            raise InvalidInput(NO_MESSAGE)


class _Type(NamedTuple):
    most: int  # how many fields a message may have
    refusal: str
    messages: Mapping[int, Any]  # types of the fields to look into: an entry of a map is a pair at most
    is_flat: bool  # whether none of its fields is a message


@functools.cache
def _type(descriptor: Any) -> _Type:
    found = {each.number: each.message_type for each in descriptor.fields if each.message_type is not None}
    inner = {number: each for number, each in found.items() if not each.GetOptions().map_entry}
    most, refusal = _OWN.get(descriptor.full_name, (MOST_PUBLISHED, ""))
    return _Type(most, refusal, inner, not found)


def _varint(said: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; raise `IndexError`, `InvalidInput`."""
    first = said[at]
    if first < 0x80:
        return first, at + 1
    number, shift = first & 0x7F, 7
    for here in range(at + 1, at + _LONGEST_VARINT):
        number |= (said[here] & 0x7F) << shift
        if said[here] < 0x80:
            return number, here + 1
        shift += 7
    raise InvalidInput(NO_MESSAGE)
