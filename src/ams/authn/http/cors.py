"""Cross-origin requests: pages of any origin may use the management routes with a key (contract 2; 15, A20)."""

from collections.abc import Sequence

from ams.http.asgi import Header

ANY_ORIGIN: Header = (b"access-control-allow-origin", b"*")
ALLOWED: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"OPTIONS, POST, GET, PUT, DELETE, HEAD"),
    (b"access-control-allow-headers", b"X-Requested-With, Content-Type, Authorization, X-Api-Key"),
)
"""What a preflight is told. The reference names a header that nobody sends."""


def opened(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return what lets a page of another origin read the answer to a request with these headers."""
    return (ANY_ORIGIN,) if any(name == b"origin" for name, _ in headers) else ()


def preflight(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the headers of the answer to an OPTIONS request, those of `opened` aside."""
    return ALLOWED if opened(headers) else ((b"allow", ALLOWED[0][1]),)
