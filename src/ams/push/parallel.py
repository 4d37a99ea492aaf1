"""The cycle of a parallel subscription: several deliveries at a time, each with messages that are leased one by one.

What is refused fails: it comes again by itself after a wait, or is put aside, while the others go on. A refused
delivery of several messages is sent once more in halves, so that a message fails only when it was refused alone. When
the endpoint is to blame, no message fails: all are given back, and the subscription waits, then tries with one delivery
until one is accepted. In Google's form every bad answer, and none at all, is a nack of its message.
"""

import asyncio
from collections.abc import Awaitable

import structlog

from ams.core.clock import Milliseconds
from ams.push import retry
from ams.push.delivery import google_seconds, seconds
from ams.push.report import ACKNOWLEDGE, CONSUME, PARALLEL_ELSEWHERE, SEND, Report
from ams.push.sender import EndpointAnswer, NotAsked
from ams.push.trying import Means, Outcome, TargetCycle
from ams.push.upstream import Gone, HandOut, NotTaken, Target, Verdict

logger = structlog.get_logger("ams.push")

_SPARE_SECONDS = 10  # by which a lease outlives a delivery, for what is to be stored then


class ParallelCycle(TargetCycle):
    """Delivers a target, several deliveries at a time; raises `ValueError` when there is something wrong with it."""

    def __init__(self, target: Target, means: Means, report: Report) -> None:
        if means.upstream.hand_outs is None:
            raise ValueError(PARALLEL_ELSEWHERE)
        super().__init__(target, means, report)
        self._hand_outs = means.upstream.hand_outs
        self._under_way: set[asyncio.Task[None]] = set()
        self._pause: int | None = None  # milliseconds to wait before anything more is sent
        self._wave = 0  # raised by each failure of the endpoint: what began before is no news of it
        self._refused = 0  # messages in a row that were refused
        self._freed = asyncio.Event()  # something that was under way has ended
        self._ended = asyncio.Event()  # nothing more is to be sent

    @property
    def outstanding(self) -> int:
        """How many deliveries are under way."""
        return len(self._under_way)

    @property
    def in_flight(self) -> bool:
        """Return whether messages are being sent or acknowledged."""
        return bool(self._under_way)

    def end(self) -> None:
        """Send nothing more; what is under way goes on."""
        self._ended.set()

    async def rest(self) -> None:
        """Return when nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def abandon(self) -> None:
        """Cut off what is under way, and give it back."""
        for delivery in self._under_way:
            delivery.cancel()
        await self.rest()

    async def step(self) -> None:
        """Begin a delivery; wait for a place, for the end of a pause, or for messages, whichever is missing."""
        try:
            if self._pause is not None:
                wait, self._pause = self._pause, None
                self._report.waiting(self._means.clock.wall() + wait)
                await self._unless_ended(self._means.sleep(wait / 1000))
                self._report.waiting(None)
            elif len(self._under_way) >= self._room:
                self._freed.clear()
                await self._unless_ended(self._freed.wait())
            elif found := await self._lease():
                for each in found:
                    self._start(each)
            else:
                if not self._under_way:  # there is nothing to deliver: what was wrong is over (P5)
                    self._refused = 0
                    self._succeed()
                    self._report.cleared()
                await self._unless_ended(self._hand_outs.wait(self._target))
        except Exception as error:
            self._note(error, CONSUME)

    @property
    def _room(self) -> int:
        """How many deliveries may be under way; one to find out, after the endpoint has failed."""
        return 1 if self._history.failures else self._tries.at_once

    async def _lease(self) -> list[HandOut]:
        """Lease messages for one delivery, or several where they have failed differently; no more than have room."""
        found = await self._hand_outs.lease(self._target, max_messages=self.batch, max_bytes=retry.MAX_BYTES)
        room = 0 if self._ended.is_set() else self._room - len(self._under_way)
        for each in found[room:]:
            self._hand_outs.release(self._target, each)
        return list(found[:room])

    async def _unless_ended(self, waiting: Awaitable[object]) -> None:
        first, end = asyncio.ensure_future(waiting), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((first, end), return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
        finally:
            first.cancel()
            end.cancel()

    def _start(self, hand_out: HandOut) -> None:
        def over(delivery: asyncio.Task[None]) -> None:
            self._under_way.discard(delivery)
            self._report.changed = True
            self._freed.set()

        delivery = asyncio.create_task(self._run(hand_out), name=f"ams-push-delivery {self._target.path}")
        self._under_way.add(delivery)
        delivery.add_done_callback(over)
        self._report.changed = True

    async def _run(self, hand_out: HandOut) -> None:
        wave = self._wave
        try:
            await self._deliver(hand_out, wave)
        except NotTaken:
            self._tries.late(ACKNOWLEDGE)
        except Exception as error:
            if wave == self._wave or isinstance(error, Gone):
                self._wave += 1
                self._note(error, ACKNOWLEDGE)
        finally:
            self._hand_outs.release(self._target, hand_out)  # what of it is settled stays so

    async def _deliver(self, hand_out: HandOut, wave: int) -> bool:
        """Send messages, in smaller deliveries when they are refused together; return whether to go on sending."""
        messages, is_google = hand_out.messages, self._target.config.google is not None
        limit = google_seconds(self._target) if is_google else seconds(self._means.upstream.patience(self._target))
        await self._hand_outs.extend(self._target, hand_out, int(limit) + _SPARE_SECONDS)
        try:
            outcome = await self._tries.send(messages, attempt=hand_out.attempt, limit=limit)
        except NotAsked as reason:
            self._blamed(wave, self._tries.left_alone(reason))
            return False
        if not outcome.error:
            await self._hand_outs.acknowledge(self._target, hand_out)
            self._refused = 0
            self._accept(len(messages), outcome, limit)
            return True
        if is_google:
            return await self._nack(hand_out, wave, outcome)
        self.batch = retry.halved(len(messages))
        answer = outcome.answer
        if answer is None:
            self._tries.failed(SEND, outcome.error)
            self._blamed(wave)
            return False
        if answer.status == retry.GONE:
            self.stopped = True
            self.end()
            self._tries.ended(answer)
            return False
        said = self._tries.refused(messages, answer, outcome.error)
        if answer.status in retry.NOT_OF_THE_MESSAGE:
            self._blamed_by(answer, wave)
            return False
        if len(messages) > 1:
            middle = len(messages) // 2
            for part in (hand_out.part(0, middle), hand_out.part(middle, len(messages))):
                if self._ended.is_set() or not await self._deliver(part, wave):
                    return False
            return True
        await self._fail(hand_out, answer.status, said)
        self._count_refusal(wave)
        return wave == self._wave

    async def _nack(self, hand_out: HandOut, wave: int, outcome: Outcome) -> bool:
        """Let a message fail whatever became of its delivery, as Google's clients expect."""
        answer = outcome.answer
        if answer is None:
            self._tries.failed(SEND, outcome.error)
            await self._fail(hand_out, 0, outcome.error)
            self._blamed(wave)
            return False
        said = self._tries.refused(hand_out.messages, answer, outcome.error)
        await self._fail(hand_out, answer.status, said)
        if answer.status in retry.NOT_OF_THE_MESSAGE:
            self._blamed_by(answer, wave)
        else:
            self._count_refusal(wave)
        return wave == self._wave

    async def _fail(self, hand_out: HandOut, status: int, said: str) -> None:
        wait = retry.message_wait(self._policy, hand_out.attempt, random=self._means.random())
        verdict = Verdict(said, hand_out.attempt, status)
        await self._hand_outs.fail(self._target, hand_out, Milliseconds(wait), verdict)

    def _count_refusal(self, wave: int) -> None:
        """Take it for the endpoint's fault when nothing but refusals came for as long as there are places."""
        self._refused += 1
        if self._refused >= self._tries.at_once:
            self._blamed(wave)

    def _blamed_by(self, answer: EndpointAnswer, wave: int) -> None:
        self._blamed(wave, asked=answer.retry_after if answer.status in retry.ASKS_FOR_TIME else None)

    def _blamed(self, wave: int, wait: int | None = None, asked: float | None = None) -> None:
        """Let all wait, once for all that was under way, as the endpoint failed.

        `wait` is in milliseconds, None for what the policy says; `asked` is how many seconds the endpoint asked for.
        """
        if wave != self._wave:
            return
        self._wave += 1
        usual = self._wait(asked)
        self._pause = usual if wait is None else wait

    def _note(self, error: Exception, what: str) -> None:
        self._pause = self._wait_after(error, what)
        if self.gone:
            self.end()
