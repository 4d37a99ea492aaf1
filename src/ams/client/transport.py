"""HTTP transport of both clients: endpoints, credentials, proxies, and errors of requests."""

import importlib.util
import ipaddress
import ssl
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import httpx

from ams import __version__
from ams.client.bearer import AsyncBearer, BearerAuth
from ams.client.errors import InvalidInput, NotAms, Unreachable, Untrusted, Unusable

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0  # keep-alive of idle connections; shorter than the service's, so that no call uses a closing one

AUTHN_PORT = 8443  # default port of the certificate service (clients.md A2.2)
AMS = "ams"  # the usual service type of AMS; the official library uses no other name

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # never reached through a proxy
_PORTS = {"http": 80, "https": 443}
_PEM = "-----BEGIN"
_NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def httpx_arguments(
    endpoint: str, token: str, trust: ssl.SSLContext | None, timeout: float, bearer: AsyncBearer | None = None
) -> dict[str, Any]:
    """Return the arguments of an httpx client of `endpoint`, with a token of either kind or none.

    Raises `InvalidInput` for an invalid endpoint or token, or two tokens; `Unusable` for an invalid proxy of the
    environment.
    """
    if token and bearer:
        raise InvalidInput("give a token or a bearer token, not both")
    host(endpoint)
    if not fits_header(token):  # checked here: an error from deeper down would quote the token
        raise InvalidInput("the token holds characters that no token has")
    # The type also without a body: push servers always sent it, and proxies may check it.
    headers = {"user-agent": f"ams-client/{__version__}", "content-type": "application/json"}
    return {
        "base_url": endpoint,
        "headers": headers | ({"x-api-key": token} if token else {}),
        # Without TLS skip the system's CAs: reading them takes longer than most calls.
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if trust is None else trust,
        "timeout": httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
        "limits": httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS),
        "trust_env": False,
        "proxy": proxy_to(endpoint),
        "auth": None if bearer is None else BearerAuth(bearer),
    }


def base(endpoint: str) -> str:
    """Return an endpoint without a trailing slash or version."""
    return endpoint.rstrip("/").removesuffix("/v1")


def host(endpoint: str) -> str:
    """Return the host of an endpoint. Raises `InvalidInput`."""
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL:
        url = httpx.URL()
    if not url.host or url.userinfo or url.scheme not in ("http", "https"):
        raise InvalidInput("an endpoint looks like https://HOST:PORT")
    return url.host


def beside(endpoint: str) -> str:
    """Return the default endpoint of an AMS's certificate service: same host, own port."""
    return str(httpx.URL(scheme="https", host=host(endpoint), port=AUTHN_PORT))


def trust(
    endpoint: str, ca: str | None, cert: str | None, key: str | None, ca_folder: str | None = None
) -> ssl.SSLContext | None:
    """Return the TLS context for `endpoint`, None without TLS; `ca` is a file or its content. Raises `Unusable`."""
    if not endpoint.startswith("https:"):
        return None
    text = ca if ca and _PEM in ca else None
    try:
        context = ssl.create_default_context(cafile=None if text else ca, capath=ca_folder, cadata=text)
    except OSError as error:
        named = "CA certificates" if text else f"CA file {ca}"
        raise Unusable(f"{named}: {error.strerror or 'not a certificate in PEM form'}") from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key)
        except OSError as error:
            reason = error.strerror if error.filename else None
            raise Unusable(f"client certificate {cert}: {reason or 'not a certificate with its key'}") from error
    return context


def failure(error: httpx.HTTPError, endpoint: str) -> Unreachable:
    """Return the error for a failed request to `endpoint`."""
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"no answer from {endpoint} in time", sent=sent)
    if not isinstance(error, httpx.TransportError):
        return NotAms(f"{endpoint} does not answer as AMS")
    if isinstance(error, httpx.LocalProtocolError):  # its text quotes the header
        return Unreachable(f"cannot ask {endpoint}: the request cannot be sent", sent=False)
    text = str(error)
    if endpoint.startswith("http:") and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return Unreachable(f"cannot reach {endpoint}: the connection was closed without an answer; is it https?")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = "its certificate is not signed by a trusted CA (--ca names another)"
        return Untrusted(f"cannot reach {endpoint}: {reason}", sent=False)
    if any(word in text for word in _NO_TLS_THERE):
        return Untrusted(f"cannot reach {endpoint}: it does not answer by TLS; is it http?", sent=sent)
    return Unreachable(f"cannot reach {endpoint}: {text or type(error).__name__}", sent=sent)


def fits_header(token: str) -> bool:
    """Return whether a token fits into a header; others can only be sent in the query."""
    return token.isascii() and token.isprintable() and token == token.strip()


def proxy_to(url: str) -> str | None:
    """Return the URL of the proxy of the environment that leads to a URL; None if there is none.

    It is `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`, unless `NO_PROXY` excludes the host. Raises `Unusable` for one
    that cannot be a proxy's.
    """
    found = httpx.URL(url)
    host, port = found.host, found.port or _PORTS.get(found.scheme, 0)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(found.scheme) or proxies.get("all")
    if not proxy or host in LOOPBACK or any(_is_meant(each, host, port) for each in proxies.get("no", "").split(",")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    schemes = {*_PORTS, *(("socks5", "socks5h") if importlib.util.find_spec("socksio") else ())}
    try:
        parts = urlsplit(proxy)
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port, half an IPv6 address
        is_good = False
    if not is_good:
        raise Unusable(f"the proxy for {found.scheme} in the environment is no URL http://HOST:PORT")
    return proxy


def _is_meant(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY matches a host; httpx knows no networks, nor all spellings of IPv6."""
    name, wanted = _split(entry.strip().lower())
    if not name or (wanted and wanted != str(port)):
        return False
    if name == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:  # one is a name
        domain = name.lstrip("*").lstrip(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name + (rest if rest.startswith("/") else ""), rest.lstrip(":") if rest.startswith(":") else ""
    name, _, port = entry.rpartition(":")
    return (name, port) if name and ":" not in name and port.isdigit() else (entry, "")
