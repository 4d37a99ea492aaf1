"""The worker delivers one subscription. An ordered one is delivered in order, one request at a time.

Its loop: pull (waits in the upstream for messages), send, acknowledge. After any failure the messages are dropped, and
pulled again after a backoff. So a worker holds at most one delivery; an idle worker is one waiting task.

A parallel subscription has another loop (`ams.push.parallel`).
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from ams.core.push_config import MATTERMOST
from ams.push import retry
from ams.push.attempts import LATE, AttemptOutcome, TargetCycle, WorkerDependencies
from ams.push.delivery_request import seconds
from ams.push.parallel import ParallelCycle
from ams.push.report import ACKNOWLEDGE, CONSUME, SEND, WorkerReport
from ams.push.sender import CircuitOpen
from ams.push.upstream import NotTaken, Pulled, Target, Verdict
from ams.wire.push import Failure, WorkerState

logger = structlog.get_logger("ams.push")

QUIET_SECONDS = 10.0  # while a failure is reported, a pull counts as empty after this time, to clear it
DEFECT_SECONDS = 10.0  # pause of a worker after an unexpected exception


class _Cycle(TargetCycle):
    outstanding: int | None = None  # there is one delivery at a time

    def __init__(self, target: Target, means: WorkerDependencies, report: WorkerReport) -> None:
        super().__init__(target, means, report)
        self._refusals = retry.Refusals(target.config)
        self._stage = CONSUME
        self._first = -1  # offset of the first message of the newest delivery, and how often it was just that
        self._tried = 0
        self._late_in_a_row = 0
        self.in_flight = False  # whether messages were pulled that are being sent or acknowledged

    async def step(self) -> int | None:
        """Pull, send and acknowledge once; return the milliseconds to wait before the next step, or None."""
        try:
            self._stage = CONSUME
            messages = await self._pull()
            if not messages:
                self._report.note_recovery()
                self._succeed()
                return None
            self.in_flight = True
            self._stage = SEND
            return await self._deliver(messages)
        except NotTaken:  # the endpoint has done nothing wrong (P15)
            self.batch = retry.half_batch(self.batch)
            self._report.late(self._failure(self._stage, LATE))
            self._late_in_a_row += 1
            # A seek causes one. A second in a row means that deliveries are too slow for the deadline: back off.
            return self._wait() if self._late_in_a_row > 1 else None
        except Exception as error:
            return self._wait_after(error, self._stage)
        finally:
            self.in_flight = False

    async def _pull(self) -> Sequence[Pulled]:
        upstream = self._means.upstream
        try:
            async with asyncio.timeout(QUIET_SECONDS if self._report.failure else None) as limit:
                found = await upstream.pull(self._target, max_messages=self.batch, max_bytes=retry.MAX_BYTES)
        except TimeoutError:
            if not limit.expired():
                raise
            return ()
        self._means.require_lease()
        return found

    async def _deliver(self, messages: Sequence[Pulled]) -> int | None:
        first = messages[0].offset
        attempt = self._tried + 1 if first == self._first else 1
        limit = seconds(self._means.upstream.patience(self._target))
        try:
            outcome = await self._send(messages, attempt=attempt, limit=limit)
        except CircuitOpen as circuit:  # nothing was sent
            return self._note_not_asked(circuit)
        self._first, self._tried = first, attempt
        if outcome.error:
            return await self._not_accepted(messages, outcome)
        self._stage = ACKNOWLEDGE
        self._means.require_lease()
        await self._means.upstream.acknowledge(self._target, messages[-1])
        self._late_in_a_row = 0
        self._refusals.forget_up_to(messages[-1])
        self._accept(len(messages), outcome, limit)
        return None

    async def _not_accepted(self, messages: Sequence[Pulled], outcome: AttemptOutcome) -> int | None:
        self.batch = retry.half_batch(len(messages))
        answer = outcome.answer
        if answer is None:
            self._report_failure(self._stage, outcome.error)
            return self._wait()
        if answer.status == retry.GONE:
            self._stop_for_good(answer)
            return None
        advice = self._refusals.advice(messages, answer.status, self._tried)
        said = self._note_refusal(messages, answer, outcome.error, advice)
        if attempts := self._refusals.note_refusal(messages, answer.status):
            self._stage = ACKNOWLEDGE
            self._means.require_lease()
            await self._means.upstream.dead_letter(self._target, messages[0], Verdict(said, attempts, answer.status))
            self._refusals.dead_lettered()
            self._succeed()
            self._report.dead_lettered()
            return None
        return self._wait(answer.retry_after if answer.status in retry.ASKS_FOR_TIME else None)


class DeliveryWorker:
    """Delivers one target until it is drained, its subscription is deleted, or its endpoint is gone (410)."""

    def __init__(self, target: Target, means: WorkerDependencies, gone: Callable[["DeliveryWorker"], None]) -> None:
        self.target, self._means = target, means
        self._tell_gone = gone
        self.report = WorkerReport(target.path, means.tally)
        self._task: asyncio.Task[None] | None = None
        self._cycle: _Cycle | ParallelCycle | None = None
        try:
            self._cycle = (ParallelCycle if target.is_parallel else _Cycle)(target, means, self.report)
        except ValueError as error:
            self.report.record_stop(Failure(means.clock.wall(), SEND, str(error)))

    def start(self, after: float = 0.0) -> None:
        """Start in so many seconds."""
        self._task = asyncio.create_task(self._run(after), name=f"ams-push {self.target.path}")

    async def drain(self, seconds: float) -> None:
        """Stop pulling, finish and acknowledge deliveries in flight for at most so many seconds, then end (P8)."""
        if self._task is None:
            return
        if self._cycle is not None:
            self._cycle.ended.set()
            if self._cycle.in_flight:
                await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._cycle is not None:
            await self._cycle.abandon()

    def state(self) -> WorkerState:
        """Return the state of the delivery."""
        config = self.target.config
        circuit = self._means.sender.circuit(config.mattermost_url if config.type == MATTERMOST else config.endpoint)
        cycle = self._cycle
        return self.report.state(circuit, cycle.batch if cycle else 1, cycle.outstanding if cycle else None)

    async def _run(self, after: float) -> None:
        cycle = self._cycle
        if cycle is None:
            return
        if after:
            await self._means.sleep(after)
        while not cycle.ended.is_set():
            try:
                wait = await cycle.step()
                if wait is not None and not cycle.ended.is_set():
                    self.report.waiting(self._means.clock.wall() + wait)
                    await self._means.sleep(wait / 1000)
                    self.report.waiting(None)
            except Exception:  # a defect must not end the delivery silently
                logger.exception("push.worker_failed", subscription=self.target.path)
                await self._means.sleep(DEFECT_SECONDS)
        await cycle.rest()
        if cycle.gone:
            self._tell_gone(self)
