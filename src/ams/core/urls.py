"""URLs of settings: validation, and removal of credentials, which are never sent or displayed."""

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
    if found is None:
        return url
    return url[: found.start(1)] + found[1].rpartition("@")[2] + url[found.end(1) :]


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
