"""A worker with the simplest keepers of what it needs, to look at."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ams.core.clock import ManualClock
from ams.push.trying import Means
from ams.push.upstream import Target
from ams.push.worker import Worker
from ams.wire.push import Failure, WorkerState
from tests.push.keepers import MemoryUpstream, Naps, Notes, ScriptedSender
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async


class Bench:
    """A worker with what it works with, to look at."""

    def __init__(self, upstream: MemoryUpstream, sender: ScriptedSender) -> None:
        self.upstream, self.sender = upstream, sender
        self.clock = ManualClock()
        self.naps = Naps(self.clock)
        self.notes = Notes()
        self.gone: list[Worker] = []
        self.worker: Worker

    def make_worker(self, of: Target, random: float = 0.5) -> Worker:
        means = Means(self.upstream, self.sender, self.clock, lambda: random, self.notes, self.naps)
        return Worker(of, means, self.gone.append)

    @property
    def state(self) -> WorkerState:
        return self.worker.state()

    @property
    def last_failure(self) -> Failure:
        failure = self.state.last_failure
        assert failure is not None
        return failure

    async def idle(self) -> None:
        """Wait until everything was tried and the worker waits for messages."""
        await wait_until_async(lambda: self.upstream.waiting)

    async def drain(self, seconds: float) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.worker.drain(seconds)


@contextlib.asynccontextmanager
async def at_work(bench: Bench, of: Target, random: float = 0.5) -> AsyncIterator[Bench]:
    """Let a bench's worker deliver a target until the block ends."""
    bench.worker = bench.make_worker(of, random)
    bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.drain(0)
