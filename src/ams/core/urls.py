"""URLs of settings: whether they are good; a user and password in them is never sent and never shown."""

import ipaddress
import re
from urllib.parse import urlsplit

_AUTHORITY = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]*([^/\\?#]*)")
"""Reads what is malformed as well, so that a password in a mistyped URL is found."""


def has_credentials(url: str) -> bool:
    """Return whether there is a user or password in a URL, also in a malformed one."""
    return without_credentials(url) != url


def is_http_url(url: str) -> bool:
    """Return whether this is an absolute http or https URL with a host and without credentials."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not has_credentials(url)
    except ValueError:  # half an IPv6 address
        return False


def without_credentials(url: str) -> str:
    """Return a URL as it may be shown; a malformed one, too."""
    found = _AUTHORITY.match(url)
    if found is None:
        return url
    return url[: found.start(1)] + found[1].rpartition("@")[2] + url[found.end(1) :]


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
