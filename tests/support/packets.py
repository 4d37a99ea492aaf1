"""Requests as bytes, for tests that cut them into packets at any byte, and pipeline them."""

import itertools
from collections.abc import Iterator, Mapping

_INNER = b"DELETE /v1/projects/P/topics/T HTTP/1.1\r\nHost: x\r\n\r\n"
"""A whole request inside a body, which must never be served."""
_LINES = b"\nUpgrade: a\nUPGRADE : b\r\nupgrade\t: c" * 4 + b"\r\n\r\n" + _INNER
_OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
_KEEP = b"Connection: keep-alive\r\n"
_LAST = b"Connection: close\r\n"
_FORGED = b"Host: y\r\nx-api-key: wrong\r\nExpect: 100-continue\r\n"


def sized_packet(target: bytes, body: bytes, headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (target, headers, len(body), body)


def chunked_packet(target: bytes, body: bytes, headers: bytes = b"", *, size: int = 25, trailer: bytes = b"") -> bytes:
    """Return a POST whose body comes in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"POST %b HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (target, headers)
    return head + coded + b"0\r\n" + trailer + b"\r\n"


def table(target: bytes, body: bytes, headers: bytes = b"") -> Mapping[str, bytes]:
    """Return requests by name; those with their own body post `body` to `target`."""
    get = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n"
    return {
        "get": get + b"\r\n", "get after an empty line": b"\r\n" + get + b"\r\n",
        "get with an offer": get + _OFFER + b"\r\n",
        "get with an offer and no body": get + _OFFER + b"Content-Length: 0\r\n\r\n",
        "sized": sized_packet(target, body, headers),
        "sized with lines that look like offers": sized_packet(target, _LINES, headers),
        "sized with an offer": sized_packet(target, body, headers + _OFFER),
        "sized with an offer and such lines": sized_packet(target, _LINES, headers + _OFFER),
        "offer that is not in Connection": sized_packet(target, body, headers + b"Upgrade: h2c\r\n"),
        "chunked": chunked_packet(target, body, headers),
        "chunked with lines that look like offers": chunked_packet(target, _LINES, headers, size=7),
        "chunked with an offer": chunked_packet(target, _LINES, headers + _OFFER, trailer=b"x-check: 1\r\n"),
        "chunked with a trailer that upgrades": chunked_packet(target, body, headers, trailer=_OFFER),
        "chunked with a trailer that keeps the connection": chunked_packet(target, body, headers, trailer=_KEEP),
        "chunked with a trailer of a length": chunked_packet(target, body, headers, trailer=b"Content-Length: 5\r\n"),
        "chunked with a trailer of a coding": chunked_packet(
            target, body, headers, trailer=b"Transfer-Encoding: chunked\r\n",
        ),
        "chunked with a trailer of another host and token": chunked_packet(target, body, headers, trailer=_FORGED),
        "chunked whose trailer says it is the last": chunked_packet(target, body, headers, trailer=_LAST),
        "chunked whose trailer goes on although it is the last": chunked_packet(
            target, body, headers + _LAST, trailer=_KEEP,
        ),
        "chunked whose trailer says to a proxy it is the last": chunked_packet(
            target, body, headers, trailer=b"Proxy-Connection: close\r\n",
        ),
        "empty": sized_packet(target, b"", headers), "old": get.replace(b"1.1", b"1.0") + b"\r\n",
        "last": get + _LAST + b"\r\n", "bad line": b"nonsense\r\n\r\n",
        "bad length": sized_packet(target, body, headers + b"Content-Length: 3\r\n"),
        "bad length with an offer": sized_packet(target, body, headers + _OFFER + b"Content-Length: 3\r\n"),
        "two framings": sized_packet(target, body, headers + b"Transfer-Encoding: chunked\r\n"),
        "two framings with an offer": sized_packet(target, body, headers + _OFFER + b"Transfer-Encoding: chunked\r\n"),
        "odd coding with an offer": chunked_packet(target, body, headers + _OFFER).replace(
            b" chunked", b" gzip, chunked",
        ),
        "bad chunk": chunked_packet(target, body, headers).replace(b"0\r\n\r\n", b"zz\r\n\r\n"),
        "bad chunk with an offer": chunked_packet(target, body, headers + _OFFER).replace(b"0\r\n\r\n", b"zz\r\n\r\n"),
        "blank before a colon": get + b"upgrade : h2c\r\n\r\n",
        "connect": b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nContent-Length: 3\r\n\r\nabc",
    }  # fmt: skip


def cuts(said: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(1, len(said)):
        yield said[:at], said[at:]


def in_a_row(requests: Mapping[str, bytes], most: int = 2) -> Iterator[tuple[str, ...]]:
    """Yield the names of all ways to pipeline two up to `most` of them."""
    for count in range(2, most + 1):
        yield from itertools.product(requests, repeat=count)
