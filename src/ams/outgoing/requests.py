"""Requests to others: one function decides their headers, so that each goes out once.

Some receivers refuse a request with a header that comes twice, as aiohttp does `User-Agent`; others take the first or
the last of them.
"""

from collections.abc import Sequence

import httpcore

import ams

PORTS = {b"http": 80, b"https": 443}
"""Of each scheme, where a URL names none."""

Headers = Sequence[tuple[bytes, bytes]]


def authority(scheme: bytes, host: bytes, port: int) -> bytes:
    """Return the value of `Host`: the port is named only if it is not that of the scheme."""
    shown = b"[%b]" % host if b":" in host else host
    return shown if port == PORTS[scheme] else b"%b:%d" % (shown, port)


def new_request(
    method: str, url: httpcore.URL, headers: Headers, body: bytes, *, closes: bool = False
) -> httpcore.Request:
    """Return a request with `headers` besides those that every request has; with `closes` it is the connection's last.

    Of headers with the same name, whatever its case, the first goes out: those that every request has come first.
    """
    assert url.port is not None
    common = [
        (b"Host", authority(url.scheme, url.host, url.port)),
        (b"User-Agent", f"ams/{ams.__version__}".encode()),
    ]
    if body or method != "GET":
        common.append((b"Content-Length", b"%d" % len(body)))
    if closes:
        common.append((b"Connection", b"close"))
    each_once: dict[bytes, tuple[bytes, bytes]] = {}
    for name, value in (*common, *headers):
        each_once.setdefault(name.lower(), (name, value))
    return httpcore.Request(method, url, headers=list(each_once.values()), content=body)
