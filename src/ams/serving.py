"""Serving: from settings to a running service, and back in order when it is told to stop."""

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import structlog

from ams.backup.keeping import answering
from ams.clock import Clock
from ams.http import tls
from ams.http.operations import Operations
from ams.http.protocol import limited
from ams.http.server import Server, listen, server, until_started
from ams.observing import Figure, figure, metrics_of
from ams.settings import Settings, is_plain_to_others
from ams.wiring import Service, service

logger = structlog.get_logger("ams")

CERTIFICATE_CHECK_SECONDS = 60
SWITCH_INTERVAL_SECONDS = 0.0001
"""How long the event loop may keep the interpreter from a thread that waits for it. The log's committer needs it for
microseconds at a time; with Python's default of 5 ms every publish could wait that long."""


OWN_FILES = 512
"""Open files kept for segments, indexes, databases and sockets of our own."""
GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""Requests leave no cycles behind: looking for them every 700 objects, Python's default, was a tenth of all work."""


_LOST = "Messages that retention took before subscriptions had acknowledged them, ever."


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers."""

    service: Service
    base_url: str
    operations_url: str


@dataclass(slots=True)
class _State:
    """What `/readyz` and `/metrics` look at."""

    service: Service
    stopping: bool = False

    def why_not_ready(self) -> str | None:
        return "stopping" if self.stopping else None

    def gauges(self) -> Iterator[Figure]:
        log = self.service.log
        yield figure("ams_waiting_pulls", "Pulls that wait for a message now.", self.service.deliverer.waiting)
        yield figure("ams_log_bytes", "Bytes of the log on disk.", log.usage())
        yield figure(
            "ams_publishing_refused", "1 while publishing is refused (disk full, failed sync).", bool(log.refusal)
        )

    def counters(self) -> Iterator[Figure]:
        made, counted = self.service, self.service.counting.figures
        yield figure("ams_published_messages", "Messages published.", counted.messages)
        yield figure("ams_published_bytes", "Bytes of data published.", counted.bytes)
        yield figure("ams_delivered_messages", "Messages handed out by pulls, with repeats.", counted.delivered)
        yield figure("ams_acknowledgements", "Acknowledgements taken.", made.counts.acknowledgements)
        yield figure("ams_lost_messages", _LOST, made.losses.messages)
        classes = [({"status": f"{digit}xx"}, made.api.answered[digit]) for digit in (2, 3, 4, 5)]
        yield Figure("ams_requests", "Requests answered, by class of status.", classes)
        if self.service.settings.metrics_labels:
            topics = [({"project": each[0], "topic": each[1]}, n) for each, n in counted.by_topic.items()]
            yield Figure("ams_topic_published_messages", "Messages published, by topic.", topics)


@contextlib.asynccontextmanager
async def running(settings: Settings, *, clock: Clock | None = None) -> AsyncIterator[Running]:
    """Serve until the block ends, then stop in order.

    Order of the stop: take no new connections, end waiting pulls and dry runs, finish requests in flight, then close
    the engines, each after those that use it. Under ten seconds.
    """
    api = listen(settings.host, settings.port, "port")
    with contextlib.closing(api):
        operations = listen("127.0.0.1", settings.ops_port, "operations port")
        with contextlib.closing(operations):
            async with (
                service(settings, clock=clock) as made,
                answering(made.folder.path, made.log),
                _served(settings, made, api, operations) as urls,
            ):
                yield Running(made, *urls)


@contextlib.asynccontextmanager
async def _served(
    settings: Settings, made: Service, api: socket.socket, operations: socket.socket
) -> AsyncIterator[tuple[str, str]]:
    state = _State(made)
    certificate = _certificate(settings, made)
    protocol = limited(settings.max_header_bytes, _connections(settings), settings.request_seconds)
    context = certificate.context if certificate else None
    main = server(made.app, http=protocol, context=context, keep_alive=settings.keep_alive_seconds)
    aside = server(Operations(state.why_not_ready, metrics_of(state)))
    tasks = [asyncio.create_task(main.serve([api])), asyncio.create_task(aside.serve([operations]))]
    watch = asyncio.create_task(_follow(certificate)) if certificate else None
    try:
        await until_started(main, tasks[0])
        await until_started(aside, tasks[1])
        yield _url("https" if certificate else "http", api), _url("http", operations)
    finally:
        state.stopping = True
        if watch:
            watch.cancel()
        await _stop(made, main, aside, tasks)


async def _stop(made: Service, main: Server, aside: Server, tasks: list["asyncio.Task[None]"]) -> None:
    main.should_exit = True
    made.deliverer.stop_waiting()
    made.schemas.stop()
    await tasks[0]
    aside.should_exit = True
    await tasks[1]


def _certificate(settings: Settings, made: Service) -> tls.Certificate | None:
    if settings.tls_self_signed:
        _, chain, key = tls.self_signed(made.folder.path)
        return tls.Certificate.load(chain, key)
    return tls.Certificate.load(settings.cert, settings.key) if settings.cert else None


async def _follow(certificate: tls.Certificate) -> None:
    """Read the certificate again when it changed, or at once on SIGHUP."""
    told = asyncio.Event()
    with contextlib.suppress(ValueError):  # not the main thread: then only changes are followed
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, told.set)
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), CERTIFICATE_CHECK_SECONDS)
        certificate.reload(always=told.is_set())
        told.clear()


def _url(scheme: str, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{'localhost' if shown in ('127.0.0.1', '[::1]') and scheme == 'https' else shown}:{port}"


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; print `ready BASE_URL` when clients can come."""
    _tune()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Asks for the certificate to be read again; without one there is nothing to do, and no reason to end.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    logger.info("open_files", limit=_raise_open_files())
    async with running(settings) as run:
        _announce(settings, run)
        await stop.wait()
        logger.info("stopping")
    logger.info("stopped", data=run.service.folder.path)


def _tune() -> None:
    """Make the interpreter fit a server: threads are let in early, and what lives for ever is not collected again."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def warn_of_plain_http(settings: Settings) -> None:
    """Say in the log when tokens and messages cross a network as they are."""
    if is_plain_to_others(settings):
        remedy = "set cert and key, or leave TLS to a proxy on this machine and listen on 127.0.0.1"
        logger.warning("no_tls", host=settings.host, remedy=remedy)


def _announce(settings: Settings, run: Running) -> None:
    folder = run.service.folder
    warn_of_plain_http(settings)
    if settings.tls_self_signed:
        logger.info("tls", ca=folder.place("ca.pem"))
    logger.info("operations", url=run.operations_url)
    logger.info("data", folder=folder.path, admin_token_file=folder.admin_token)
    print(f"ready {run.base_url}", flush=True)


def _connections(settings: Settings) -> int:
    """Return how many connections may be open: idle ones must not take the files that the log needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = max(min(settings.max_connections, soft - OWN_FILES), 1)
    if connections < settings.max_connections:
        logger.info("max_connections", lowered_to=connections, open_files=soft)
    return connections


def _raise_open_files() -> int:
    """Allow as many connections as the system lets us; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
