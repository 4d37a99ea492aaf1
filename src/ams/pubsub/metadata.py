"""What a call says of itself before its first request, in the form of an HTTP request: its headers, and who sent it.

So rates, logs and the audit log know calls as they know requests.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from ams.http.asgi import client_address, is_within
from ams.outgoing.guard import Network

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Scope = MutableMapping[str, Any]
"""The members of an ASGI scope that are looked at; and `leaf`, the last part of the name of what a call is about."""
Headers = list[tuple[bytes, bytes]]

_API_KEY, _USUAL_KEY = b"x-goog-api-key", b"x-api-key"


def scope_of(context: Context, method: str, proxies: Sequence[Network]) -> Scope:
    """Return what a call says of itself; its path is the method until the request says what it is about."""
    headers, client = list(_headers(context)), client_of(context)
    scope = {"path": f"/v1{method}", "headers": headers, "query_string": b"", "client": client}
    scope["address"] = _address(scope, proxies)
    return scope


def _address(scope: Scope, proxies: Sequence[Network]) -> str:
    """Return where a client is; of one behind a proxy that does not say it, the proxy's address and port.

    All clients of such a proxy have its address, but each has connections of its own.
    """
    address = client_address(scope, proxies)
    if not is_within(address, proxies):
        return address
    return f"[{address}]:{scope['client'][1]}" if ":" in address else f"{address}:{scope['client'][1]}"


def client_of(context: Context) -> tuple[str, int]:
    """Return address and port of who calls; an empty address when it is not known."""
    kind, _, rest = unquote(context.peer()).partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return "", 0
    return address.strip("[]"), int(port)


def _headers(context: Context) -> Iterator[tuple[bytes, bytes]]:
    """Yield the metadata of a call as header fields; an API key under the name that the HTTP API reads."""
    for name, value in context.invocation_metadata() or ():
        key = name.encode()
        yield (_USUAL_KEY if key == _API_KEY else key), value if isinstance(value, bytes) else value.encode()
