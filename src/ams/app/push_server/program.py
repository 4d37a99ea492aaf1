"""`ams push` as a program: runs a push server from its settings to an orderly stop."""

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from ams.app.push_server.selection import OK, STARTING_TEXT, Condition, Follower
from ams.app.push_server.service import listening
from ams.app.push_server.settings import PushSettings
from ams.app.push_server.upstream import HttpHandOuts, HttpUpstream, LongPoller, Poller
from ams.client import AsyncClient
from ams.core.clock import SystemClock
from ams.core.supervisor import Supervisor, run_until_stopped
from ams.core.telemetry import Figure, background_failures, figure
from ams.http.operations import ProgramState, serve_operations
from ams.outgoing.address_guard import Guard, networks, trust
from ams.push import report
from ams.push.report import DeliveryTally
from ams.push.sender import HttpSender
from ams.push.workers import Workers
from ams.web.listener import connection_counters, connection_gauges
from ams.wire.push import WorkerState

DRAIN_SECONDS = 10.0  # for deliveries in flight at a stop (push contract 15, P8)
STOP_SECONDS = DRAIN_SECONDS + 4  # limit of a stop; then the process is ended, even if something hangs

logger = structlog.get_logger("ams.push_server")


@dataclass
class PushState(ProgramState):
    """State of the push server for the operations port. `states` is None until the workers exist."""

    condition: Condition = field(kw_only=True)
    states: Callable[[], Mapping[str, WorkerState]] | None = None
    tally: DeliveryTally = field(default_factory=lambda: DeliveryTally(by_path=True))

    def trouble(self) -> str | None:
        return None if self.condition.is_ok else self.condition.text or "starting"

    def gauges(self) -> Iterator[Figure]:
        yield figure("ams_push_service_reachable", "1 while the service answers.", self.condition.is_ok)
        yield from report.gauges(self.states() if self.states else {}, by_path=True)
        yield from connection_gauges("ams_push", self.listeners)

    def counters(self) -> Iterator[Figure]:
        yield from report.counters(self.tally)
        yield background_failures(self.supervisor.survived)
        yield from connection_counters("ams_push", self.listeners)


class RunningPushServer(NamedTuple):
    """A push server that answers."""

    address: str
    operations: str


@contextlib.asynccontextmanager
async def running(settings: PushSettings, supervisor: Supervisor) -> AsyncIterator[RunningPushServer]:
    """Deliver and answer until the block ends, then stop: calls, deliveries in flight, connections."""
    chance = random.Random()  # noqa: S311  # for retry delays
    condition = Condition(OK if settings.skip_subs_load else STARTING_TEXT)
    state = PushState(supervisor, condition=condition)
    guard, trusted = Guard(networks(settings.push_allow, "push_allow")), trust(settings.push_ca_file, "push_ca_file")
    async with contextlib.AsyncExitStack() as stack:
        operations_url = await stack.enter_async_context(serve_operations(settings.ops_host, settings.ops_port, state))
        client = AsyncClient(settings.endpoint, settings.token, ca=settings.ca or None, retry=None)
        await stack.enter_async_context(client)
        waiting = LongPoller(client, chance)
        stack.push_async_callback(waiting.close)
        sender = HttpSender(guard, trusted)
        stack.push_async_callback(sender.close)
        hand_outs = HttpHandOuts(client, waiting, Poller(chance))
        stack.push_async_callback(hand_outs.close)
        upstream = HttpUpstream(client, waiting, hand_outs)
        workers = Workers(upstream, sender, SystemClock(), random.random, tally=state.tally)
        state.states = workers.states
        follower = Follower(client, workers, condition, random=chance, loads=not settings.skip_subs_load)
        address = await stack.enter_async_context(listening(settings, follower, condition))
        await follower.start(supervisor)
        try:
            yield RunningPushServer(address, operations_url)
        finally:
            state.draining = True
            await follower.stop(DRAIN_SECONDS)


async def serve(settings: PushSettings) -> None:
    """Serve until SIGTERM or SIGINT. Prints `ready HOST:PORT` when calls can come. Raises `PartFailed`."""
    supervisor = Supervisor()
    program, announce = running(settings, supervisor), partial(_announce, settings)
    run = await run_until_stopped(program, announce, supervisor, logger, stop_seconds=STOP_SECONDS)
    if run is not None:
        logger.info("stopped")
        supervisor.check()


def _announce(settings: PushSettings, run: RunningPushServer) -> None:
    if not settings.tls_enabled:
        logger.warning("no_tls", host=settings.host, remedy="without TLS clients are not authenticated")
    logger.info("operations", url=run.operations)
    print(f"ready {run.address}", flush=True)
