"""A worker with the simplest surroundings: messages in memory, scripted answers, a manual clock."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ams.core.messages import Fragment, message
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.attempts import WorkerDependencies
from ams.push.report import DeliveryTally
from ams.push.sender import EndpointAnswer, Headers
from ams.push.upstream import Away, HandOuts, NotTaken, Pulled, Target, UpstreamError, Verdict
from ams.push.worker import DeliveryWorker
from ams.wire.push import Failure, WorkerState
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

PATH = "/projects/P/subscriptions/S"
OK_ANSWER = EndpointAnswer(200, "")


def target(path: str = PATH, *, identity: str = "", topic_id: str = "", deadline: int = 10, secrets: Sequence[str] = (),
           parallel: bool = False, **config: Any) -> Target:  # fmt: skip
    given = {"type": HTTP_ENDPOINT, "endpoint": "https://receiver.example/ok", "verified": True, **config}
    made = PushConfig(**given)
    return Target(
        path, "/projects/P/topics/T", made, deadline, tuple(secrets), identity, topic_id, is_parallel=parallel
    )


def make_pulled(offset: int, data: str = "aGk=", attributes: Mapping[str, str] | None = None, key: str = "") -> Pulled:
    return Pulled(offset, str(offset), "2026-01-01T00:00:00Z", Fragment(message(data, attributes, key).fragment))


class MemoryUpstream:
    def __init__(self, messages: int = 0, path: str = PATH) -> None:
        self.messages: dict[str, list[Pulled]] = {path: [make_pulled(offset) for offset in range(messages)]}
        self.positions: dict[str, int] = {}
        self.dead_lettered: list[tuple[Pulled, Verdict]] = []
        self.pulls: list[int] = []  # requested size of each pull
        self.acknowledged: list[int] = []
        self.forgotten: list[str] = []
        self.failing: dict[str, list[UpstreamError | None]] = {"pull": [], "acknowledge": [], "dead_letter": []}
        """Errors of the next calls; None: success."""
        self.seconds: float | None = None
        self.leasing: HandOuts | None = None
        self.waiting = 0  # pulls that wait for a message
        self.empty_pulls = 0  # pulls that return nothing at once instead of waiting
        self._grown = asyncio.Condition()

    def append(self, path: str = PATH, count: int = 1) -> None:
        messages = self.messages.setdefault(path, [])
        messages += [make_pulled(offset) for offset in range(len(messages), len(messages) + count)]
        self.wake()

    def wake(self) -> None:
        self._waking = asyncio.ensure_future(self._notify())

    def position(self, path: str = PATH) -> int:
        return self.positions.get(path, 0)

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        self.pulls.append(max_messages)
        self._fail("pull")
        while not (found := self._next(target, max_messages, max_bytes)):
            if self.empty_pulls:
                self.empty_pulls -= 1
                return []
            async with self._grown:
                self.waiting += 1
                try:
                    await self._grown.wait()
                finally:
                    self.waiting -= 1
            self._fail("pull")
        return found

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        self._fail("acknowledge")
        self.acknowledged.append(last.offset)
        self.positions[target.path] = last.offset + 1

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        self._fail("dead_letter")
        self.dead_lettered.append((message, verdict))
        self.positions[target.path] = message.offset + 1

    def forget(self, target: Target) -> None:
        self.forgotten.append(target.path)

    def patience(self, target: Target) -> float | None:
        return self.seconds

    @property
    def hand_outs(self) -> HandOuts | None:
        return self.leasing

    def _fail(self, what: str) -> None:
        if self.failing[what] and (error := self.failing[what].pop(0)):
            raise error

    def _next(self, target: Target, most: int, max_bytes: int) -> list[Pulled]:
        start = self.position(target.path)
        found, size = [], 0
        for each in self.messages.get(target.path, [])[start : start + most]:
            size += len(each.fragment)
            if found and size > max_bytes:
                break
            found.append(each)
        return found

    async def _notify(self) -> None:
        async with self._grown:
            self._grown.notify_all()


class Sent(NamedTuple):
    url: str
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def ids(self) -> list[int]:
        body = json.loads(self.body)
        return [int(each["message"]["messageId"]) for each in body.get("messages", [body])]


Behaviour = Callable[[Sent], EndpointAnswer | Exception]


class ScriptedSender:
    def __init__(self, *answers: EndpointAnswer | Exception, then: Behaviour = lambda _: OK_ANSWER) -> None:
        self.answers = list(answers)
        self.then = then
        self.sent: list[Sent] = []
        self.open = asyncio.Event()  # cleared, it holds answers back
        self.open.set()
        self.in_flight = 0
        self.most_in_flight = 0
        self.state = "closed"

    async def send(
        self, url: str, headers: Headers, body: bytes, *, seconds: float, at_once: int = 0
    ) -> EndpointAnswer:
        sent = Sent(url, dict(headers), body, seconds)
        self.sent.append(sent)
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        answer = self.answers.pop(0) if self.answers else self.then(sent)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def circuit(self, url: str) -> str:
        return self.state


def make_closed_sender(*answers: EndpointAnswer | Exception) -> ScriptedSender:
    sender = ScriptedSender(*answers)
    sender.open.clear()
    return sender


def refuse_messages(*ids: int, status: int = 422) -> Behaviour:
    """Return a behaviour that refuses bodies with one of these messages."""
    return lambda sent: EndpointAnswer(status, "bad") if set(sent.ids) & set(ids) else OK_ANSWER


class Naps:
    """Waits that take only virtual time; they are noted, in seconds."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.taken: list[float] = []
        self.hold = asyncio.Event()  # cleared, waits do not end
        self.hold.set()

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.clock.advance(round(seconds * 1000))
        await asyncio.sleep(0)
        await self.hold.wait()


TAKEN_LATE = NotTaken("ack timeout")


class Bench:
    def __init__(self, upstream: MemoryUpstream, sender: ScriptedSender) -> None:
        self.upstream, self.sender = upstream, sender
        self.clock = ManualClock()
        self.naps = Naps(self.clock)
        self.notes = DeliveryTally()
        self.gone: list[DeliveryWorker] = []
        self.is_leased = True
        self.worker: DeliveryWorker

    def make_worker(self, of: Target, random: float = 0.5) -> DeliveryWorker:
        means = WorkerDependencies(
            self.upstream, self.sender, self.clock, lambda: random, self.notes, self.naps,
            require_lease=self._require_lease,
        )  # fmt: skip
        return DeliveryWorker(of, means, self.gone.append)

    def _require_lease(self) -> None:
        if not self.is_leased:
            raise Away("the lease is over")

    @property
    def state(self) -> WorkerState:
        return self.worker.state()

    @property
    def last_failure(self) -> Failure:
        failure = self.state.last_failure
        assert failure is not None
        return failure

    async def idle(self) -> None:
        await wait_until_async(lambda: self.upstream.waiting)

    async def drain(self, seconds: float) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.worker.drain(seconds)


B = TypeVar("B", bound=Bench)


@contextlib.asynccontextmanager
async def wait_until_idle(working: contextlib.AbstractAsyncContextManager[B]) -> AsyncIterator[B]:
    """Yield a bench after its worker has become idle."""
    async with working as bench:
        await bench.idle()
        yield bench


@contextlib.asynccontextmanager
async def wait_until_napping(working: contextlib.AbstractAsyncContextManager[B]) -> AsyncIterator[B]:
    """Yield a bench whose worker waits after a failure, until a test ends naps."""
    async with working as bench:
        bench.naps.hold.clear()
        await wait_until_async(lambda: bench.naps.taken)
        yield bench


@contextlib.asynccontextmanager
async def at_work(bench: Bench, of: Target, random: float = 0.5) -> AsyncIterator[Bench]:
    bench.worker = bench.make_worker(of, random)
    bench.worker.start()
    try:
        yield bench
    finally:
        await bench.worker.drain(0)
