"""Logging in: from a client's certificate to the token of the user it is bound to (contract 8).

The client is checked before its request: an address that failed too often is refused first, and an invalid certificate
before the answer shows which service types exist.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from cryptography import x509

from ams.authn.certificates.checks import CertificateChecks
from ams.authn.certificates.subjects import Subject, Subjects
from ams.authn.management import existing, require_host_of, require_supported
from ams.authn.services import Services
from ams.authn.store import Store
from ams.authn.values import (
    AUTH_METHOD_GONE,
    BINDING_GONE,
    SERVICE_TYPE_GONE,
    X509,
    AuthMethod,
    Binding,
    BindingId,
    Peer,
    Presented,
    ServiceType,
    ServiceTypeId,
    without_secrets,
)
from ams.core.attempts import MINUTE
from ams.core.cache import ExpiringCache, LruCache
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, BadRequest, CertificateRefused, RateLimited, ServiceTimeout
from ams.core.names import new_uuid
from ams.core.observing import REQUEST
from ams.outgoing.sharing import Shared
from ams.storage.audit.event import DONE, FAILED, LOGIN, REFUSED, AuditEvent, result_of
from ams.storage.audit.logins import FailedLogins
from ams.storage.audit.trail import Trail

SECONDS = 12.0
"""Most that a login may take, all it waits for included: less than the shortest time an answer must be written in
(15, A18)."""
LATELY = 3_600_000
"""Milliseconds after a login for which a certificate is not refused for failures of others at its address."""
REMEMBERED = 100_000
"""Most certificates, and most bindings, of which it is remembered when they logged in last."""
MOST_TOKENS = 10_000
"""Most answers of services that are used again."""

_log = structlog.get_logger()


class _Asked(NamedTuple):
    """Key of a request to a service; concurrent requests with the same key share one answer."""

    service_type: ServiceTypeId
    method: str
    method_updated_on: Milliseconds | None
    unique_key: str


class Login:
    """Logs clients in."""

    def __init__(
        self,
        store: Store,
        checks: CertificateChecks,
        services: Services,
        *,
        failures: FailedLogins,
        trail: Trail,
        clock: Clock,
        code_of: Callable[[AmsError], int],
        verify_hosts: bool = False,
        seconds: float = SECONDS,
        token_seconds: float = 0,
    ) -> None:
        """Take the engines; `code_of` returns the status an error is answered with, for the audit log.

        `verify_hosts` checks clients' addresses for all service types (`client_cert_host_verification`);
        `token_seconds` is how long a service's answer is used again, 0: not at all.
        """
        self._store = store
        self._checks = checks
        self._services = services
        self._failures = failures
        self._trail = trail
        self._clock = clock
        self._code_of = code_of
        self._verify_hosts = verify_hosts
        self._seconds = seconds
        self._subjects = Subjects()
        self._trusted: LruCache[bytes, Milliseconds] = LruCache(REMEMBERED)
        """When certificates logged in last, by the monotonic clock."""
        self._noted: LruCache[BindingId, Milliseconds] = LruCache(REMEMBERED)
        """When logins by a binding were noted last, by the clock on the wall."""
        self._asking: Shared[_Asked, str] = Shared()
        self._kept: ExpiringCache[_Asked, str] = ExpiringCache(MOST_TOKENS, int(token_seconds * 1000), clock.monotonic)
        self._notes: set[asyncio.Task[None]] = set()
        self.results = dict.fromkeys((DONE, REFUSED, FAILED), 0)
        """Logins by result, for `/metrics`."""

    async def token(self, service_type: str, host: str, peer: Peer) -> str:
        """Return the token of the user that the certificate of a peer is bound to.

        Raises `RateLimited`, `BadRequest`, `CertificateRefused`, `NotFound`, `Unprocessable` for errors of the
        client; `ServiceFailed`, `ServiceTimeout`, `Unavailable` where it cannot be done now.
        """
        attempt = _Attempt(without_secrets(f"/service-types/{service_type}/hosts/{host}:authx509"), peer.address)
        try:
            async with asyncio.timeout(self._seconds):
                token = await self._log_in(service_type, host, peer, attempt)
        except TimeoutError:
            error = ServiceTimeout("The login could not be finished in time")
            await self._record_failure(attempt, error)
            raise error from None
        except AmsError as error:
            await self._record_failure(attempt, error)
            raise
        await self._record(attempt)
        return token

    async def settled(self) -> None:
        """Return when the logins there were are noted."""
        if self._notes:
            await asyncio.wait(self._notes)

    async def close(self) -> None:
        """Finish what is still to be noted, and end the connections to services."""
        await self.settled()
        await self._asking.close()
        await self._services.close()

    async def _log_in(self, type_name: str, host: str, peer: Peer, attempt: "_Attempt") -> str:
        presented = self._presented(peer)
        fingerprint, subject = self._who(presented.leaf, attempt)
        found = await self._store.service_types.find(type_name)
        await self._check(presented, peer.address, found)
        service_type = _offered(found, host)
        method = existing(await self._store.auth_methods.find(service_type.uuid, host), AUTH_METHOD_GONE)
        binding = await self._bound(subject, service_type, host)
        token = await self._shared_token(service_type, method, binding.unique_key)
        self._trusted.put(fingerprint, self._clock.monotonic())
        self._note(binding)
        return token

    def _presented(self, peer: Peer) -> Presented:
        """Return the certificate a peer shows; raise when there is none, or none that can be read."""
        if peer.presented is not None:
            return peer.presented
        self._failures.attempts.check(peer.address)
        if peer.unreadable:
            raise CertificateRefused(peer.unreadable)
        raise BadRequest("No certificate provided")

    def _who(self, leaf: x509.Certificate, attempt: "_Attempt") -> tuple[bytes, Subject]:
        """Return the subject, if the client may try at all.

        A certificate that logged in lately is not refused for the failures of others at its address.
        """
        try:
            fingerprint, subject = self._subjects.of(leaf)
        except CertificateRefused:
            self._failures.attempts.check(attempt.address)
            raise
        attempt.actor, attempt.fingerprint = subject.name, fingerprint
        if not _is_within(LATELY, self._trusted.get(fingerprint), self._clock.monotonic()):
            self._failures.attempts.check(attempt.address)
        return fingerprint, subject

    async def _check(self, presented: Presented, address: str, service_type: ServiceType | None) -> None:
        verify_host = self._verify_hosts or (service_type is not None and service_type.verify_client_host)
        await self._checks.check(presented, address, verify_host=verify_host)

    async def _bound(self, subject: Subject, service_type: ServiceType, host: str) -> Binding:
        """Return the binding of a subject, when it is meant and not another that looks like it (15, A8)."""
        binding = await self._binding(subject, service_type, host)
        if binding.issuer and binding.issuer != subject.issuer:
            raise CertificateRefused("Your certificate is of another issuer than this binding names")
        if not binding.subject_sha256:
            if subject.lost is not None:
                raise CertificateRefused(f"Your certificate cannot be told from others by its subject: {subject.lost}")
            # The first login decides whom the binding means, so it is stored before the login succeeds; of two at
            # once the store keeps one.
            await self._store.bindings.note_login(binding.uuid, self._clock.wall(), subject.sha256)
            binding = await self._binding(subject, service_type, host)
        if binding.subject_sha256 != subject.sha256:
            raise CertificateRefused("Your certificate has another subject than the one first used with this binding")
        return binding

    async def _binding(self, subject: Subject, service_type: ServiceType, host: str) -> Binding:
        return existing(await self._store.bindings.for_login(subject.name, service_type.uuid, host, X509), BINDING_GONE)

    async def _shared_token(self, service_type: ServiceType, method: AuthMethod, unique_key: str) -> str:
        """Ask the service, once for all concurrent logins of this user; or take its cached answer."""
        asked = _Asked(service_type.uuid, method.uuid, method.updated_on, unique_key)
        kept = self._kept.get(asked)
        if kept is not None:
            return kept

        async def ask() -> str:
            token = await self._services.token(service_type, method, unique_key)
            self._kept.put(asked, token)
            return token

        return await self._asking.result(asked, ask)

    def _note(self, binding: Binding) -> None:
        """Note the login, at most once a minute, while the answer goes out (15, A5)."""
        now = self._clock.wall()
        if _is_within(MINUTE, self._noted.get(binding.uuid), now):
            return
        self._noted.put(binding.uuid, now)
        if _is_within(MINUTE, binding.last_auth, now):
            return
        task = asyncio.create_task(self._noted_login(binding, now))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _noted_login(self, binding: Binding, at: Milliseconds) -> None:
        try:
            await self._store.bindings.note_login(binding.uuid, at, None)
        except AmsError as error:  # the login went well all the same; the next minute has another
            _log.warning("the time of a login was not stored", binding=binding.name, reason=error.message)

    async def _record_failure(self, attempt: "_Attempt", error: AmsError) -> None:
        """Record a login that failed; only errors of the client count against its address."""
        code = self._code_of(error)
        self.results[result_of(code)] += 1
        record = self._failures.refused
        if code < 500 and not isinstance(error, RateLimited):
            record = self._failures.failed
            self._trusted.discard(attempt.fingerprint)
        await record(
            attempt.address,
            code=code,
            reason=without_secrets(error.message),
            resource=attempt.resource,
            actor=attempt.actor,
            request=REQUEST.get().decode(),
        )

    async def _record(self, attempt: "_Attempt") -> None:
        self.results[DONE] += 1
        await self._trail.record(
            AuditEvent(
                id=new_uuid(),
                at=self._clock.wall(),
                service="authn",
                action=LOGIN,
                resource=attempt.resource,
                actor=attempt.actor,
                address=attempt.address,
                code=200,
                result=DONE,
                request=REQUEST.get().decode(),
            )
        )


@dataclass(slots=True)
class _Attempt:
    """One login, for the audit log."""

    resource: str
    address: str
    actor: str = ""
    fingerprint: bytes = b""


def _is_within(span: int, at: Milliseconds | None, now: Milliseconds) -> bool:
    """Whether a moment was less than `span` milliseconds ago."""
    return at is not None and 0 <= now - at < span


def _offered(found: ServiceType | None, host: str) -> ServiceType:
    """Return a service type if certificates log in to this host of it."""
    service_type = existing(found, SERVICE_TYPE_GONE)
    require_supported("Auth type", X509, service_type.auth_types)
    require_host_of(service_type, host)
    return service_type
