"""The worker: delivers one subscription, in order, one request at a time.

It pulls, waiting in the upstream for something to come, sends, acknowledges what the endpoint accepted, and again.
Whatever fails, the messages are forgotten and pulled again after a wait, so that a worker never holds more than one
delivery. An idle one is a task that waits, and nothing else.
"""

import asyncio
from collections.abc import Callable

import structlog

from ams.core.push_config import MATTERMOST
from ams.push.cycle import Cycle, Means
from ams.push.report import Report
from ams.push.state import SEND
from ams.push.target import Target
from ams.wire.push import Failure, WorkerState

DEFECT_SECONDS = 10.0
"""How long a worker rests after an exception nobody expected."""

logger = structlog.get_logger("ams.push")


class Worker:
    """Delivers one target until it is drained, its subscription is gone, or its endpoint says that it is (410)."""

    def __init__(self, target: Target, means: Means, gone: Callable[["Worker"], None]) -> None:
        self.target = target
        self._means = means
        self._tell_gone = gone
        self._report = Report(target.path, means.observer)
        self._cycle = self._begun()
        self._task: asyncio.Task[None] | None = None
        self._ending = False

    def _begun(self) -> Cycle | None:
        try:
            return Cycle(self.target, self._means, self._report)
        except ValueError as error:
            self._report.stopped(Failure(self._means.clock.wall(), SEND, str(error)))
            return None

    def start(self, after: float = 0.0) -> None:
        """Begin, in so many seconds."""
        self._task = asyncio.create_task(self._run(after), name=f"ams-push {self.target.path}")

    async def drain(self, seconds: float) -> None:
        """Pull no more, finish what is in flight with its acknowledgement, at most so many seconds, and end (P8)."""
        self._ending = True
        if self._task is None:
            return
        if self._cycle is not None and self._cycle.in_flight:
            await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        await asyncio.wait({self._task})

    @property
    def changed(self) -> bool:
        """Whether anything happened since somebody set this to False."""
        return self._report.changed

    @changed.setter
    def changed(self, value: bool) -> None:
        self._report.changed = value

    def state(self) -> WorkerState:
        """Return how the delivery goes."""
        config = self.target.config
        circuit = self._means.sender.circuit(config.mattermost_url if config.type == MATTERMOST else config.endpoint)
        return self._report.state(circuit, self._cycle.batch if self._cycle else 1)

    async def _run(self, after: float) -> None:
        cycle = self._cycle
        if cycle is None:
            return
        if after:
            await self._means.sleep(after)
        while not (self._ending or cycle.gone or cycle.stopped):
            try:
                await self._deliver_once(cycle)
            except Exception:  # a defect must not end the delivery in silence, nor that of others
                logger.exception("push.worker_failed", subscription=self.target.path)
                await self._means.sleep(DEFECT_SECONDS)
        if cycle.gone:
            self._tell_gone(self)

    async def _deliver_once(self, cycle: Cycle) -> None:
        wait = await cycle.step()
        if wait is not None and not self._ending:
            await self._pause(wait)

    async def _pause(self, milliseconds: int) -> None:
        self._report.waiting(self._means.clock.wall() + milliseconds)
        await self._means.sleep(milliseconds / 1000)
        self._report.waiting(None)
