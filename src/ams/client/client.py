"""Carries calls to a service over kept connections."""

import ssl
from types import TracebackType
from typing import TypeVar

import httpx
import msgspec

from ams import __version__
from ams.client.errors import InvalidInput, NotAms, Unreachable, refusal
from ams.client.wire.call import Call

T = TypeVar("T")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that are this machine: never reached through a proxy."""

_CONNECT_SECONDS = 5.0


class Client:
    """A caller with a token; keeps connections open between calls and may be used from several threads.

    `endpoint` is `https://HOST[:PORT]`; `ca` a file of trusted certificates (PEM), absent = the system's; `timeout`
    the seconds an answer may take, longer than the service lets a pull wait. Calls are sent once: only the caller
    knows which may be repeated. Raises `InvalidInput` for an endpoint or token that cannot be one, and `Unreachable`
    for a CA file that cannot be read.
    """

    def __init__(self, endpoint: str, token: str = "", *, ca: str | None = None, timeout: float = 30.0) -> None:
        self.endpoint = endpoint.rstrip("/").removesuffix("/v1")
        self._http = httpx.Client(
            base_url=self.endpoint,
            headers=_headers(token),
            verify=_trust(ca) if self.endpoint.startswith("https:") else True,
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            trust_env=host(self.endpoint) not in LOOPBACK,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept connections."""
        self._http.close()

    def call(self, call: Call[T]) -> T:
        """Send a call and return its answer read; raise a `ClientError` for anything else."""
        try:
            answer = self._http.request(call.method, call.path, params=dict(call.query), content=call.body)
        except httpx.TimeoutException:
            raise Unreachable(f"no answer from {self.endpoint} in time") from None
        except httpx.TransportError as error:
            raise Unreachable(f"cannot reach {self.endpoint}: {_reason(error)}") from error
        except httpx.HTTPError:
            raise NotAms(f"{self.endpoint} does not answer as AMS") from None
        return read(call, answer.status_code, answer.content, answer.headers.get("retry-after", ""), self.endpoint)


def host(endpoint: str) -> str:
    """Return the host of an endpoint; raise `InvalidInput` for what cannot be one."""
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL:
        url = httpx.URL()
    if not url.host or url.userinfo or url.scheme not in ("http", "https"):
        raise InvalidInput("an endpoint looks like https://HOST:PORT")
    return url.host


def read(call: Call[T], status: int, body: bytes, retry_after: str, endpoint: str) -> T:
    """Read an answer to a call: the value of a 200, an error raised for everything else."""
    if status >= 400:
        raise refusal(status, body, retry_after)
    try:
        if status == 200:
            return call.read(body)
    except msgspec.DecodeError:
        pass
    raise NotAms(f"{endpoint} does not answer as AMS (status {status})")


def _headers(token: str) -> dict[str, str]:
    # Checked here because an error from deeper down would quote the token.
    if not token.isascii() or not token.isprintable():
        raise InvalidInput("the token holds characters that no token has")
    agent = {"user-agent": f"ams-client/{__version__}"}
    return agent | {"x-api-key": token} if token else agent


def _trust(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise Unreachable(f"CA file {ca}: {error.strerror or 'not a certificate in PEM form'}") from error


def _reason(error: httpx.TransportError) -> str:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not signed by a trusted CA (--ca names another)"
    return text or type(error).__name__
