"""Services: asked for the token of one of their users (contract 8, steps 8 to 10; 15, A17).

What a service answers is not passed on, as it may hold anything, and neither are the headers it is asked with.
"""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import structlog

from ams.authn.asking import Answer, Connections
from ams.authn.values import API_KEY, AuthMethod, ServiceType
from ams.core.errors import BadSettings, NotFound, ServiceFailed, ServiceTimeout, Unavailable
from ams.push.failing import Unreachable

_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
"""Headers of the connection, which no auth method sets."""
_SENT_AS_THEY_ARE = "/:?#[]@!$&'()*+,;=%{}"
"""Letters of a configured path beside those that never mean anything."""

SECONDS = 10.0
"""Most that one answer may take, everything included: less than a login may take (15, A18)."""

_log = structlog.get_logger()


@dataclass(slots=True)
class Figures:
    """What there is to tell of the services, for `/metrics`."""

    requests: int = 0
    failures: int = 0
    """Of them, those without a usable answer; a user that is gone is no failure."""
    seconds: float = 0.0
    """All requests together took so long."""


class Services:
    """All services that users of ours belong to."""

    def __init__(
        self,
        paths: Mapping[str, str],
        fields: Mapping[str, str],
        trust: ssl.SSLContext,
        *,
        seconds: float = SECONDS,
    ) -> None:
        """Know the path and the field of each type (`service_types_paths`, `service_types_retrieval_fields`)."""
        self._paths = paths
        self._fields = fields
        self._seconds = seconds
        self._connections = Connections(trust)
        self.figures = Figures()

    async def token(self, service_type: ServiceType, method: AuthMethod, unique_key: str) -> str:
        """Return the token of a user.

        Raises `NotFound` for a user the service does not have, `ServiceFailed` for any answer but a good one,
        `ServiceTimeout` for none in time, and `Unavailable` for a type whose path or field nobody has set.
        """
        path, field = self._paths.get(service_type.type), self._fields.get(service_type.type)
        if not path or not field:
            raise Unavailable("Backend error")
        began = time.perf_counter()
        self.figures.requests += 1
        try:
            return _token(await self._asked(path, method, unique_key), field)
        except ServiceFailed as error:
            self.figures.failures += 1
            _log.warning("a service gave no token", service=service_type.name, host=method.host, reason=error.message)
            raise
        finally:
            self.figures.seconds += time.perf_counter() - began

    async def close(self) -> None:
        """End all idle connections."""
        await self._connections.close()

    async def _asked(self, path: str, method: AuthMethod, unique_key: str) -> Answer:
        request = _request(path, method, unique_key)
        try:
            return await self._connections.ask((method.host, method.port), request, seconds=self._seconds)
        except TimeoutError:
            raise ServiceTimeout("The service did not answer in time") from None
        except Unreachable as error:
            raise ServiceFailed(f"The service could not be asked: {error}") from error


def _token(answer: Answer, field: str) -> str:
    if answer.status == 404:
        raise NotFound("User was not found")
    if not 200 <= answer.status < 300:  # a redirect too: our headers are for nobody else
        raise ServiceFailed(f"The service answered with status {answer.status}")
    try:
        user = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ServiceFailed("The answer of the service is not JSON") from None
    token = user.get(field) if isinstance(user, dict) else None
    if not isinstance(token, str) or not token:
        raise ServiceFailed(
            f"The specified retrieval field: `{field}` was not found in the response body of the service type"
        )
    return token


def _request(path: str, method: AuthMethod, unique_key: str) -> bytes:
    """Write a request; raise `ServiceFailed` for an auth method that holds what cannot be sent."""
    try:
        lines = [f"GET {_target(path, method, unique_key)} HTTP/1.1", f"Host: {_authority(method)}", *_headers(method)]
        if all(line.isprintable() for line in lines):
            return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise ServiceFailed("The auth method holds what cannot be sent")


def _target(path: str, method: AuthMethod, unique_key: str) -> str:
    target = quote(path, safe=_SENT_AS_THEY_ARE).replace("{{identifier}}", quote(unique_key, safe=""))
    if method.type != API_KEY:
        return target
    return target.replace("{{access_key}}", quote(method.access_key, safe=""))


def _headers(method: AuthMethod) -> list[str]:
    given = {} if method.type == API_KEY else method.headers
    return [
        "Accept: application/json",
        *(f"{name}: {value}" for name, value in given.items() if name.lower() not in _OURS),
    ]


def _authority(method: AuthMethod) -> str:
    shown = f"[{method.host}]" if ":" in method.host else method.host
    return shown if method.port == 443 else f"{shown}:{method.port}"


def service_trust(ca_file: str = "", *, verify: bool = True) -> ssl.SSLContext:
    """Return what certificates of services are checked by: the system's CAs, and those in a file (PEM).

    `verify=False` believes any; only for development. Raises `BadSettings` when the file cannot be read.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # an ssl.SSLError is one
            raise BadSettings(f"service_ca {ca_file}: {error.strerror or error}") from error
    return context
