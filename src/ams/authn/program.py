"""`ams authn serve` as a whole: from settings to a service that answers, and back in order when it is stopped."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from ams.authn.assembly import Assembled, assembled, bearable
from ams.authn.certificates.checks import CertificateChecks
from ams.authn.figures import AuthnFigures
from ams.authn.folder import AuthnFolder
from ams.authn.settings import AuthnSettings
from ams.core.clock import Clock, SystemClock
from ams.core.observing import metrics_of
from ams.core.supervisor import Supervisor, end_within
from ams.http.server import Operations, answering_operations, listen, until_started, url_of
from ams.http.tls import Certificate
from ams.storage.data_check import DataCheck

CERTIFICATE_CHECK_SECONDS = 60
STOP_SECONDS = 9.5
"""How long a stop may take; then the process is ended, whatever hangs."""

logger = structlog.get_logger("ams.authn")


@dataclass(frozen=True, slots=True)
class Running:
    """A certificate service that answers."""

    base_url: str
    operations_url: str
    folder: AuthnFolder


@contextlib.asynccontextmanager
async def running(
    settings: AuthnSettings, *, clock: Clock | None = None, supervisor: Supervisor | None = None
) -> AsyncIterator[Running]:
    """Serve until the block ends, then stop in order: no new connections, requests in flight, then the engines.

    The `supervisor` knows when the block should end by itself.
    """
    supervisor = supervisor or Supervisor()
    figures = AuthnFigures(supervisor)
    async with contextlib.AsyncExitStack() as stack:
        api = stack.enter_context(contextlib.closing(listen(settings.host, settings.port, "port")))
        aside = stack.enter_context(contextlib.closing(listen(settings.ops_host, settings.ops_port, "operations port")))
        folder = AuthnFolder.take(settings.data)
        stack.callback(folder.release)
        await stack.enter_async_context(
            answering_operations(aside, Operations(figures.why_not_ready, metrics_of(figures)), supervisor)
        )
        made = await assembled(settings, folder, clock or SystemClock(), supervisor, stack)
        figures.parts = made.parts
        await stack.enter_async_context(_served(made, api, supervisor))
        figures.data = DataCheck([settings.data], [folder.database] if settings.registry == "sqlite" else [])
        await stack.enter_async_context(figures.data.running(supervisor))
        try:
            yield Running(url_of("https", api), url_of("http", aside), folder)
        finally:
            figures.draining = True


@contextlib.asynccontextmanager
async def _served(made: Assembled, sock: socket.socket, supervisor: Supervisor) -> AsyncIterator[None]:
    """Serve the API until the block ends."""
    main = made.front.server(made.app)
    task = supervisor.task("HTTP server", main.serve([sock]), may_end=True)
    watch = supervisor.task("certificate", _follow(made.certificate, made.parts.checks, supervisor))
    try:
        await until_started(main, task)
        yield
    finally:
        watch.cancel()
        main.should_exit = True
        await task


async def _follow(certificate: Certificate, checks: CertificateChecks, supervisor: Supervisor) -> None:
    """Read the certificate again when it changed; it and the folder of CAs at once on SIGHUP."""
    told = asyncio.Event()
    with contextlib.suppress(ValueError):  # not the main thread: then only changes are followed
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, told.set)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), CERTIFICATE_CHECK_SECONDS)
        try:
            certificate.reload(always=told.is_set())
            if told.is_set():
                checks.reload()
        except Exception:  # what was read before goes on
            supervisor.survive("certificate")
        told.clear()


async def serve(settings: AuthnSettings) -> None:
    """Serve until SIGTERM or SIGINT; print `ready BASE_URL` when clients can come.

    Raises `PartFailed` when it ended by itself, as a part of it failed that it cannot do without.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    stop, supervisor = asyncio.Event(), Supervisor()
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        end_within(STOP_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # until there is a certificate to read again
    async with running(settings, supervisor=supervisor) as run:
        _announce(settings, run)
        await supervisor.until(stop)
        if supervisor.failure:
            end_within(STOP_SECONDS)
        logger.info("stopping")
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
