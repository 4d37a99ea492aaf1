"""`ams authn serve` as a whole: from settings to a service that answers, and back in order when it is stopped."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial

import structlog

from ams.authn.assembly import Assembled, AuthnFolder, assembled, bearable
from ams.authn.settings import AuthnSettings
from ams.core.clock import Clock, SystemClock
from ams.core.observing import Figure, background_failures, figure, metrics_of
from ams.core.supervisor import Supervisor, run_until_stopped
from ams.http.operations import Operations, answering_operations
from ams.storage.data_check import DataCheck
from ams.web.listener import Listener, connection_counters, connection_gauges
from ams.web.server import listen, url_of

STOP_SECONDS = 9.5  # how long a stop may take; then the process is ended, even if something hangs

logger = structlog.get_logger("ams.authn")


@dataclass(slots=True)
class AuthnFigures:
    """What the operations port answers (contract 15, A20); `parts` is None until the service is assembled."""

    supervisor: Supervisor = field(default_factory=Supervisor)
    data: DataCheck | None = None
    parts: Assembled | None = None
    listeners: list[Listener] = field(default_factory=list)
    draining: bool = False

    def why_not_ready(self) -> str | None:
        """Return why requests cannot be answered; None while they can."""
        if self.supervisor.failure:
            return self.supervisor.failure
        if self.draining:
            return "stopping"
        if self.parts is None:
            return "starting"
        return self.parts.engines.store.away or (self.data.trouble if self.data else None)

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        parts = self.parts
        if parts is None:
            return
        yield figure("ams_authn_database_reachable", "1 while the database answers.", parts.engines.store.away is None)
        yield from parts.engines.checks.gauges()
        yield from connection_gauges("ams_authn", self.listeners)

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while the service runs."""
        parts = self.parts
        if parts is None:
            return
        yield background_failures(self.supervisor.survived)
        results = [({"result": name}, float(count)) for name, count in parts.login.results.items()]
        yield Figure("ams_authn_logins", "Logins by certificate.", results)
        failures = sum(each.failures for each in parts.attempts)
        yield figure("ams_authn_failed_logins", "Logins and keys that counted as failures.", failures)
        asked = parts.engines.services
        yield figure("ams_authn_service_requests", "Requests to services for a user's token.", asked.requests)
        yield figure("ams_authn_service_failures", "Those without a usable answer.", asked.failures)
        yield figure("ams_authn_service_seconds", "How long they all took.", asked.seconds)
        yield from parts.engines.checks.counters()
        yield from connection_counters("ams_authn", self.listeners)


@dataclass(frozen=True, slots=True)
class Running:
    """A certificate service that answers."""

    base_url: str
    operations_url: str
    folder: AuthnFolder


@contextlib.asynccontextmanager
async def running(
    settings: AuthnSettings, supervisor: Supervisor, *, clock: Clock | None = None
) -> AsyncIterator[Running]:
    """Serve until the block ends, then stop in order: no new connections, requests in flight, then the engines."""
    figures = AuthnFigures(supervisor)
    async with contextlib.AsyncExitStack() as stack:
        api = stack.enter_context(contextlib.closing(listen(settings.host, settings.port, "port")))
        aside = stack.enter_context(contextlib.closing(listen(settings.ops_host, settings.ops_port, "operations port")))
        folder = AuthnFolder.take(settings.data)
        stack.callback(folder.release)
        operations = Operations(figures.why_not_ready, metrics_of(figures))
        figures.listeners.append(await stack.enter_async_context(answering_operations(aside, operations)))
        made = await assembled(settings, folder, clock or SystemClock(), supervisor, stack)
        figures.parts = made
        figures.listeners.append(await stack.enter_async_context(_served(made, api, supervisor)))
        figures.data = DataCheck([settings.data], [folder.database] if settings.registry == "sqlite" else [])
        await stack.enter_async_context(figures.data.running(supervisor))
        try:
            yield Running(url_of("https", api), url_of("http", aside), folder)
        finally:
            figures.draining = True


@contextlib.asynccontextmanager
async def _served(made: Assembled, sock: socket.socket, supervisor: Supervisor) -> AsyncIterator[Listener]:
    server = made.front.server(made.app)
    server.start(sock)
    watch = supervisor.task("certificate", made.certificate.follow(supervisor, made.engines.checks.reload))
    try:
        yield server.listener
    finally:
        watch.cancel()
        await server.stop()


async def serve(settings: AuthnSettings) -> None:
    """Serve until SIGTERM or SIGINT; print `ready BASE_URL` when clients can connect. Raises `PartFailed`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Until there is a certificate to read again.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    supervisor = Supervisor()
    run = await run_until_stopped(
        running(settings, supervisor), partial(_announce, settings), supervisor, logger, stop_seconds=STOP_SECONDS
    )
    if run is not None:
        logger.info("stopped", data=run.folder.path)
        supervisor.check()


def _announce(settings: AuthnSettings, run: Running) -> None:
    if bearable(settings) < settings.max_connections:
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        logger.info("max_connections", lowered_to=bearable(settings), open_files=open_files)
    if settings.development:
        logger.warning("development", remedy="anybody may log in: never with real users")
    logger.info("operations", url=run.operations_url)
    key = None if settings.service_token else run.folder.key
    logger.info("data", folder=run.folder.path, management_key_file=key)
    print(f"ready {run.base_url}", flush=True)
