"""Serving: runs the service from its settings to an orderly stop."""

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import structlog

from ams.app.backup.protocol import serve_backups
from ams.app.wiring import service
from ams.app.wiring.assembly import Service
from ams.core.clock import Clock
from ams.core.errors import Unusable
from ams.core.settings import Settings, is_plain_to_others
from ams.core.supervisor import Supervisor, run_until_stopped
from ams.core.telemetry import Figure, background_failures, figure
from ams.http import operations, tls
from ams.http.errors import refusal
from ams.outgoing.address_guard import networks
from ams.push import report
from ams.storage.folder import DataCheck
from ams.web.connection import Port
from ams.web.listener import ListenerLimits, connection_counters, connection_gauges
from ams.web.server import HttpServer, listen, url_of

logger = structlog.get_logger("ams")

STOP_SECONDS = 9.5  # limit of a stop, in addition to `drain_seconds`; then the process is ended
FAILED_SECONDS = 1.0  # how long a failed service reports its failure, if `drain_seconds` is not longer
RESERVED_FILES = 768  # open files reserved for the log, databases and our own sockets; at most half
_CODES = ("OK", "INTERNAL", "UNAVAILABLE")  # counted from 0, so that the first call is a visible change


@dataclass
class State(operations.ProgramState):
    """State of the service for the operations port. `service` is None until its engines are open."""

    service: Service | None = None
    data: DataCheck | None = None
    waiting_for: str = ""  # the dependency a start waits for

    def tell(self, waiting_for: str) -> None:
        """Note the dependency that the start waits for; empty for none."""
        self.waiting_for = waiting_for

    def trouble(self) -> str | None:
        if self.service is None:
            return f"starting: {self.waiting_for}" if self.waiting_for else "starting"
        if trouble := self.service.away or (self.data.trouble if self.data else None):
            return trouble
        # Not for a log on Kafka: all nodes refuse alike, so another would serve no better.
        refusal = self.service.embedded.refusal if self.service.embedded else None
        return f"publishing is refused: {refusal}" if refusal else None

    def gauges(self) -> Iterator[Figure]:
        yield from connection_gauges("ams", self.listeners)
        if self.service is None:
            return
        made = self.service
        yield figure("ams_waiting_pulls", "Pulls that wait for a message now.", made.deliverer.waiting)
        yield figure("ams_live_views", "Event streams of live views that are open.", made.live.views)
        yield from made.watched.gauges()
        yield figure("ams_pubsub_streams", "Streams of messages that are open.", made.working.streams.total())
        if made.embedded:
            yield figure("ams_log_bytes", "Bytes of the log on disk.", made.embedded.usage())
        if made.settings.metrics_labels:
            yield from made.quota_use.gauges()
        if made.push.runner:
            yield from report.gauges(made.push.runner.workers.states(), by_path=made.settings.metrics_labels)
        refused = "1 while publishing is refused (disk full, failed sync; on Kafka too few brokers)."
        yield figure("ams_publishing_refused", refused, bool(made.log.refusal))

    def counters(self) -> Iterator[Figure]:
        yield from connection_counters("ams", self.listeners)
        if self.service is None:
            return
        made, counted = self.service, self.service.counts
        yield figure("ams_published_messages", "Messages published.", counted.messages)
        yield figure("ams_published_bytes", "Bytes of data published.", counted.bytes)
        plain = "Messages published whose data is other text than base64."
        yield figure("ams_not_base64_messages", plain, counted.not_base64)
        yield figure("ams_delivered_messages", "Messages handed out by pulls, with repeats.", counted.delivered)
        yield figure("ams_acknowledgements", "Acknowledgements taken.", counted.acknowledgements)
        yield from made.watched.counters()
        lost = "Messages that retention took before subscriptions had acknowledged them, ever."
        yield figure("ams_lost_messages", lost, made.losses.messages)
        classes = [({"status": f"{digit}xx"}, made.api.answered[digit]) for digit in (2, 3, 4, 5)]
        yield Figure("ams_requests", "Requests answered, by class of status.", classes)
        codes = {code: made.pubsub_calls[code] for code in (*_CODES, *made.pubsub_calls)}
        said = "Calls of Google's clients that ended, by code of gRPC."
        yield Figure("ams_pubsub_calls", said, [({"code": code}, number) for code, number in codes.items()])
        failed = "Logins that failed: requests with a token that no user has."
        yield figure("ams_failed_logins", failed, made.failed_logins.attempts.failures)
        unwritten = "Events of the audit log whose line could not be written; the table may have them."
        yield figure("ams_audit_failures", unwritten, made.trail.failures)
        yield background_failures(self.supervisor.survived)
        if made.push.runner:
            yield from report.counters(made.push.runner.tally)
        if made.settings.metrics_labels:
            topics = [({"project": each[0], "topic": each[1]}, n) for each, n in counted.by_topic.items()]
            yield Figure("ams_topic_published_messages", "Messages published, by topic.", topics)


class RunningService(NamedTuple):
    """A service that answers."""

    service: Service
    base_url: str
    operations_url: str
    pubsub: str = ""  # HOST:PORT of Google's Pub/Sub; empty: off


@contextlib.asynccontextmanager
async def running(
    settings: Settings, supervisor: Supervisor, *, clock: Clock | None = None
) -> AsyncIterator[RunningService]:
    """Serve until the block ends, then stop in order. `supervisor` knows when the block should end by itself.

    The operations port opens first and closes last: a waiting start reports there what it waits for. Order of the stop:
    serve on for `drain_seconds` while `/readyz` fails, take no new connections, finish push deliveries, end waiting
    pulls and dry runs, finish requests in flight, close the engines after their users. It takes less than ten seconds
    in addition to the drain.
    """
    state = State(supervisor)
    async with contextlib.AsyncExitStack() as stack:
        api = stack.enter_context(contextlib.closing(listen(settings.host, settings.port, "port")))
        serving = operations.serve_operations(settings.ops_host, settings.ops_port, state)
        operations_url = await stack.enter_async_context(serving)
        settings = replace(settings, port=api.getsockname()[1])  # the port the system chose, for port 0
        made = await stack.enter_async_context(service(settings, supervisor, clock=clock, tell=state.tell))
        if made.embedded is not None:  # the folder has more than keys
            await stack.enter_async_context(serve_backups(made.folder.path, made.embedded))
        base_url, pubsub = await stack.enter_async_context(serve_api(settings, made, api, state))
        folder, embedded = made.folder, made.embedded
        databases = [folder.registry] if settings.registry == "sqlite" else []
        logs = [folder.log] if embedded else [folder.cursors] if databases else []
        state.data = DataCheck([folder.path, *logs], databases, embedded.segment_files if embedded else tuple)
        await stack.enter_async_context(state.data.running(supervisor))
        state.service = made
        try:
            yield RunningService(made, base_url, operations_url, pubsub)
        finally:
            state.draining = True
            await asyncio.sleep(max(settings.drain_seconds, FAILED_SECONDS if supervisor.failure else 0))


@contextlib.asynccontextmanager
async def serve_api(
    settings: Settings, made: Service, sock: socket.socket, state: State
) -> AsyncIterator[tuple[str, str]]:
    """Answer clients on a listening socket until the block ends, then finish requests in flight.

    Yields the base URL of the API, and HOST:PORT of Google's Pub/Sub, empty if that is off.
    """
    supervisor, connections = state.supervisor, _connections(settings)
    made.slots.connections.capacity = connections  # open files may allow no more
    certificate = _certificate(settings, made)
    limits = ListenerLimits(connections=connections, unshared=networks(settings.trusted_proxies, "trusted_proxies"))
    port = Port(
        made.lane.open, refusal, max_header_bytes=settings.max_header_bytes, head_seconds=settings.request_seconds,
        body_seconds=settings.request_seconds, idle_seconds=settings.keep_alive_seconds,
    )  # fmt: skip
    server = HttpServer("api", port, limits, context=certificate.context if certificate else None)
    state.listeners.append(server.listener)
    server.start(sock)
    watch = supervisor.task("certificate", certificate.follow(supervisor)) if certificate else None
    try:
        async with _pubsub(settings, made, certificate, connections, state) as pubsub:
            yield url_of("https" if certificate else "http", sock), pubsub
    finally:
        if watch:
            watch.cancel()
        try:
            if made.push.runner:  # before other nodes take over its deliveries, and before its waiting pulls end
                await made.push.runner.close()
            await made.working.hand_over()
        finally:
            made.deliverer.stop_waiting()
            made.live.stop()
            made.schemas.dry_runs.stop()
            await server.stop()


def _pubsub(
    settings: Settings, made: Service, certificate: tls.Certificate | None, connections: int, state: State
) -> AbstractAsyncContextManager[str]:
    if settings.pubsub_port is None:
        return contextlib.nullcontext("")
    try:
        from ams.app.wiring.pubsub import pubsub
    except ImportError as error:
        raise Unusable(f"pubsub_port needs the extra pubsub: pip install 'argo-messaging[pubsub]' ({error})") from error
    return pubsub(settings, made, certificate, connections, state.supervisor, state.listeners)


def _certificate(settings: Settings, made: Service) -> tls.Certificate | None:
    if settings.tls_self_signed:
        return tls.Certificate.local(made.folder.path)
    return tls.Certificate.load(settings.cert, settings.key) if settings.cert else None


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Prints `ready BASE_URL` when clients can connect. Raises `PartFailed`."""
    # The log's committer needs the interpreter for microseconds at a time; with Python's default, every publish could
    # wait 5 ms for it.
    sys.setswitchinterval(0.0001)
    gc.collect()
    gc.freeze()  # do not collect permanent objects again
    gc.set_threshold(50_000, 20, 100)  # requests leave no cycles: Python's default cost a tenth of all time
    # SIGHUP reloads the certificate; without one it is ignored, and does not end the process.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    logger.info("open_files", limit=most_files)
    supervisor = Supervisor()
    run = await run_until_stopped(
        running(settings, supervisor), partial(_announce, settings), supervisor, logger,
        stop_seconds=settings.drain_seconds + STOP_SECONDS,
        failed_seconds=max(settings.drain_seconds, FAILED_SECONDS) + STOP_SECONDS,
    )  # fmt: skip
    if run is not None:
        logger.info("stopped", data=run.service.folder.path)
        supervisor.check()


def warn_of_plain_http(settings: Settings) -> None:
    """Log a warning when tokens and messages cross a network unencrypted."""
    if is_plain_to_others(settings):
        remedy = "set cert and key, or leave TLS to a proxy on this machine and listen on 127.0.0.1"
        logger.warning("no_tls", host=settings.host, remedy=remedy)


def _announce(settings: Settings, run: RunningService) -> None:
    folder = run.service.folder
    warn_of_plain_http(settings)
    if settings.tls_self_signed:
        logger.info("tls", ca=folder.place("ca.pem"))
    logger.info("operations", url=run.operations_url)
    if settings.console:
        logger.info("console", url=f"{run.base_url}/console/")
    logger.info("data", folder=folder.path, admin_token_file=folder.admin_token)
    if run.pubsub:
        print(f"pubsub {run.pubsub}")
    print(f"ready {run.base_url}", flush=True)


def _connections(settings: Settings) -> int:
    """Return the limit of open connections for each port: idle ones must not use up the log's files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 1 if settings.pubsub_port is None else 4  # one for each kind of port; gRPC needs two more for its relay
    for_ports = soft - min(RESERVED_FILES, soft // 2) - operations.MAX_CONNECTIONS
    connections = max(min(settings.max_connections, for_ports // files), 1)
    if connections < settings.max_connections:
        logger.info("max_connections", lowered_to=connections, open_files=soft)
    return connections
