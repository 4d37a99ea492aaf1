"""`ams authn serve` as a whole: from settings to a service that answers, and back in order when it is told to stop."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from ams.attempts import Attempts
from ams.audit.asking import FILTERS, listing, wanted
from ams.audit.event import LOGIN, AuditEvent, result_of
from ams.audit.logins import FailedLogins
from ams.audit.records import AuditRecords
from ams.audit.trail import FileTrail, Trail
from ams.authn.auth_methods import AuthMethods
from ams.authn.bindings import Bindings
from ams.authn.certificates.checks import CertificateChecks, CheckOptions
from ams.authn.figures import AuthnFigures, Parts
from ams.authn.folder import AuthnFolder
from ams.authn.http.app import AuthnApp
from ams.authn.http.errors import refusal
from ams.authn.http.gate import AmsUsers, Gate
from ams.authn.http.protocol import Front
from ams.authn.http.relaying import Relaying
from ams.authn.http.routing import Asked
from ams.authn.http.tls import AskingContext
from ams.authn.keys import Keys
from ams.authn.login import SECONDS, Login
from ams.authn.service_types import ServiceTypes, Supported
from ams.authn.services import Services, service_trust
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.tables import audit
from ams.authn.values import Peer, Presented
from ams.clock import Clock, SystemClock
from ams.database.database import sqlite_url
from ams.errors import AmsError
from ams.http.asgi import Application
from ams.http.errors import Refusal
from ams.http.operations import Operations
from ams.http.server import listen, server, until_started
from ams.http.tls import Certificate, self_signed
from ams.names import new_uuid
from ams.observing import metrics_of
from ams.push.guard import Guard, networks

CERTIFICATE_CHECK_SECONDS = 60
SHARE = 0.9
"""Of the time until an answer must be sent: the deadline of a request (contract 15, A18)."""
LOGIN_SHARE = 0.8
"""Of the same, for a login: it says itself that it took too long."""

logger = structlog.get_logger("ams.authn")


@dataclass(frozen=True, slots=True)
class Running:
    """A certificate service that answers."""

    base_url: str
    operations_url: str
    folder: AuthnFolder


@dataclass(slots=True)
class _Made:
    """The service without its port."""

    app: Application
    front: Front
    certificate: Certificate
    parts: Parts


@contextlib.asynccontextmanager
async def running(settings: AuthnSettings, *, clock: Clock | None = None) -> AsyncIterator[Running]:
    """Serve until the block ends, then stop in order: no new connections, requests in flight, then the engines."""
    figures = AuthnFigures()
    async with contextlib.AsyncExitStack() as stack:
        api = stack.enter_context(contextlib.closing(listen(settings.host, settings.port, "port")))
        aside = stack.enter_context(contextlib.closing(listen(settings.ops_host, settings.ops_port, "operations port")))
        folder = AuthnFolder.take(settings.data)
        stack.callback(folder.release)
        await stack.enter_async_context(_operations(figures, aside))
        made = await _made(settings, folder, clock or SystemClock(), stack)
        figures.parts = made.parts
        await stack.enter_async_context(_served(made, api))
        try:
            yield Running(_url("https", api), _url("http", aside), folder)
        finally:
            figures.draining = True


async def _made(settings: AuthnSettings, folder: AuthnFolder, clock: Clock, stack: contextlib.AsyncExitStack) -> _Made:
    certificate, context = _certificate(settings, folder)
    management_key = folder.management_key(settings.service_token)
    store = await _store(settings, folder, clock)
    stack.push_async_callback(store.close)
    records = AuditRecords(store.database, audit)
    trail = FileTrail(folder.audit, records, clock)
    await trail.start()
    stack.push_async_callback(trail.close)
    failures = FailedLogins("authn", trail, Attempts(settings.failed_logins_per_minute, clock), clock)
    await failures.start()
    stack.push_async_callback(failures.close)
    checks = _checks(settings, folder, clock)
    stack.push_async_callback(checks.close)
    services = Services(
        dict(settings.service_types_paths),
        dict(settings.service_types_retrieval_fields),
        service_trust(settings.service_ca, verify=settings.verify_ssl),
    )
    login = Login(
        store, checks, services,
        failures=failures, trail=trail, clock=clock, code_of=_code_of,
        verify_hosts=settings.client_cert_host_verification,
        seconds=min(SECONDS, settings.server_write_timeout * LOGIN_SHARE),
        token_seconds=settings.token_seconds,
    )  # fmt: skip
    stack.push_async_callback(login.close)
    # Of their own: sites behind one address whose logins fail must not shut out who administers from there.
    attempts = Attempts(settings.failed_logins_per_minute, clock)
    users = AmsUsers(settings.ams_endpoint, settings.ams_ca or None) if settings.ams_endpoint else None
    app = AuthnApp(
        Gate(store, management_key, attempts, users),
        ServiceTypes(store, _supported(settings)),
        AuthMethods(store),
        Bindings(store),
        Keys(store),
        login,
        trail,
        store=store,
        clock=clock,
        audit=_asked_of(records),
        deadline_seconds=settings.server_write_timeout * SHARE,
        body_seconds=settings.server_read_timeout,
    )
    front = _front(settings, context)
    parts = Parts(store, checks, services, login, (failures.attempts, attempts), front)
    return _Made(_behind_proxies(settings, app, checks, trail, clock), front, certificate, parts)


def _asked_of(records: AuditRecords) -> Callable[[Asked], Awaitable[object]]:
    """Return what answers questions about the audit log."""

    async def page(asked: Asked) -> object:
        said = {name: asked.parameter(name) for name in FILTERS}
        return await listing(records, wanted(said), asked.page().size, asked.page().token)

    return page


def _certificate(settings: AuthnSettings, folder: AuthnFolder) -> tuple[Certificate, AskingContext]:
    context = AskingContext.make(proxied=settings.proxy_protocol, max_handshakes=settings.max_connections)
    chain, key = settings.cert, settings.key
    if settings.tls_self_signed:
        _, chain, key = self_signed(folder.tls)
    return Certificate.load(chain, key, context), context


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
        data_folder=folder.lists,
        policy=settings.revocation,
        ocsp=settings.ocsp,
        trust_unknown_cas=settings.trust_unknown_cas,
        verify_certificate=settings.verify_certificate,
    )
    return CertificateChecks(options, Guard(networks(",".join(settings.fetch_allow))), clock)


def _supported(settings: AuthnSettings) -> Supported:
    return Supported(
        auth_types=settings.supported_auth_types,
        auth_methods=settings.supported_auth_methods,
        types=settings.supported_service_types,
    )


def _front(settings: AuthnSettings, context: AskingContext) -> Front:
    return Front(
        context=context,
        refusal=lambda error: Refusal(refusal(error).code, refusal(error).body),
        proxies=[ipaddress.ip_network(each) for each in settings.proxies],
        head_seconds=settings.server_header_read_timeout,
        read_seconds=settings.server_read_timeout,
        idle_seconds=settings.server_idle_timeout,
        max_connections=settings.max_connections,
    )


def _behind_proxies(
    settings: AuthnSettings, app: Application, checks: CertificateChecks, trail: Trail, clock: Clock
) -> Application:
    if not settings.proxy_header:
        return app

    async def check(presented: Presented, address: str) -> None:
        await checks.check(presented, address, verify_host=False)

    async def refused(peer: Peer, scope: dict[str, Any], error: AmsError, code: int) -> None:
        await trail.record(
            AuditEvent(
                id=new_uuid(), at=clock.wall(), service="authn", action=LOGIN,
                resource=scope["path"].removeprefix("/v1")[:1000], actor="", address=peer.address,
                code=code, result=result_of(code), reason=error.message,
            )
        )  # fmt: skip

    return Relaying(
        app,
        header=settings.proxy_header,
        names=settings.proxy_names,
        check=check,
        refused=refused,
        refusal=lambda error: Refusal(refusal(error).code, refusal(error).body),
    )


def _code_of(error: AmsError) -> int:
    return refusal(error).code


@contextlib.asynccontextmanager
async def _operations(figures: AuthnFigures, sock: socket.socket) -> AsyncIterator[None]:
    """Answer on the operations port until the block ends."""
    aside = server(Operations(figures.why_not_ready, metrics_of(figures)))
    task = asyncio.create_task(aside.serve([sock]))
    try:
        await until_started(aside, task)
        yield
    finally:
        aside.should_exit = True
        await task


@contextlib.asynccontextmanager
async def _served(made: _Made, sock: socket.socket) -> AsyncIterator[None]:
    """Serve the API until the block ends."""
    main = made.front.server(made.app)
    task = asyncio.create_task(main.serve([sock]))
    watch = asyncio.create_task(_follow(made.certificate, made.parts.checks))
    try:
        await until_started(main, task)
        yield
    finally:
        watch.cancel()
        main.should_exit = True
        await task


async def _follow(certificate: Certificate, checks: CertificateChecks) -> None:
    """Read the certificate again when it changed; it and the folder of CAs at once on SIGHUP."""
    told = asyncio.Event()
    with contextlib.suppress(ValueError):  # not the main thread: then only changes are followed
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, told.set)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), CERTIFICATE_CHECK_SECONDS)
        certificate.reload(always=told.is_set())
        if told.is_set():
            checks.reload()
        told.clear()


def _url(scheme: str, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{'localhost' if shown in ('127.0.0.1', '[::1]') and scheme == 'https' else shown}:{port}"


async def serve(settings: AuthnSettings) -> None:
    """Serve until SIGTERM or SIGINT; print `ready BASE_URL` when clients can come."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # until there is a certificate to read again
    async with running(settings) as run:
        _announce(settings, run)
        await stop.wait()
        logger.info("stopping")
    logger.info("stopped", data=run.folder.path)


def _announce(settings: AuthnSettings, run: Running) -> None:
    if settings.development:
        logger.warning("development", remedy="anybody may log in: never with real users")
    logger.info("operations", url=run.operations_url)
    key = None if settings.service_token else run.folder.key
    logger.info("data", folder=run.folder.path, management_key_file=key)
    print(f"ready {run.base_url}", flush=True)
