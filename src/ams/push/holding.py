"""Holding leases: the beats of one process, and its workers in step with what the answers say (`ams.push.leases`)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from ams.names import new_uuid
from ams.push.leases import BEAT_SECONDS, LEASE_SECONDS, Beat
from ams.push.target import Target
from ams.push.workers import Workers

Ask = Callable[[Beat], Awaitable[Sequence[Target]]]
"""Sends a beat and returns what is this process's to deliver; what it raises means that the beat was not answered."""

SHARE_OF_LEASE = 0.75
"""Of a lease without an answer after which deliveries stop: others may get them when it is over."""

logger = structlog.get_logger("ams.push")


class Holding:
    """Beats in the background until it is closed."""

    def __init__(self, workers: Workers, ask: Ask, *, beat_seconds: float = BEAT_SECONDS) -> None:
        self._workers = workers
        self._ask = ask
        self._beat_seconds = beat_seconds
        self._holder = new_uuid()
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._answered = -LEASE_SECONDS
        self._failing = ""
        self._running: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Future[None]] = set()

    async def start(self) -> None:
        """Begin, with a beat at once."""
        self._running = asyncio.create_task(self._keep_beating(), name="ams-push-beats")

    def wake(self) -> None:
        """Beat at once: what is wanted has changed."""
        self._wanted.set()

    async def settle(self, seconds: float) -> None:
        """Beat now, and return when it is answered, or after `seconds`."""
        beat = asyncio.ensure_future(self._beat())
        self._asked.add(beat)
        beat.add_done_callback(self._asked.discard)
        await asyncio.wait({beat}, timeout=seconds)

    @property
    def is_answered(self) -> bool:
        """Whether the last beat was answered."""
        return not self._failing

    async def close(self, seconds: float) -> None:
        """Finish what is being delivered, in at most `seconds`, and leave all that is held to others."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        if self._asked:
            await asyncio.wait(self._asked)
        await self._workers.stop(seconds)
        # An unanswered farewell costs the others a lease's time, and nothing else.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._ask(Beat(self._holder, frozenset(), leaving=True)), self._beat_seconds)

    async def _keep_beating(self) -> None:
        while True:
            self._wanted.clear()
            await self._beat()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._beat_seconds)

    async def _beat(self) -> None:
        async with self._turn:
            sent = asyncio.get_running_loop().time()
            changes = self._workers.take_changes()
            try:
                async with asyncio.timeout(LEASE_SECONDS):
                    targets = await self._ask(Beat(self._holder, self._workers.held(), changes))
            except Exception as error:
                self._workers.put_back(changes)
                self._not_answered(error, sent)
                return
            if self._failing:
                self._failing = ""
                logger.info("push.beats_are_answered_again")
            self._answered = sent
            self._workers.follow(targets)

    def _not_answered(self, error: Exception, now: float) -> None:
        """Go on for as long as the lease surely lasts; then deliver nothing, as others may."""
        reason = f"{type(error).__name__}: {error}"
        if reason != self._failing:
            self._failing = reason
            logger.warning("push.beat_not_answered", reason=reason)
        if now - self._answered > SHARE_OF_LEASE * LEASE_SECONDS:
            self._workers.follow([])
