"""The proxy of the environment that leads to a host: `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`, but for `NO_PROXY`.

An entry of `NO_PROXY` is `*`, a domain, an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`, each perhaps
with a port. httpx reads neither networks nor all ways to write an address of IPv6.
"""

import importlib.util
import ipaddress
import urllib.request
from urllib.parse import urlsplit

import httpx

from ams.client.errors import Unusable

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that are this machine: never reached through a proxy."""
_PORTS = {"http": 80, "https": 443}
_SCHEMES = ("http", "https")


def proxy_to(url: str) -> str | None:
    """Return the URL of the proxy to a URL, None for none; raise `Unusable` for one that cannot be a proxy's."""
    found = httpx.URL(url)
    host, port = found.host, found.port or _PORTS.get(found.scheme, 0)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(found.scheme) or proxies.get("all")
    if not proxy or host in LOOPBACK or any(_is_meant(each, host, port) for each in proxies.get("no", "").split(",")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    schemes = (*_SCHEMES, "socks5", "socks5h") if importlib.util.find_spec("socksio") else _SCHEMES
    try:
        parts = urlsplit(proxy)
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, half an IPv6 address
        is_good = False
    if not is_good:
        raise Unusable(f"the proxy for {found.scheme} in the environment is no URL http://HOST:PORT")
    return proxy


def _is_meant(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY is about a host."""
    name, wanted = _split(entry.strip().lower())
    if not name or (wanted and wanted != str(port)):
        return False
    if name == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:  # one of them is a name
        domain = name.lstrip("*").lstrip(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split(entry: str) -> tuple[str, str]:
    """Return an entry without its port, and that; an address of IPv6 with a port stands in brackets."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name + (rest if rest.startswith("/") else ""), rest.lstrip(":") if rest.startswith(":") else ""
    name, _, port = entry.rpartition(":")
    return (name, port) if name and ":" not in name and port.isdigit() else (entry, "")
