"""Where a request comes from: the client's address, also behind proxies that are known.

A proxy adds the address it was asked from to the end of `X-Forwarded-For`. So the last address in it that is no proxy
of ours is the client's; what stands before that anybody could have written.
"""

import ipaddress
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from ams.http.asgi import Header
from ams.outgoing.guard import Network

_FORWARDED = b"x-forwarded-for"
MOST_HOPS = 20
"""More proxies than there are before any service; a longer list is not read to its end."""


def client_address(scope: MutableMapping[str, Any], proxies: Sequence[Network]) -> str:
    """Return the address of the client of an ASGI request; empty when nobody knows it."""
    peer = scope.get("client")
    near = _address(peer[0]) if peer else ""
    if not proxies or not _is_in(near, proxies):
        return near
    for hop in reversed(_hops(scope["headers"])):
        address = _address(hop)
        if not address:  # what no proxy of ours wrote
            return near
        near = address
        if not _is_in(address, proxies):
            return address
    return near


def _hops(headers: Iterable[Header]) -> list[str]:
    said = ",".join(value.decode("latin-1") for name, value in headers if name == _FORWARDED)
    return [each.strip() for each in said.rsplit(",", MOST_HOPS)[-MOST_HOPS:]] if said else []


def _address(text: str) -> str:
    """Return an address in the one way it is written here; empty for what is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _is_in(address: str, proxies: Sequence[Network]) -> bool:
    if not address:
        return False
    parsed = ipaddress.ip_address(address)
    return any(parsed in network for network in proxies)
