"""The worker: delivers one subscription, in order, one request at a time.

Its cycle: it pulls, waiting in the upstream for something to come, sends, acknowledges what the endpoint accepted, and
again. Whatever fails, the messages are forgotten and pulled again after a wait, so that a worker never holds more than
one delivery. An idle one is a task that waits, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog

from ams.core.clock import Clock
from ams.core.push_config import MATTERMOST
from ams.push import retry
from ams.push.delivery import Deliveries, seconds
from ams.push.details import Details, cut, repeats
from ams.push.report import ACKNOWLEDGE, CONSUME, SEND, Report, Tally
from ams.push.sender import CircuitOpen, EndpointAnswer, HttpSender, SendFailed
from ams.push.upstream import Gone, NotTaken, Pulled, Refused, Target, Upstream, UpstreamError, Verdict
from ams.wire.push import Attempt, Failure, WorkerState

logger = structlog.get_logger("ams.push")

LATE = "the messages were delivered, but their acknowledgement counts no more: they are delivered again"
ENDED = "HTTP 410: the endpoint is gone; nothing is delivered to it until its push configuration changes"
QUIET_SECONDS = 10.0
"""While something is wrong, a pull that waited so long counts as empty, so that the state does not stay as it was."""
MAX_ERROR = 200
"""Bytes of an attempt's error: a hundred of them go into one heartbeat (`ams.http.routes.push_lease`)."""
_LEAST_WAIT = 100
"""Milliseconds, for an endpoint whose circuit is open."""


class Means(NamedTuple):
    """What workers work with."""

    upstream: Upstream
    sender: HttpSender
    clock: Clock
    random: Callable[[], float]
    """In [0, 1)."""
    tally: Tally
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits for so many seconds."""


class Cycle:
    """Delivers a target step by step; raises `ValueError` when there is something wrong with the target."""

    def __init__(self, target: Target, means: Means, report: Report) -> None:
        self._target = target
        self._means = means
        self._report = report
        self._deliveries = Deliveries(target)
        self._details = Details(target)
        self._policy = retry.policy_of(target.config)
        self._history = retry.History()
        self._refusals = retry.Refusals(target.config)
        self._accepted = retry.accepted(target.config)
        self._stage = CONSUME
        self._first = -1  # offset of the first message of the newest delivery, and how often it was just that
        self._tries = 0
        self._late_in_a_row = 0
        self._defects: set[type[Exception]] = set()
        self.batch = retry.first_batch(self._deliveries.most)
        """Most messages of the next delivery."""
        self.in_flight = False
        """Whether messages were pulled that are being sent or acknowledged."""
        self.gone = False
        """Whether the subscription does not exist any more."""
        self.stopped = False
        """Whether the endpoint wants nothing any more."""

    async def step(self) -> int | None:
        """Pull, send and acknowledge once; return the milliseconds to wait before the next time, None for none."""
        try:
            return await self._pull_and_deliver()
        except Gone:
            logger.info("push.gone", subscription=self._target.path)
            self.gone = True
            return None
        except NotTaken:
            return self._late()
        except Refused as error:
            self._failed(str(error))
            self._history, wait = retry.refused(self._history, random=self._means.random())
            return wait
        except UpstreamError as error:
            self._failed(str(error))
            most = retry.AWAY_MOST if self._stage == CONSUME else retry.UNSTORED_MOST
            self._history, wait = retry.away(self._policy, self._history, most, random=self._means.random())
            return wait
        except Exception as error:  # a defect must end neither the process nor the worker (P4)
            self._log(error)
            self._failed(f"unexpected {type(error).__name__}")
            return self._wait()
        finally:
            self.in_flight = False

    async def _pull_and_deliver(self) -> int | None:
        self._stage = CONSUME
        messages = await self._pull()
        if not messages:
            self._report.cleared()
            self._history = retry.succeeded(self._policy, self._history)
            return None
        self.in_flight = True
        self._stage = SEND
        return await self._deliver(messages)

    async def _pull(self) -> Sequence[Pulled]:
        pull = self._means.upstream.pull(self._target, max_messages=self.batch, max_bytes=retry.MAX_BYTES)
        if self._report.failure is None:
            return await pull
        try:
            async with asyncio.timeout(QUIET_SECONDS) as limit:
                return await pull
        except TimeoutError:
            if not limit.expired():
                raise
            return ()

    async def _deliver(self, messages: Sequence[Pulled]) -> int | None:
        means = self._means
        first = messages[0].offset
        attempt = self._tries + 1 if first == self._first else 1
        limit = seconds(means.upstream.patience(self._target))
        now, began = means.clock.wall(), means.clock.monotonic()
        delivery = self._deliveries.delivery(messages, attempt=attempt, now=now // 1000)
        answer, error = None, ""
        try:
            answer = await means.sender.send(self._deliveries.url, delivery.headers, delivery.body, seconds=limit)
        except CircuitOpen as circuit:  # nothing was sent
            return self._left_alone(circuit)
        except SendFailed as failed:
            error = self._details.detail(str(failed)) or "no answer"
        else:
            error = "" if answer.status in self._accepted else self._refusal(answer)
        took = means.clock.monotonic() - began
        self._first, self._tries = first, attempt
        status = answer.status if answer else 0
        self._report.attempted(Attempt(now, len(messages), status, took, len(delivery.body), cut(error, MAX_ERROR)))
        if error:
            return await self._not_accepted(messages, answer, error)
        await self._acknowledge(messages, delivery.undecodable)
        self.batch = retry.batch_after(
            self.batch, self._deliveries.most, messages=len(messages), seconds=took / 1000, limit=limit
        )
        return None

    async def _acknowledge(self, messages: Sequence[Pulled], undecodable: int) -> None:
        self._stage = ACKNOWLEDGE
        await self._means.upstream.acknowledge(self._target, messages[-1])
        self._late_in_a_row = 0
        self._refusals.passed(messages[-1])
        self._history = retry.succeeded(self._policy, self._history)
        self._report.delivered(len(messages), undecodable, self._means.clock.wall())

    async def _not_accepted(self, messages: Sequence[Pulled], answer: EndpointAnswer | None, error: str) -> int | None:
        self.batch = retry.halved(len(messages))
        if answer is None:
            self._failed(error)
            return self._wait()
        if answer.status == retry.GONE:
            self.stopped = True
            self._report.stopped(self._failure(ENDED, answer.status))
            return None
        said = self._details.answer(answer.text) or error
        # An endpoint may repeat what it was sent, which belongs into no log.
        reason = f"HTTP {answer.status}" if repeats(said, messages) else error
        self._report.failed(self._failure(said, answer.status), reason)
        if attempts := self._refusals.refused(messages, answer.status):
            await self._dead_letter(messages[0], Verdict(said, attempts, answer.status))
            return None
        return self._wait(answer.retry_after if answer.status in retry.ASKS_FOR_TIME else None)

    async def _dead_letter(self, message: Pulled, verdict: Verdict) -> None:
        self._stage = ACKNOWLEDGE
        await self._means.upstream.dead_letter(self._target, message, verdict)
        self._refusals.dead_lettered()
        self._history = retry.succeeded(self._policy, self._history)
        self._report.dead_lettered()

    def _refusal(self, answer: EndpointAnswer) -> str:
        said = self._details.answer(answer.text)
        return f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"

    def _left_alone(self, circuit: CircuitOpen) -> int:
        """Wait until the endpoint may be asked; what it last failed with says more than that it is left alone."""
        if self._report.failure is None or self._report.failure.what != SEND:
            self._failed(str(circuit))
        # A little longer for each differently: all subscriptions of the endpoint got the same `Retry-After`.
        return max(_LEAST_WAIT, int(1000 * circuit.seconds * (1 + retry.JITTER * self._means.random())))

    def _late(self) -> int | None:
        """Go on after an acknowledgement that came too late: the endpoint has done nothing wrong (P15)."""
        self.batch = retry.halved(self.batch)
        self._report.late(self._failure(LATE))
        self._late_in_a_row += 1
        # As after a seek. When it happens again, something is too slow for its deadline: it is not repeated at speed.
        return self._wait() if self._late_in_a_row > 1 else None

    def _wait(self, asked: float | None = None) -> int:
        self._history, wait = retry.failed(self._policy, self._history, retry_after=asked, random=self._means.random())
        return wait

    def _failed(self, detail: str) -> None:
        self._report.failed(self._failure(detail))

    def _failure(self, detail: str, status: int = 0) -> Failure:
        return Failure(self._means.clock.wall(), self._stage, self._details.detail(detail), status)

    def _log(self, error: Exception) -> None:
        """Report a defect once, by its kind and place: its text may hold what must not be shown."""
        if type(error) in self._defects:
            return
        self._defects.add(type(error))
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
        logger.error("push.defect", subscription=self._target.path, kind=type(error).__name__, place=place)


DEFECT_SECONDS = 10.0
"""How long a worker rests after an unexpected exception."""


class Worker:
    """Delivers one target until it is drained, its subscription is gone, or its endpoint says that it is (410)."""

    def __init__(self, target: Target, means: Means, gone: Callable[["Worker"], None]) -> None:
        self.target = target
        self._means = means
        self._tell_gone = gone
        self._report = Report(target.path, means.tally)
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
        """Whether anything happened since this was set to False."""
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
