"""Services, which are asked for the tokens of their users (contract 8, steps 8 to 10; 15, A17).

Neither the answer of a service nor the headers it is asked with are passed on: they may hold secrets.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import quote

import httpcore
import msgspec
import structlog

from ams.authn.values import API_KEY, AuthMethod, ServiceType
from ams.core.errors import NotFound, ServiceFailed, ServiceTimeout, Unavailable
from ams.outgoing.client import AnswerTooLong, HttpClient, RequestFailed, Response, TimedOut, authority
from ams.outgoing.guard import EVERYWHERE, Guard
from ams.push.connecting import of_socket

_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
"""Headers of the connection, which no auth method sets."""
_SENT_AS_THEY_ARE = "/:?#[]@!$&'()*+,;=%{}"
"""Characters of a configured path that are not escaped, besides the unreserved ones."""

SECONDS = 10.0
"""Most that one answer may take, everything included: less than a login may take (15, A18)."""
MOST_BYTES = 4 * 1024 * 1024
"""Of an answer. An AMS user comes with the topics and subscriptions of all projects of theirs."""

_log = structlog.get_logger()


class Services:
    """Asks all services."""

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
        self._client = HttpClient(Guard(EVERYWHERE), trust, seconds=seconds, most_bytes=MOST_BYTES)
        self.requests = 0
        self.failures = 0
        """Of the requests, those without a usable answer; a user that is gone is no failure."""
        self.seconds = 0.0
        """All requests together took so long."""

    async def token(self, service_type: ServiceType, method: AuthMethod, unique_key: str) -> str:
        """Return the token of a user.

        Raises `NotFound` for a user the service does not have, `ServiceFailed` for any answer but a good one,
        `ServiceTimeout` for none in time, and `Unavailable` for a type whose path or field is not set.
        """
        path, field = self._paths.get(service_type.type), self._fields.get(service_type.type)
        if not path or not field:
            raise Unavailable("Backend error")
        began = time.perf_counter()
        self.requests += 1
        try:
            return _token(await self._asked(path, method, unique_key), field)
        except ServiceFailed as error:
            self.failures += 1
            _log.warning("a service gave no token", service=service_type.name, host=method.host, reason=error.message)
            raise
        finally:
            self.seconds += time.perf_counter() - began

    async def close(self) -> None:
        """End all idle connections."""
        await self._client.close()

    async def _asked(self, path: str, method: AuthMethod, unique_key: str) -> Response:
        request = _request(path, method, unique_key)
        try:
            return await self._client.ask(request)
        except TimedOut:
            raise ServiceTimeout("The service did not answer in time") from None
        except RequestFailed as error:
            raise ServiceFailed(f"The service could not be asked: {_reason(error)}") from error


def _reason(failed: RequestFailed) -> str:
    """Return why there was no answer, in words for those who log in."""
    error = failed.__cause__
    if isinstance(failed, AnswerTooLong):
        return "The answer is too long"
    if isinstance(error, socket.gaierror | UnicodeError):  # the latter for what can be no name
        return "Its host has no address"
    if isinstance(error, OSError):
        return of_socket(error)
    if isinstance(error, httpcore.LocalProtocolError):
        return "The auth method holds what cannot be sent"
    if not isinstance(error, httpcore.RemoteProtocolError):
        return "It has no host name that TLS could check"
    if "without sending" in str(error):  # a response, or a complete message body
        return "The connection was closed"
    return "The service wants to speak another protocol" if "_SWITCH_" in str(error) else "The answer is not HTTP/1.1"


def _token(answer: Response, field: str) -> str:
    if answer.status == 404:
        raise NotFound("User was not found")
    if not 200 <= answer.status < 300:  # redirects too: the headers are secrets of this host alone
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


def _request(path: str, method: AuthMethod, unique_key: str) -> httpcore.Request:
    """Return a request; raise `ServiceFailed` for an auth method that holds what cannot be sent."""
    try:
        target, host = _target(path, method, unique_key), method.host
        given = {} if method.type == API_KEY else method.headers
        sent = [(name, value) for name, value in given.items() if name.lower() not in _OURS]
        if all(text.isprintable() for text in (target, host, *(text for header in sent for text in header))):
            encoded = [(name.encode("latin-1"), value.strip().encode("latin-1")) for name, value in sent]
            url = httpcore.URL(scheme=b"https", host=host.encode("latin-1"), port=method.port, target=target.encode())
            host_header = authority(b"https", url.host, method.port)
            headers = [(b"Host", host_header), (b"Accept", b"application/json"), *encoded]
            return httpcore.Request("GET", url, headers=headers)
    except UnicodeEncodeError:
        pass
    raise ServiceFailed("The auth method holds what cannot be sent")


def _target(path: str, method: AuthMethod, unique_key: str) -> str:
    target = quote(path, safe=_SENT_AS_THEY_ARE).replace("{{identifier}}", quote(unique_key, safe=""))
    if method.type != API_KEY:
        return target
    return target.replace("{{access_key}}", quote(method.access_key, safe=""))
