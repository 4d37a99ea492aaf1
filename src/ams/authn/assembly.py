"""The parts of the certificate service, opened in order and put together (`ams.authn.program` gives it ports)."""

import contextlib
import ipaddress
import os
import resource
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ams.authn.auth_methods import AuthMethods
from ams.authn.bindings import Bindings
from ams.authn.certificates.checks import CertificateChecks, CheckOptions
from ams.authn.figures import Parts
from ams.authn.folder import AuthnFolder
from ams.authn.http.app import AuthnApp
from ams.authn.http.errors import refusal, unasked
from ams.authn.http.gate import AmsUsers, Gate
from ams.authn.http.protocol import Front
from ams.authn.http.relaying import Relaying
from ams.authn.http.routing import Asked
from ams.authn.http.tls import AskingContext
from ams.authn.keys import Keys
from ams.authn.login import SECONDS, Login
from ams.authn.service_types import ServiceTypes, Supported
from ams.authn.services import Services
from ams.authn.settings import AuthnSettings
from ams.authn.showing import shown
from ams.authn.store import Store
from ams.authn.store.tables import audit
from ams.authn.values import Peer, Presented
from ams.core.attempts import Attempts
from ams.core.clock import Clock
from ams.core.errors import AmsError, BadSettings
from ams.core.supervisor import Supervisor
from ams.http.asgi import Application
from ams.http.tls import Certificate
from ams.outgoing.guard import Guard, networks, trust
from ams.storage.audit.logins import FailedLogins
from ams.storage.audit.records import FILTERS, AuditRecords, listing, wanted
from ams.storage.audit.trail import FileTrail
from ams.storage.database.database import sqlite_url

SHARE = 0.9
"""Of the time until an answer must be sent: the deadline of a request (contract 15, A18)."""
LOGIN_SHARE = 0.8
"""Of the same, for a login: it says itself that it took too long."""
MOST_HANDSHAKES = 1_000
"""At a time. One takes 77 kB, and up to 440 kB while a client sends a large certificate slowly."""
OWN_FILES = 256
"""Open files for other things than clients: services, lists, the database, the audit log. Half of all, if less."""


@dataclass(slots=True)
class Assembled:
    """The service without its port."""

    app: Application
    front: Front
    certificate: Certificate
    parts: Parts


@dataclass(slots=True)
class _Engines:
    """What the use cases work with."""

    store: Store
    records: AuditRecords
    trail: FileTrail
    failures: FailedLogins
    checks: CertificateChecks
    services: Services


async def assembled(
    settings: AuthnSettings,
    folder: AuthnFolder,
    clock: Clock,
    supervisor: Supervisor,
    stack: contextlib.AsyncExitStack,
) -> Assembled:
    """Open the parts and put them together; the stack closes them, in the opposite order.

    Raises `Unusable` and `BadSettings` for what cannot be worked with, and `RegistryUnavailable` for a PostgreSQL that
    does not answer.
    """
    _check_authorities(settings)
    certificate, context = _certificate(settings, folder)
    management_key = folder.management_key(settings.service_token)
    engines = await _engines(settings, folder, clock, supervisor, stack)
    login = _login(settings, engines, clock)
    stack.push_async_callback(login.close)
    # Of their own: sites behind one address whose logins fail must not shut out who administers from there.
    attempts = Attempts(settings.failed_logins_per_minute, clock)
    users = AmsUsers(settings.ams_endpoint, settings.ams_ca or None) if settings.ams_endpoint else None
    app = _app(settings, engines, login, Gate(engines.store, management_key, attempts, users), clock)
    front = _front(settings, context)
    counted = (engines.failures.attempts, attempts)
    parts = Parts(engines.store, engines.checks, engines.services, login, counted, front)
    return Assembled(_behind_proxies(settings, app, engines), front, certificate, parts)


async def _engines(
    settings: AuthnSettings,
    folder: AuthnFolder,
    clock: Clock,
    supervisor: Supervisor,
    stack: contextlib.AsyncExitStack,
) -> _Engines:
    store = await _store(settings, folder, clock)
    stack.push_async_callback(store.close)
    records = AuditRecords(store.database, audit)
    trail = FileTrail(folder.audit, records, clock, days=settings.audit_days)
    await trail.start(supervisor)
    stack.push_async_callback(trail.close)
    failures = FailedLogins("authn", trail, Attempts(settings.failed_logins_per_minute, clock), clock)
    await failures.start(supervisor)
    stack.push_async_callback(failures.close)
    checks = _checks(settings, folder, clock)
    stack.push_async_callback(checks.close)
    services = Services(
        dict(settings.service_types_paths),
        dict(settings.service_types_retrieval_fields),
        trust(settings.service_ca, "service_ca", verify=settings.verify_ssl),
    )
    return _Engines(store, records, trail, failures, checks, services)


def _login(settings: AuthnSettings, engines: _Engines, clock: Clock) -> Login:
    return Login(
        engines.store, engines.checks, engines.services,
        failures=engines.failures, trail=engines.trail, clock=clock, code_of=_code_of,
        verify_hosts=settings.client_cert_host_verification,
        seconds=min(SECONDS, settings.server_write_timeout * LOGIN_SHARE),
        token_seconds=settings.token_seconds,
    )  # fmt: skip


def _app(settings: AuthnSettings, engines: _Engines, login: Login, gate: Gate, clock: Clock) -> AuthnApp:
    store = engines.store
    return AuthnApp(
        gate,
        ServiceTypes(store, _supported(settings)),
        AuthMethods(store),
        Bindings(store),
        Keys(store),
        login,
        engines.trail,
        store=store,
        clock=clock,
        audit=_asked_of(engines.records),
        deadline_seconds=settings.server_write_timeout * SHARE,
        body_seconds=settings.server_read_timeout,
    )


def _asked_of(records: AuditRecords) -> Callable[[Asked], Awaitable[object]]:
    """Return what answers questions about the audit log."""

    async def page(asked: Asked) -> object:
        said = {name: asked.parameter(name) for name in FILTERS}
        return await listing(records, wanted(said), asked.page().size, asked.page().token)

    return page


def _certificate(settings: AuthnSettings, folder: AuthnFolder) -> tuple[Certificate, AskingContext]:
    most = min(bearable(settings), MOST_HANDSHAKES)
    context = AskingContext.make(proxied=settings.proxy_protocol, max_handshakes=most)
    if settings.tls_self_signed:
        return Certificate.local(folder.tls, context), context
    return Certificate.load(settings.cert, settings.key, context), context


async def _store(settings: AuthnSettings, folder: AuthnFolder, clock: Clock) -> Store:
    if settings.registry != "sqlite":
        # Another service may have written the tables: whether the key made here is theirs, the store says.
        key = folder.seal_key(settings.secrets_key, create=True)
        return await Store.open(settings.registry, key, password=settings.registry_password, clock=clock)
    key = folder.seal_key(settings.secrets_key, create=not folder.has_database)
    return await Store.open(sqlite_url(folder.database), key, clock=clock)


def _checks(settings: AuthnSettings, folder: AuthnFolder, clock: Clock) -> CertificateChecks:
    options = CheckOptions(
        folder=settings.client_ca,
        crl_folder=folder.crls,
        policy=settings.revocation,
        ocsp=settings.ocsp,
        trust_unknown_cas=settings.trust_unknown_cas,
        verify_certificate=settings.verify_certificate,
    )
    return CertificateChecks(options, Guard(networks(",".join(settings.fetch_allow), "fetch_allow")), clock)


def _supported(settings: AuthnSettings) -> Supported:
    return Supported(
        auth_types=settings.supported_auth_types,
        auth_methods=settings.supported_auth_methods,
        types=settings.supported_service_types,
    )


def _front(settings: AuthnSettings, context: AskingContext) -> Front:
    return Front(
        context=context,
        refusal=unasked,
        proxies=[ipaddress.ip_network(each) for each in settings.proxies],
        head_seconds=settings.server_header_read_timeout,
        read_seconds=settings.server_read_timeout,
        idle_seconds=settings.server_idle_timeout,
        max_connections=bearable(settings),
    )


def _check_authorities(settings: AuthnSettings) -> None:
    """Raise `BadSettings` for CAs that cannot be read: nobody could log in, or manage by AMS, and nobody would know."""
    try:
        if settings.client_ca:
            os.listdir(settings.client_ca)
    except OSError as error:
        raise BadSettings(f"client_ca {settings.client_ca}: {error.strerror}") from error
    try:
        if settings.ams_ca:
            ssl.create_default_context(cafile=settings.ams_ca)
    except OSError as error:  # an ssl.SSLError is one
        raise BadSettings(f"ams_ca {settings.ams_ca}: {error.strerror or error}") from error


def bearable(settings: AuthnSettings) -> int:
    """Return how many connections there may be, and beside them handshakes: whoever opens more is turned away.

    Else those who only open connections would take the files that all others need.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(settings.max_connections, (soft - min(OWN_FILES, soft // 2)) // 2), 1)


def _behind_proxies(settings: AuthnSettings, app: Application, engines: _Engines) -> Application:
    if not settings.proxy_header:
        return app

    async def check(presented: Presented, address: str) -> None:
        await engines.checks.check(presented, address, verify_host=False)

    async def refused(peer: Peer, scope: dict[str, Any], error: AmsError, code: int) -> None:
        record = engines.failures.failed if code < 500 else engines.failures.refused
        await record(peer.address, code=code, reason=error.message, resource=shown(scope["path"].removeprefix("/v1")))

    return Relaying(
        app, header=settings.proxy_header, names=settings.proxy_names, check=check, refused=refused, refusal=unasked
    )


def _code_of(error: AmsError) -> int:
    return refusal(error).code
