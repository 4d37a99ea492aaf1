"""Delivery loop of a parallel subscription: several concurrent deliveries of leased messages.

A refused message fails: it is retried after a backoff or dead-lettered, and the others continue. A refused delivery of
several messages is sent again in halves, so a message fails only when it was refused alone. When the endpoint is at
fault, no message fails. All are given back, and after a backoff one delivery at a time probes the endpoint. In
Google's form every bad answer, or none, is a nack of its message.
"""

import asyncio

from ams.core.clock import Milliseconds
from ams.core.supervisor import wait_for_first
from ams.push import retry
from ams.push.attempts import LATE, AttemptOutcome, TargetCycle, WorkerDependencies
from ams.push.delivery_request import google_seconds, seconds
from ams.push.report import ACKNOWLEDGE, CONSUME, PARALLEL_ELSEWHERE, SEND, WorkerReport
from ams.push.sender import NotAsked
from ams.push.upstream import Gone, NotTaken, PushHandOut, Target, Verdict

_SPARE_SECONDS = 10  # by which a lease outlives a delivery, to store the outcome


class ParallelCycle(TargetCycle):
    """Delivers a target with concurrent deliveries; raises `ValueError` for a bad target."""

    def __init__(self, target: Target, means: WorkerDependencies, report: WorkerReport) -> None:
        if means.upstream.hand_outs is None:
            raise ValueError(PARALLEL_ELSEWHERE)
        super().__init__(target, means, report)
        self._hand_outs = means.upstream.hand_outs
        self._pause: int | None = None  # milliseconds to wait before anything more is sent
        self._wave = 0  # raised by each endpoint failure: failures of deliveries that began before are ignored
        self._refused = 0  # messages in a row that were refused
        self._freed = asyncio.Event()  # something that was under way has ended

    @property
    def outstanding(self) -> int:
        """Number of deliveries under way."""
        return len(self._under_way)

    @property
    def in_flight(self) -> bool:
        """True while messages are being sent or acknowledged."""
        return bool(self._under_way)

    async def step(self) -> None:
        """Start a delivery, or wait for a slot, the end of a pause, or messages."""
        try:
            if self._pause is not None:
                wait, self._pause = self._pause, None
                self._report.waiting(self._means.clock.wall() + wait)
                await wait_for_first(self._means.sleep(wait / 1000), self.ended.wait())
                self._report.waiting(None)
            elif len(self._under_way) >= self._room:
                self._freed.clear()
                await wait_for_first(self._freed.wait(), self.ended.wait())
            elif found := await self._lease():
                for each in found:
                    self._start(each)
            else:
                if not self._under_way:  # the backlog is empty: the failure is over (P5)
                    self._refused = 0
                    self._succeed()
                    self._report.note_recovery()
                await wait_for_first(self._hand_outs.wait(self._target), self.ended.wait())
        except Exception as error:
            self._pause = self._wait_after(error, CONSUME)

    @property
    def _room(self) -> int:
        """Maximum concurrent deliveries; one as a probe after the endpoint has failed."""
        return 1 if self._history.failures else self._at_once

    async def _lease(self) -> list[PushHandOut]:
        """Lease messages for one delivery, or for several if their attempts differ; give back the excess."""
        self._means.require_lease()
        found = await self._hand_outs.lease(self._target, max_messages=self.batch, max_bytes=retry.MAX_BYTES)
        room = 0 if self.ended.is_set() else self._room - len(self._under_way)
        for each in found[room:]:
            self._hand_outs.release(self._target, each)
        return list(found[:room])

    def _start(self, hand_out: PushHandOut) -> None:
        def over(delivery: asyncio.Task[None]) -> None:
            self._under_way.discard(delivery)
            self._report.changed = True
            self._freed.set()

        delivery = asyncio.create_task(self._run(hand_out), name=f"ams-push-delivery {self._target.path}")
        self._under_way.add(delivery)
        delivery.add_done_callback(over)
        self._report.changed = True

    async def _run(self, hand_out: PushHandOut) -> None:
        wave = self._wave
        try:
            await self._deliver(hand_out, wave)
        except NotTaken:
            self._report.late(self._failure(ACKNOWLEDGE, LATE))
        except Exception as error:
            if wave == self._wave or isinstance(error, Gone):
                self._wave += 1
                self._pause = self._wait_after(error, ACKNOWLEDGE)
        finally:
            self._hand_outs.release(self._target, hand_out)  # settled messages stay settled

    async def _deliver(self, hand_out: PushHandOut, wave: int) -> bool:
        """Send messages, in halves when they are refused together; return whether to go on."""
        messages, is_google = hand_out.messages, self._target.config.google is not None
        limit = google_seconds(self._target) if is_google else seconds(self._means.upstream.patience(self._target))
        self._means.require_lease()
        await self._hand_outs.extend(self._target, hand_out, int(limit) + _SPARE_SECONDS)
        self._means.require_lease()  # again, as a delivery follows
        try:
            outcome = await self._send(messages, attempt=hand_out.attempt, limit=limit)
        except NotAsked as reason:
            self._blame_endpoint(wave, self._note_not_asked(reason))
            return False
        if not outcome.error:
            self._means.require_lease()
            await self._hand_outs.acknowledge(self._target, hand_out)
            self._refused = 0
            self._accept(len(messages), outcome, limit)
            return True
        return await self._not_accepted(hand_out, wave, outcome)

    async def _not_accepted(self, hand_out: PushHandOut, wave: int, outcome: AttemptOutcome) -> bool:
        messages, answer = hand_out.messages, outcome.answer
        is_google = self._target.config.google is not None
        self.batch = retry.half_batch(len(messages))
        if answer is None:
            self._report_failure(SEND, outcome.error)
            if is_google:
                await self._fail(hand_out, 0, outcome.error)
            self._blame_endpoint(wave)
            return False
        if answer.status == retry.GONE and not is_google:
            self._stop_for_good(answer)
            return False
        said = self._note_refusal(messages, answer, outcome.error)
        is_of_endpoint = answer.status in retry.NOT_OF_THE_MESSAGE
        if len(messages) > 1 and not is_of_endpoint:
            middle = len(messages) // 2
            for part in (hand_out.part(0, middle), hand_out.part(middle, len(messages))):
                if self.ended.is_set() or not await self._deliver(part, wave):
                    return False
            return True
        if is_google or not is_of_endpoint:
            await self._fail(hand_out, answer.status, said)
        if is_of_endpoint:
            self._blame_endpoint(wave, asked=answer.retry_after if answer.status in retry.ASKS_FOR_TIME else None)
        else:
            self._refused += 1
            if self._refused >= self._at_once:  # as many in a row as slots are taken as the endpoint's fault
                self._blame_endpoint(wave)
        return wave == self._wave

    async def _fail(self, hand_out: PushHandOut, status: int, said: str) -> None:
        wait = Milliseconds(retry.message_wait(self._policy, hand_out.attempt, random=self._means.random()))
        self._means.require_lease()
        await self._hand_outs.fail(self._target, hand_out, wait, Verdict(said, hand_out.attempt, status))

    def _blame_endpoint(self, wave: int, wait: int | None = None, asked: float | None = None) -> None:
        """Pause all deliveries, once per wave: for `wait` milliseconds, or by the policy and the `asked` seconds."""
        if wave != self._wave:
            return
        self._wave += 1
        usual = self._wait(asked)
        self._pause = usual if wait is None else wait
