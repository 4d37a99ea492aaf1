"""Following: what this process delivers, by leases where the service knows them, else by the worker's profile.

While neither is known yet, and for ever when nothing is to be loaded, it delivers what it is told over gRPC.
"""

import asyncio
import contextlib
import random
import uuid
from typing import Protocol

import structlog

from ams.app.push_server.by_leases import ByLeases
from ams.app.push_server.by_profile import ByProfile
from ams.app.push_server.condition import Condition
from ams.app.push_server.waiting import unknown_route
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.core.backoff import Pauses
from ams.core.supervisor import Supervisor
from ams.push.retry import UNREACHED
from ams.push.upstream import Target
from ams.push.workers import Workers
from ams.wire.push import WorkerState

logger = structlog.get_logger("ams.push_server")


class Way(Protocol):
    """A way to know what is to be delivered."""

    def activate(self, target: Target) -> None:
        """Take note that a target is to be delivered."""
        ...

    def deactivate(self, path: str) -> None:
        """Take note that a subscription is to be delivered no more."""
        ...

    async def run(self) -> None:
        """Follow; end when another way may be right."""
        ...

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight and give it back."""
        ...


class AsTold:
    """Delivers what it is told, and nothing is asked."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def activate(self, target: Target) -> None:
        """Deliver it at once."""
        self._workers.activate(target)

    def deactivate(self, path: str) -> None:
        """Stop it at once."""
        self._workers.deactivate(path)

    async def run(self) -> None:
        """Do nothing."""
        await asyncio.Event().wait()

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight."""
        await self._workers.stop(seconds)


class Follower:
    """Finds the way and goes it; `client` must not try again by itself."""

    def __init__(
        self,
        client: AsyncClient,
        workers: Workers,
        condition: Condition,
        *,
        random: random.Random,
        loads: bool = True,
    ) -> None:
        self._client = client
        self._workers = workers
        self._condition = condition
        self._random = random
        self._holder = f"push-{uuid.uuid4()}"
        self._way: Way = AsTold(workers)
        self._loads = loads
        self._task: asyncio.Task[None] | None = None

    def state(self, path: str) -> WorkerState | None:
        """Return how the delivery of a subscription goes; None when this process does not deliver it."""
        return self._workers.state(path)

    def activate(self, target: Target) -> None:
        """Take note that a target is to be delivered."""
        self._way.activate(target)

    def deactivate(self, path: str) -> None:
        """Take note that a subscription is to be delivered no more."""
        self._way.deactivate(path)

    async def start(self, supervisor: Supervisor | None = None) -> None:
        """Begin; the first contact with the service goes on in the background (P1: none when nothing is loaded)."""
        if self._loads:
            watched = supervisor or Supervisor()
            self._task = watched.task("following", self._run(watched))

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight, give it back, and deliver nothing any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._way.stop(seconds)

    async def _run(self, supervisor: Supervisor) -> None:
        while True:
            try:
                self._way = await self._found()
                logger.info("following", way=type(self._way).__name__)
                await self._way.run()
            except Exception:  # a fault of ours must not leave everything undelivered
                supervisor.survive("following")
                self._condition.missed()
                await asyncio.sleep(1)

    async def _found(self) -> Way:
        """Ask until the service answers, with pauses that grow; return the way it knows."""
        pauses = Pauses(UNREACHED, self._random.random)
        while True:
            try:
                await self._client.call(wire.lease_push(self._holder, sorted(self._workers.held())))
            except client_errors.ClientError as error:
                # Whoever forbids leases by a roles file wants it to go without, too.
                if unknown_route(error) or isinstance(error, client_errors.NotAllowed):
                    return ByProfile(self._client, self._workers, self._condition, self._random)
                self._condition.missed()
                logger.warning("service.unreached", reason=error.message)
                await asyncio.sleep(pauses.next())
            else:
                return ByLeases(self._client, self._workers, self._condition, self._holder, self._random)
