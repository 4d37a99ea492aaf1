"""Where a service is and how connections to it are made: what both faces of the client share."""

import ssl
from typing import TypedDict

import httpx

from ams import __version__
from ams.client.bearer import AsyncBearer, BearerAuth
from ams.client.errors import InvalidInput, NotAms, Unreachable, Untrusted, Unusable

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that are this machine: never reached through a proxy."""

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0
"""How long an unused connection is kept: shorter than the service does, lest a call meet its end."""

CLOSED = "the client is closed"

_PEM = "-----BEGIN"
_NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


class Options(TypedDict):
    """What an httpx client is made of."""

    base_url: str
    headers: dict[str, str]
    verify: ssl.SSLContext
    timeout: httpx.Timeout
    limits: httpx.Limits
    trust_env: bool
    auth: httpx.Auth | None


def options(
    endpoint: str, token: str, trust: ssl.SSLContext | None, timeout: float, bearer: AsyncBearer | None = None
) -> Options:
    """Return how to speak to `endpoint`, with a token of either kind or none.

    Raises `InvalidInput` for an endpoint or a token that cannot be one, and for two tokens.
    """
    if token and bearer:
        raise InvalidInput("give a token or a bearer token, not both")
    local = host(endpoint) in LOOPBACK
    return Options(
        base_url=endpoint,
        headers=_headers(token),
        # Reading the CAs of the system takes longer than most calls, and without TLS nobody is to be trusted.
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if trust is None else trust,
        timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
        limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS),
        trust_env=not local,
        auth=None if bearer is None else BearerAuth(bearer),
    )


def base(endpoint: str) -> str:
    """Return an endpoint without a slash or the version at its end."""
    return endpoint.rstrip("/").removesuffix("/v1")


def host(endpoint: str) -> str:
    """Return the host of an endpoint; raise `InvalidInput` for what cannot be one."""
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL:
        url = httpx.URL()
    if not url.host or url.userinfo or url.scheme not in ("http", "https"):
        raise InvalidInput("an endpoint looks like https://HOST:PORT")
    return url.host


def trust(endpoint: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return what TLS to `endpoint` trusts and shows, None without TLS; raise `Unusable` for files of no use.

    `ca` is a file, or what such a file holds.
    """
    if not endpoint.startswith("https:"):
        return None
    text = ca if ca and _PEM in ca else None
    try:
        context = ssl.create_default_context(cafile=None if text else ca, cadata=text)
    except OSError as error:
        named = "CA certificates" if text else f"CA file {ca}"
        raise Unusable(f"{named}: {error.strerror or 'not a certificate in PEM form'}") from error
    if cert is not None:
        _show(context, cert, key)
    return context


def failure(error: httpx.HTTPError, endpoint: str) -> Unreachable:
    """Say why there is no answer from `endpoint`."""
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"no answer from {endpoint} in time", sent=sent)
    if not isinstance(error, httpx.TransportError):
        return NotAms(f"{endpoint} does not answer as AMS")
    text = str(error)
    if endpoint.startswith("http:") and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return Unreachable(f"cannot reach {endpoint}: the connection was closed without an answer; is it https?")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = "its certificate is not signed by a trusted CA (--ca names another)"
        return Untrusted(f"cannot reach {endpoint}: {reason}", sent=False)
    kind = Untrusted if any(word in text for word in _NO_TLS_THERE) else Unreachable
    return kind(f"cannot reach {endpoint}: {text or type(error).__name__}", sent=sent)


def _headers(token: str) -> dict[str, str]:
    # Checked here because an error from deeper down would quote the token.
    if not token.isascii() or not token.isprintable():
        raise InvalidInput("the token holds characters that no token has")
    # The type also without a body: push servers always sent it, and what stands before a service may look at it.
    agent = {"user-agent": f"ams-client/{__version__}", "content-type": "application/json"}
    return agent | {"x-api-key": token} if token else agent


def _show(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        reason = error.strerror if error.filename else None
        raise Unusable(f"client certificate {cert}: {reason or 'not a certificate with its key'}") from error
