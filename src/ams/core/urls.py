"""URLs of settings: validation, and removal of credentials, which are never sent or displayed; addresses of hosts."""

import ipaddress
import re
from urllib.parse import urlsplit

_AUTHORITY = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]*([^/\\?#]*)")
"""Matches malformed URLs too, so that a password in a mistyped URL is found."""


def has_credentials(url: str) -> bool:
    """Return whether a URL, even a malformed one, has a user or password."""
    return without_credentials(url) != url


def is_http_url(url: str) -> bool:
    """Return whether this is an absolute http or https URL with a host and without credentials."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not has_credentials(url)
    except ValueError:  # half an IPv6 address
        return False


def without_credentials(url: str) -> str:
    """Return a URL, even a malformed one, without user and password."""
    found = _AUTHORITY.match(url)
    assert found is not None  # each of its parts may be empty
    return url[: found.start(1)] + found[1].rpartition("@")[2] + url[found.end(1) :]


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address; an IPv4 address mapped into IPv6 becomes IPv4. Raises `ValueError`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def client_of(address: str) -> str:
    """Return the client that an address counts for: an IPv4 address, or an IPv6 network. Raises `ValueError`."""
    if ":" not in address:
        return address
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(int(parsed) >> 64)  # a client usually has at least a /64 to itself
