"""`ams authn serve` as a program: runs the certificate service from its settings to an orderly stop.

Its data folder has keys, a lock and the database. It may be the folder of AMS, running or not: all names begin with
`authn`, which AMS ignores (`ams.storage.folder`).
"""

import asyncio
import contextlib
import ipaddress
import os
import resource
import signal
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from ams.authn.certificates.validation import CertificateChecks
from ams.authn.http.app import AuthnApp
from ams.authn.http.authentication import AmsUsers, ManagementGate
from ams.authn.http.errors import refusal
from ams.authn.http.proxies import Relaying
from ams.authn.http.routes import Handlers
from ams.authn.http.tls import AskingContext, new_server
from ams.authn.login import LOGIN_SECONDS, Login, Services
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.core.clock import Clock, SystemClock
from ams.core.errors import BadSettings, Unusable
from ams.core.rate import LoginLimit
from ams.core.supervisor import Supervisor, Ticker, run_until_stopped
from ams.core.telemetry import Figure, background_failures, figure
from ams.http.asgi import Application
from ams.http.operations import ProgramState, serve_operations
from ams.http.tls import Certificate
from ams.outgoing.address_guard import Guard, networks, trust
from ams.storage.audit.trail import FailedLogins, Trail
from ams.storage.database.database import sqlite_url
from ams.storage.files import Disk, write_whole
from ams.storage.folder import CERTIFICATE_SERVICE, DataCheck, check_not_foreign, is_ours, lock_folder
from ams.storage.free_space import FreeSpace
from ams.storage.secrets import key_file, new_token, parse_key
from ams.web.connection import GOODBYE_SECONDS
from ams.web.listener import ListenerLimits, connection_counters, connection_gauges
from ams.web.server import HttpServer, listen, url_of

STOP_SECONDS = 9.5  # limit of a stop; then the process is ended, even if something hangs
DEADLINE_SHARE = 0.9  # of the time for sending an answer: the deadline of a request (contract 15, A18)
LOGIN_SHARE = 0.8  # the same for a login, which reports its own timeout
RESERVED_FILES = 512  # for the operations port, services, lists, the database and the audit log; at most half
SPACE_SECONDS = 10.0  # between two looks at the disk, for the reserve and the reported state
LOCK = f"{CERTIFICATE_SERVICE}.lock"
_MAX_KEY_BYTES = 4096

logger = structlog.get_logger("ams.authn")


class AuthnFolder:
    """A locked data folder and the paths in it."""

    def __init__(self, path: str, lock: int) -> None:
        self.path, self._lock = path, lock
        self.database = self.place(".db")  # unless it is PostgreSQL
        self.key = self.place(".key")  # the management key

    @classmethod
    def take(cls, path: str) -> "AuthnFolder":
        """Create or open the folder, and lock it. Raises `Unusable` with one line."""
        path = os.path.abspath(path)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            if not is_ours(path) and not os.path.exists(os.path.join(path, LOCK)):
                check_not_foreign(path, lambda name: name.startswith(CERTIFICATE_SERVICE))
        except OSError as error:
            raise Unusable(f"data folder {path}: {error.strerror}; choose another with --data") from error
        return cls(path, lock_folder(path, LOCK, "another certificate service"))

    def place(self, name: str) -> str:
        """Return the path of a name in the folder."""
        return os.path.join(self.path, f"{CERTIFICATE_SERVICE}{name}")

    def management_key(self, given: str) -> str:
        """Return the management key: `given`, or the file's, created at the first start (A9). Raises `Unusable`."""
        if given:
            return given
        try:
            if not os.path.exists(self.key):
                write_whole(Disk(), self.key, f"{new_token()}\n".encode())
            with open(self.key, encoding="ascii") as file:
                key = file.read(_MAX_KEY_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"{self.key}: the management key cannot be read: {error}") from error
        if not key:
            raise Unusable(f"{self.key} is empty; remove it, and the next start makes a new management key")
        return key

    def seal_key(self, given: str, *, for_postgresql: bool) -> bytes:
        """Return the key of stored secrets, created if there is none. An existing database here must have its own."""
        if given:
            return parse_key(given)
        return key_file(self.place(".seal"), create=for_postgresql or not os.path.exists(self.database))

    def release(self) -> None:
        """Release the lock, once."""
        os.close(self._lock)


@dataclass(slots=True)
class Assembled:
    """The service and its port. `attempts` counts failures of logins, and of management keys."""

    server: HttpServer
    certificate: Certificate
    login: Login
    attempts: Sequence[LoginLimit]


async def assemble(
    settings: AuthnSettings, folder: AuthnFolder, clock: Clock, supervisor: Supervisor, stack: contextlib.AsyncExitStack
) -> Assembled:
    """Open the parts; the stack closes them. Raises `Unusable`, `BadSettings`, `RegistryUnavailable`."""
    _check_authorities(settings)
    certificate, context = _certificate(settings, folder)
    management_key = folder.management_key(settings.service_token)
    login = await _login(settings, folder, clock, supervisor, stack)
    # Counted apart: failed logins of sites behind one address must not block administrators there.
    attempts = LoginLimit(settings.failed_logins_per_minute, clock)
    users = AmsUsers(settings.ams_endpoint, settings.ams_ca or None) if settings.ams_endpoint else None
    gate = ManagementGate(login.store, management_key, attempts, users)
    deadline = settings.server_write_timeout * DEADLINE_SHARE
    app: Application = AuthnApp(
        Handlers(gate, login.store, login, settings), login.trail, clock,
        deadline_seconds=deadline, body_seconds=settings.server_read_timeout,
    )  # fmt: skip
    if settings.proxy_header:
        app = Relaying(app, settings.proxy_header, settings.proxy_names, login.checks, login.failures)
    return Assembled(_server(settings, app, context), certificate, login, (login.failures.attempts, attempts))


async def _login(
    settings: AuthnSettings, folder: AuthnFolder, clock: Clock, supervisor: Supervisor, stack: contextlib.AsyncExitStack
) -> Login:
    """Open the store, and what a login needs besides."""
    space = FreeSpace(Disk(), folder.path, settings.min_free_bytes, folder.place("-reserve"), settings.reserve_bytes)
    # Another service may have written tables in PostgreSQL: the store reports if the new key is not theirs.
    elsewhere = settings.registry != "sqlite"
    key = folder.seal_key(settings.secrets_key, for_postgresql=elsewhere)
    url, password = (settings.registry, settings.registry_password) if elsewhere else (sqlite_url(folder.database), "")
    store = await Store.open(url, key, password=password, clock=clock, space=space)
    stack.push_async_callback(store.close)
    await store.look_at_space()
    looks = Ticker("free space", SPACE_SECONDS, store.look_at_space)
    await looks.start(supervisor)
    stack.push_async_callback(looks.close)
    trail = Trail(folder.place("-audit.jsonl"), store.events, clock, days=settings.audit_days, space=space)
    await trail.start(supervisor)
    stack.push_async_callback(trail.close)
    failures = FailedLogins("authn", trail, LoginLimit(settings.failed_logins_per_minute, clock), clock)
    guard = Guard(networks(",".join(settings.fetch_allow), "fetch_allow"))
    checks = CertificateChecks(settings, guard, clock, folder.place("-crls"), space=space)
    stack.push_async_callback(checks.close)
    tls = trust(settings.service_ca, "service_ca", verify=settings.verify_ssl)
    services = Services(dict(settings.service_types_paths), dict(settings.service_types_retrieval_fields), tls)
    login = Login(
        store, checks, services,
        failures=failures, trail=trail, clock=clock, code_of=lambda error: refusal(error).code,
        verify_hosts=settings.client_cert_host_verification,
        seconds=min(LOGIN_SECONDS, settings.server_write_timeout * LOGIN_SHARE),
        token_seconds=settings.token_seconds,
    )  # fmt: skip
    stack.push_async_callback(login.close)
    return login


def _certificate(settings: AuthnSettings, folder: AuthnFolder) -> tuple[Certificate, AskingContext]:
    context = AskingContext.make(proxied=settings.proxy_protocol)
    if settings.tls_self_signed:
        os.makedirs(folder.place("-tls"), mode=0o700, exist_ok=True)
        return Certificate.local(folder.place("-tls"), context), context
    return Certificate.load(settings.cert, settings.key, context), context


def _server(settings: AuthnSettings, app: Application, context: AskingContext) -> HttpServer:
    proxies = [ipaddress.ip_network(each) for each in settings.proxies]
    limits = ListenerLimits(
        connections=connection_limit(settings), handshake_seconds=settings.server_header_read_timeout,
        goodbye_seconds=GOODBYE_SECONDS, unshared=proxies, only_from=proxies,
    )  # fmt: skip
    return new_server(
        app, context, limits, head_seconds=settings.server_header_read_timeout,
        read_seconds=settings.server_read_timeout, idle_seconds=settings.server_idle_timeout,
    )  # fmt: skip


def _check_authorities(settings: AuthnSettings) -> None:
    """Raise `BadSettings` for unreadable CAs: no client could log in, or manage by AMS."""
    try:
        setting, path = "client_ca", settings.client_ca
        if path:
            os.listdir(path)
        setting, path = "ams_ca", settings.ams_ca
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError included
        raise BadSettings(f"{setting} {path}: {error.strerror or error}") from error


def connection_limit(settings: AuthnSettings) -> int:
    """Return the limit of open connections: they must not use up the files of the rest of the service."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(settings.max_connections, soft - min(RESERVED_FILES, soft // 2)), 1)


@dataclass
class AuthnState(ProgramState):
    """State of the service for the operations port (contract 15, A20). `parts` is None until it is assembled."""

    data: DataCheck | None = None
    parts: Assembled | None = None

    def trouble(self) -> str | None:
        if self.parts is None:
            return "starting"
        return self.parts.login.store.database.away or (self.data.trouble if self.data else None)

    def remark(self) -> str | None:
        return self.parts.login.store.refusal if self.parts else None

    def gauges(self) -> Iterator[Figure]:
        if self.parts is None:
            return
        login = self.parts.login
        yield figure("ams_authn_database_reachable", "1 while the database answers.", login.store.database.away is None)
        refused = "1 while changes are refused, as the disk has little space left."
        yield figure("ams_authn_changes_refused", refused, login.store.refusal is not None)
        yield from login.checks.gauges()
        yield from connection_gauges("ams_authn", self.listeners)

    def counters(self) -> Iterator[Figure]:
        if self.parts is None:
            return
        login = self.parts.login
        yield background_failures(self.supervisor.survived)
        results = [({"result": name}, float(count)) for name, count in login.results.items()]
        yield Figure("ams_authn_logins", "Logins by certificate.", results)
        failures = sum(each.failures for each in self.parts.attempts)
        yield figure("ams_authn_failed_logins", "Logins and keys that counted as failures.", failures)
        asked = login.services
        yield figure("ams_authn_service_requests", "Requests to services for a user's token.", asked.requests)
        yield figure("ams_authn_service_failures", "Those without a usable answer.", asked.failures)
        yield figure("ams_authn_service_seconds", "How long they all took.", asked.seconds)
        yield from login.checks.counters()
        yield from connection_counters("ams_authn", self.listeners)


class RunningAuthn(NamedTuple):
    """A certificate service that answers."""

    base_url: str
    operations_url: str
    folder: AuthnFolder


@contextlib.asynccontextmanager
async def running(
    settings: AuthnSettings, supervisor: Supervisor, *, clock: Clock | None = None
) -> AsyncIterator[RunningAuthn]:
    """Serve until the block ends, then stop in order: no new connections, requests in flight, then the engines."""
    state = AuthnState(supervisor)
    async with contextlib.AsyncExitStack() as stack:
        api = stack.enter_context(contextlib.closing(listen(settings.host, settings.port, "port")))
        operations_url = await stack.enter_async_context(serve_operations(settings.ops_host, settings.ops_port, state))
        folder = AuthnFolder.take(settings.data)
        stack.callback(folder.release)
        made = state.parts = await assemble(settings, folder, clock or SystemClock(), supervisor, stack)
        made.server.start(api)
        stack.push_async_callback(made.server.stop)
        watch = supervisor.task("certificate", made.certificate.follow(supervisor, made.login.checks.reload))
        stack.callback(watch.cancel)
        state.listeners.append(made.server.listener)
        state.data = DataCheck([settings.data], [folder.database] if settings.registry == "sqlite" else [])
        await stack.enter_async_context(state.data.running(supervisor))
        try:
            yield RunningAuthn(url_of("https", api), operations_url, folder)
        finally:
            state.draining = True


async def serve(settings: AuthnSettings) -> None:
    """Serve until SIGTERM or SIGINT. Prints `ready BASE_URL` when clients can connect. Raises `PartFailed`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Until there is a certificate to reload.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    supervisor = Supervisor()
    program, announce = running(settings, supervisor), partial(_announce, settings)
    run = await run_until_stopped(program, announce, supervisor, logger, stop_seconds=STOP_SECONDS)
    if run is not None:
        logger.info("stopped", data=run.folder.path)
        supervisor.check()


def _announce(settings: AuthnSettings, run: RunningAuthn) -> None:
    if connection_limit(settings) < settings.max_connections:
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        logger.info("max_connections", lowered_to=connection_limit(settings), open_files=open_files)
    if settings.development:
        logger.warning("development", remedy="anybody may log in: never with real users")
    logger.info("operations", url=run.operations_url)
    key = None if settings.service_token else run.folder.key
    logger.info("data", folder=run.folder.path, management_key_file=key)
    print(f"ready {run.base_url}", flush=True)
