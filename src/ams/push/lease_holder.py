"""Holds the leases of one process (`ams.cluster.leases`): sends heartbeats, and starts workers by the answers.

A lease runs from the sending of the last answered heartbeat. A holder without answers, or one that was frozen, stops
before its lease ends: deliveries in flight get a moment to finish, then they are cancelled.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from ams.cluster.leases import LEASE_SECONDS, RENEW_SECONDS, Heartbeat, lease_end
from ams.core.backoff import Pauses
from ams.core.names import new_uuid
from ams.push.retry import UNREACHED
from ams.push.upstream import Target
from ams.push.workers import Workers

_FINISH_SECONDS = 1.5  # at the end of a lease, for deliveries in flight
_LEAST_SECONDS = 0.2  # for the answer to a heartbeat, however little of the lease is left
_BACKOFF = replace(UNREACHED, most=8.0)  # between heartbeats while none is answered
STOOD_STILL = "this process stood still for longer than its lease"

logger = structlog.get_logger("ams.push")


class LeaseReply(NamedTuple):
    """The answer to a heartbeat."""

    targets: Sequence[Target]
    lease_seconds: float = LEASE_SECONDS
    heartbeat_seconds: float = RENEW_SECONDS


class Unanswered(Exception):
    """A heartbeat got no answer; the text says why."""


class NoLeases(Exception):
    """The service that was asked knows no leases."""


Ask = Callable[[Heartbeat], Awaitable[LeaseReply]]  # sends a heartbeat; raises `Unanswered` or `NoLeases`


def _log_failure(work: str) -> None:
    logger.exception("background.failed", work=work)


class Holding:
    """Sends heartbeats, and delivers the targets of the answers."""

    def __init__(
        self,
        workers: Workers,
        ask: Ask,
        chance: random.Random,
        *,
        holder: str = "",
        reached: Callable[[], None] = lambda: None,
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers, self._ask, self._reached, self._missed = workers, ask, reached, missed
        self._holder = holder or new_uuid()
        self._pauses = Pauses(_BACKOFF, chance.random)
        self._ends: float | None = None  # when the lease ends, by the loop's clock; None: nothing is held by a lease
        self._now = asyncio.Event()
        self._settled: list[asyncio.Future[None]] = []
        self._leaving = False

    def wake(self) -> None:
        """Send a heartbeat at once, as targets may have changed."""
        self._now.set()

    async def settle(self, seconds: float) -> None:
        """Wait for the end of the next heartbeat, at most so many seconds."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.append(over)
        self._now.set()
        await asyncio.wait({over}, timeout=seconds)

    async def run(self, log_failure: Callable[[str], None] = _log_failure) -> None:
        """Send heartbeats until cancelled, or until the service has no leases any more.

        `log_failure` is called for an unexpected exception; that heartbeat counts as unanswered.
        """
        while True:
            self._now.clear()
            settled, self._settled = self._settled, []
            try:
                pause = await self._round()
            except NoLeases:
                await self._lose_lease("there are no leases any more")
                self._workers.hold_until(None)
                return
            except (Unanswered, TimeoutError) as error:
                pause = await self._note_no_answer(str(error) or "no answer in time")
            except Exception as error:  # a defect must not end the heartbeats for good
                log_failure("push leases")
                pause = await self._note_no_answer(f"unexpected {type(error).__name__}")
            finally:
                for each in settled:
                    each.set_result(None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), pause)

    async def stop(self, seconds: float) -> None:
        """Finish deliveries in flight while the lease goes on, then give up all leases."""
        self._leaving = True
        heartbeats = asyncio.create_task(self.run(), name="ams-push-last-beats")
        try:
            await self._workers.stop(seconds)
        finally:
            heartbeats.cancel()
            await asyncio.gather(heartbeats, return_exceptions=True)
        with contextlib.suppress(Unanswered, NoLeases, TimeoutError):
            await self._heartbeat(Heartbeat(self._holder, frozenset(), self._workers.take_changes(), leaving=True))

    async def _round(self) -> float:
        if self._is_over(self._ends):
            await self._lose_lease(STOOD_STILL)
        changes = self._workers.take_changes()
        sent = asyncio.get_running_loop().time()
        try:
            reply = await self._heartbeat(
                Heartbeat(self._holder, self._workers.held_subscriptions(), changes, self._leaving)
            )
        except BaseException:
            self._workers.put_back(changes)
            raise
        ends = lease_end(sent, reply.lease_seconds)
        if self._is_over(ends):
            raise Unanswered(STOOD_STILL)
        self._ends = ends
        self._workers.hold_until(ends)
        self._pauses.reset()
        self._reached()
        if not self._leaving:
            self._workers.follow(reply.targets)
        return reply.heartbeat_seconds

    async def _heartbeat(self, heartbeat: Heartbeat) -> LeaseReply:
        seconds = RENEW_SECONDS if self._ends is None else max(min(RENEW_SECONDS, self._seconds_left()), _LEAST_SECONDS)
        async with asyncio.timeout(seconds):
            return await self._ask(heartbeat)

    async def _note_no_answer(self, reason: str) -> float:
        self._missed()
        logger.warning("push.beat_not_answered", reason=reason)
        pause = self._pauses.next()
        if self._ends is None:
            return pause
        left = self._seconds_left()
        if left > 0:
            return min(pause, left)
        await self._lose_lease(reason)
        return pause

    def _seconds_left(self) -> float:
        assert self._ends is not None
        return self._ends - _FINISH_SECONDS - asyncio.get_running_loop().time()

    def _is_over(self, ends: float | None) -> bool:
        return ends is not None and asyncio.get_running_loop().time() >= ends

    async def _lose_lease(self, reason: str) -> None:
        if self._ends is None:
            return
        logger.warning("push.lease_lost", reason=reason)
        left = self._ends - asyncio.get_running_loop().time()
        self._ends = None
        await self._workers.stop(max(0.0, min(left, _FINISH_SECONDS)))
