"""Login: exchanges a client's certificate for the token of its bound user (contract 8; 15, A17).

The client is checked before its request: blocked addresses first, then invalid certificates, so the answer does not
reveal service types to them. The token comes from the user's service. Neither the service's answer nor the headers of
the request to it are passed on: they may contain secrets.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from urllib.parse import quote

import httpcore
import msgspec
import structlog
from cryptography import x509

from ams.authn import values
from ams.authn.certificates.certificate import Subject, Subjects
from ams.authn.certificates.validation import CertificateChecks
from ams.authn.management import existing, require_host_of, require_supported
from ams.authn.store import Store
from ams.core import errors
from ams.core.cache import ExpiringCache, LruCache
from ams.core.clock import Clock, Milliseconds
from ams.core.coalescing import SingleFlight
from ams.core.rate import MINUTE
from ams.core.telemetry import REQUEST
from ams.outgoing.address_guard import ALL_NETWORKS, Guard
from ams.outgoing.client import AnswerTooLong, HttpClient, RequestFailed, Response, TimedOut, authority
from ams.push.endpoint_connection import socket_error_text
from ams.storage.audit.event import DONE, FAILED, LOGIN, REFUSED, new_event, result_of
from ams.storage.audit.trail import FailedLogins, Trail

LOGIN_SECONDS = 12.0  # for a whole login: less than the shortest time for sending an answer (15, A18)
SERVICE_SECONDS = 10.0  # limit of one service's answer in total: less than a login may take (15, A18)
RECENT_LOGIN_MS = 3_600_000  # after a login, failures of others at its address do not block a certificate so long
MAX_REMEMBERED_LOGINS = 100_000  # certificates, and bindings, whose last login is remembered
MAX_CACHED_TOKENS = 10_000  # cached answers of services
MAX_ANSWER_BYTES = 4 * 1024 * 1024  # an AMS user comes with the topics and subscriptions of all its projects
# Headers of the connection, which auth methods do not set.
_CONNECTION_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_UNESCAPED_CHARACTERS = "/:?#[]@!$&'()*+,;=%{}"  # of a configured path, besides the unreserved ones

_log = structlog.get_logger()

_TokenKey = tuple[values.ServiceTypeId, str, Milliseconds | None, str]
"""A service type, its auth method and the time of its last change, and a user. Concurrent requests with the same key
share one answer."""


@dataclass(eq=False)
class Login:
    """Logs clients in; `code_of` returns the status of an error, for the audit log.

    `verify_hosts` is for all service types. `token_seconds` of 0: each login asks the service.
    """

    store: Store
    checks: CertificateChecks
    services: "Services"
    _: KW_ONLY
    failures: FailedLogins
    trail: Trail
    clock: Clock
    code_of: Callable[[errors.AmsError], int]
    verify_hosts: bool = False
    seconds: float = LOGIN_SECONDS
    token_seconds: float = 0

    def __post_init__(self) -> None:
        self._subjects = Subjects()
        # Last login by certificate (monotonic clock), and last stored login by binding (wall clock).
        self._trusted: LruCache[bytes, Milliseconds] = LruCache(MAX_REMEMBERED_LOGINS)
        self._noted: LruCache[values.BindingId, Milliseconds] = LruCache(MAX_REMEMBERED_LOGINS)
        self._asking: SingleFlight[_TokenKey, str] = SingleFlight()
        kept = int(self.token_seconds * 1000)
        self._kept: ExpiringCache[_TokenKey, str] = ExpiringCache(MAX_CACHED_TOKENS, kept, self.clock.monotonic)
        self._notes: set[asyncio.Task[None]] = set()
        self.results = dict.fromkeys((DONE, REFUSED, FAILED), 0)  # logins by result, for `/metrics`

    async def token(self, service_type: str, host: str, peer: values.Peer) -> str:
        """Return the token of the user to which a peer's certificate is bound.

        Raises `ServiceFailed`, `ServiceTimeout`, `Unavailable` if not possible now. Other errors are the client's.
        """
        attempt = _Attempt(values.without_secrets(f"/service-types/{service_type}/hosts/{host}:authx509"), peer.address)
        try:
            async with asyncio.timeout(self.seconds):
                token = await self._log_in(service_type, host, peer, attempt)
        except TimeoutError:
            error = errors.ServiceTimeout("The login could not be finished in time")
            await self._record_failure(attempt, error)
            raise error from None
        except errors.AmsError as error:
            await self._record_failure(attempt, error)
            raise
        self.results[DONE] += 1
        event = new_event(
            self.clock.wall(), "authn", LOGIN, attempt.resource, actor=attempt.actor, address=attempt.address,
            request=REQUEST.get().decode(),
        )  # fmt: skip
        await self.trail.record(event)
        return token

    async def wait_stored(self) -> None:
        """Wait until all logins are stored."""
        if self._notes:
            await asyncio.wait(self._notes)

    async def close(self) -> None:
        """Store the remaining logins, and close the connections to services."""
        await self.wait_stored()
        await self._asking.close()
        await self.services.close()

    async def _log_in(self, type_name: str, host: str, peer: values.Peer, attempt: "_Attempt") -> str:
        presented = peer.presented
        if presented is None:
            self.failures.attempts.check(peer.address)
            if peer.unreadable:
                raise errors.CertificateRefused(peer.unreadable)
            raise errors.BadRequest("No certificate provided")
        fingerprint, subject = self._subject(presented.leaf, attempt)
        found = await self.store.service_types.find(type_name)
        verify_host = self.verify_hosts or (found is not None and found.verify_client_host)
        await self.checks.check(presented, peer.address, verify_host=verify_host)
        service_type = existing(found, values.SERVICE_TYPE_GONE)
        require_supported("Auth type", values.X509, service_type.auth_types)
        require_host_of(service_type, host)
        method = existing(await self.store.auth_methods.find(service_type.uuid, host), values.AUTH_METHOD_GONE)
        binding = await self._find_binding(subject, service_type, host)
        token = await self._shared_token(service_type, method, binding.unique_key)
        self._trusted.put(fingerprint, self.clock.monotonic())
        self._note(binding)
        return token

    def _subject(self, leaf: x509.Certificate, attempt: "_Attempt") -> tuple[bytes, Subject]:
        try:
            fingerprint, subject = self._subjects.of(leaf)
        except errors.CertificateRefused:
            self.failures.attempts.check(attempt.address)
            raise
        attempt.actor, attempt.fingerprint = subject.name, fingerprint
        if not _is_within(RECENT_LOGIN_MS, self._trusted.get(fingerprint), self.clock.monotonic()):
            self.failures.attempts.check(attempt.address)
        return fingerprint, subject

    async def _find_binding(
        self, subject: Subject, service_type: values.ServiceType, host: str
    ) -> values.SubjectBinding:
        """Return the binding of a subject; refuse another subject with the same normal form (15, A8)."""
        binding = await self._binding(subject, service_type, host)
        if binding.issuer and binding.issuer != subject.issuer:
            raise errors.CertificateRefused("Your certificate is of another issuer than this binding names")
        if not binding.subject_sha256:
            if subject.lost is not None:
                said = "Your certificate cannot be told from others by its subject"
                raise errors.CertificateRefused(f"{said}: {subject.lost}")
            # The first login fixes the subject of the binding, so it is stored before the login succeeds. The store
            # keeps one of two concurrent ones.
            await self.store.bindings.note_login(binding.uuid, self.clock.wall(), subject.sha256)
            binding = await self._binding(subject, service_type, host)
        if binding.subject_sha256 != subject.sha256:
            text = "Your certificate has another subject than the one first used with this binding"
            raise errors.CertificateRefused(text)
        return binding

    async def _binding(self, subject: Subject, service_type: values.ServiceType, host: str) -> values.SubjectBinding:
        found = await self.store.bindings.for_login(subject.name, service_type.uuid, host, values.X509)
        return existing(found, values.BINDING_GONE)

    async def _shared_token(self, service_type: values.ServiceType, method: values.AuthMethod, unique_key: str) -> str:
        """Ask the service, once for concurrent logins of one user; or return the cached answer."""
        asked = (service_type.uuid, method.uuid, method.updated_on, unique_key)
        if (kept := self._kept.get(asked)) is not None:
            return kept

        async def ask() -> str:
            token = await self.services.token(service_type, method, unique_key)
            self._kept.put(asked, token)
            return token

        return await self._asking.result(asked, ask)

    def _note(self, binding: values.SubjectBinding) -> None:
        """Store the login in the background, at most once a minute (15, A5)."""
        now = self.clock.wall()
        if _is_within(MINUTE, self._noted.get(binding.uuid), now):
            return
        self._noted.put(binding.uuid, now)
        if not _is_within(MINUTE, binding.last_auth, now):
            task = asyncio.create_task(self._store_login(binding, now))
            self._notes.add(task)
            task.add_done_callback(self._notes.discard)

    async def _store_login(self, binding: values.SubjectBinding, at: Milliseconds) -> None:
        try:
            await self.store.bindings.note_login(binding.uuid, at, None)
        except errors.AmsError as error:  # the login itself succeeded; another will be stored in a minute
            _log.warning("the time of a login was not stored", binding=binding.name, reason=error.message)

    async def _record_failure(self, attempt: "_Attempt", error: errors.AmsError) -> None:
        code = self.code_of(error)
        self.results[result_of(code)] += 1
        is_counted = code < 500 and not isinstance(error, errors.RateLimited)
        if is_counted:
            self._trusted.discard(attempt.fingerprint)
        said = {"resource": attempt.resource, "actor": attempt.actor, "request": REQUEST.get().decode()}
        reason = values.without_secrets(error.message)
        await self.failures.record_failure(attempt.address, code=code, reason=reason, is_counted=is_counted, **said)


@dataclass(slots=True)
class _Attempt:
    resource: str
    address: str
    actor: str = ""
    fingerprint: bytes = b""


def _is_within(span: int, at: Milliseconds | None, now: Milliseconds) -> bool:
    return at is not None and 0 <= now - at < span


class Services:
    """Asks services for the tokens of their users (contract 8, steps 8 to 10)."""

    def __init__(
        self, paths: Mapping[str, str], fields: Mapping[str, str], tls: ssl.SSLContext, seconds: float = SERVICE_SECONDS
    ) -> None:
        """`paths` and `fields` are by type (`service_types_paths`, `service_types_retrieval_fields`)."""
        self._paths, self._fields = paths, fields
        self._client = HttpClient(Guard(ALL_NETWORKS), tls, seconds=seconds, most_bytes=MAX_ANSWER_BYTES)
        self.requests = 0
        self.failures = 0  # requests without a usable answer; unknown users do not count
        self.seconds = 0.0  # total of all requests

    async def token(self, service_type: values.ServiceType, method: values.AuthMethod, unique_key: str) -> str:
        """Return the token of a user. Raises `NotFound`, `ServiceFailed`, `ServiceTimeout`, `Unavailable`."""
        path, field = self._paths.get(service_type.type), self._fields.get(service_type.type)
        if not path or not field:
            raise errors.Unavailable("Backend error")
        began = time.perf_counter()
        self.requests += 1
        try:
            return _token(await self._ask(path, method, unique_key), field)
        except errors.ServiceFailed as error:
            self.failures += 1
            _log.warning("a service gave no token", service=service_type.name, host=method.host, reason=error.message)
            raise
        finally:
            self.seconds += time.perf_counter() - began

    async def close(self) -> None:
        """Close all idle connections."""
        await self._client.close()

    async def _ask(self, path: str, method: values.AuthMethod, unique_key: str) -> Response:
        request = _request(path, method, unique_key)
        try:
            return await self._client.ask(request)
        except TimedOut:
            raise errors.ServiceTimeout("The service did not answer in time") from None
        except RequestFailed as error:
            raise errors.ServiceFailed(f"The service could not be asked: {_reason(error)}") from error


def _reason(failed: RequestFailed) -> str:
    error = failed.__cause__
    if isinstance(failed, AnswerTooLong):
        return "The answer is too long"
    if isinstance(error, socket.gaierror | UnicodeError):  # the latter for impossible names
        return "Its host has no address"
    if isinstance(error, OSError):
        return socket_error_text(error)
    if isinstance(error, httpcore.LocalProtocolError):
        return "The auth method holds what cannot be sent"
    if not isinstance(error, httpcore.RemoteProtocolError):
        return "It has no host name that TLS could check"
    if "without sending" in str(error):  # a response, or a complete message body
        return "The connection was closed"
    return "The service wants to speak another protocol" if "_SWITCH_" in str(error) else "The answer is not HTTP/1.1"


def _token(answer: Response, field: str) -> str:
    if answer.status == 404:
        raise errors.NotFound("User was not found")
    if not 200 <= answer.status < 300:  # redirects too: the headers are secrets for this host alone
        raise errors.ServiceFailed(f"The service answered with status {answer.status}")
    try:
        user = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise errors.ServiceFailed("The answer of the service is not JSON") from None
    token = user.get(field) if isinstance(user, dict) else None
    if not isinstance(token, str) or not token:
        said = f"The specified retrieval field: `{field}` was not found in the response body of the service type"
        raise errors.ServiceFailed(said)
    return token


def _request(path: str, method: values.AuthMethod, unique_key: str) -> httpcore.Request:
    try:
        target = quote(path, safe=_UNESCAPED_CHARACTERS).replace("{{identifier}}", quote(unique_key, safe=""))
        if method.type == values.API_KEY:
            target = target.replace("{{access_key}}", quote(method.access_key, safe=""))
        given = {} if method.type == values.API_KEY else method.headers
        sent = [(name, value) for name, value in given.items() if name.lower() not in _CONNECTION_HEADERS]
        if all(text.isprintable() for text in (target, method.host, *(text for header in sent for text in header))):
            encoded = [(name.encode("latin-1"), value.strip().encode("latin-1")) for name, value in sent]
            host = method.host.encode("latin-1")
            url = httpcore.URL(scheme=b"https", host=host, port=method.port, target=target.encode())
            common = [(b"Host", authority(b"https", host, method.port)), (b"Accept", b"application/json")]
            return httpcore.Request("GET", url, headers=[*common, *encoded])
    except UnicodeEncodeError:
        pass
    raise errors.ServiceFailed("The auth method holds what cannot be sent")
