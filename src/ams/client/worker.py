"""Works on a parallel subscription: several messages at a time, each acknowledged by itself.

Four tasks run beside the handlers. One pulls as room frees, so that no more is on lease than was said. One keeps
leases alive. One sends what was settled, in groups: what is settled while a request is under way goes with the next.
One looks whether the work is to stop. Requests are sent again for as long as the service is away; acknowledgements
too, as an id is good until its message was given again.

`AsyncWorker` is for handlers on asyncio; `Worker` runs it in an event loop of its own, and handlers in threads.
"""

import asyncio
import contextlib
import logging
import math
import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ams.client import wire
from ams.client.errors import AckTimeout, ClientError, Closed, Conflict, InvalidInput
from ams.client.messages import AsyncHandler, Handler, Limits, ReceivedMessage, RetryLater, Worked
from ams.client.plans import BREATH, NAMED_IDS, Plan, Planner, Retry
from ams.client.transport import AsyncConnections, Connections

PATIENT = Retry(attempts=None, total=math.inf, longest=4.0)  # while there is work, the service is waited for
LOOKS = 10  # how often leases are looked at while one lasts
STOP_LOOKS = 0.1  # seconds between two looks at what says that work is to stop
LAST_PULL = 0.5  # seconds that a pull under way is given when work is to stop: what it brings is given back
GIVE_BACK = 5.0  # seconds for giving back what is left at the end

logger = logging.getLogger("ams.client")


class _Verdict(NamedTuple):
    counted: str  # the field of `Worked`
    acknowledged: bool = False
    failed: bool = True  # of one that is not acknowledged: whether it counts as a failure
    delay: float | None = None  # seconds after which one that failed comes again; None: as the retry policy says


_WORKED = _Verdict("worked", acknowledged=True)
_FAILED = _Verdict("failed")
_CUT_SHORT = _Verdict("given_back", delay=0)
_NOT_BEGUN = _Verdict("given_back", failed=False)


@dataclass(slots=True, eq=False)
class _Held:
    message: ReceivedMessage
    since: float
    ends: float  # when its lease ends at the earliest; monotonic seconds, as all times here
    lost: bool = False  # true if the lease is known to have ended
    is_settled: bool = False  # true if there is a verdict on it


class AsyncWorker:
    """Works on one subscription, once."""

    def __init__(
        self,
        connections: AsyncConnections,
        plans: Planner,
        project: str,
        subscription: str,
        handler: AsyncHandler,
        limits: Limits,
    ) -> None:
        self._connections = connections
        self._plans = replace(plans, retry=PATIENT, on_retry=plans.on_retry or self._note_retry)
        self._first_plans = plans
        self._place = project, subscription
        self._handler = handler
        self._limits = limits
        self._lease = 0
        """Seconds of a lease."""
        self._taken = 0
        self._held: dict[str, _Held] = {}
        """By ack id: what is on lease, until what was said of it has been taken."""
        self._waiting: deque[_Held] = deque()
        """What is to be handled."""
        self._keeps_order = False
        """Whether messages of an ordering key are handled one after the other."""
        self._busy_keys: set[str] = set()
        self._handling: dict[asyncio.Task[None], _Held] = {}
        self._verdicts: dict[_Verdict, list[_Held]] = {}
        """What is to be said."""
        self._to_say, self._freed = asyncio.Event(), asyncio.Event()
        self._stop, self._at_once = asyncio.Event(), asyncio.Event()
        self._counts: Counter[str] = Counter()

    async def run(self) -> Worked:
        """Work until it is to stop; return what was done. Raises as `AsyncSubscription.work`."""
        found = await self._connections.carry_out(self._first_plans.ask(wire.get_subscription(*self._place)))
        if found.type != "parallel":
            raise Conflict(
                f"subscription {self._place[1]} is ordered: its messages are acknowledged all up to one, so that no two"
                " can be worked on at a time; make a parallel one of the same topic",
                409,
            )
        self._lease = found.ack_deadline_seconds
        self._keeps_order = found.enable_message_ordering
        with self._signals(), contextlib.suppress(Closed):
            await self._work()
        done = Worked(**self._counts)
        logger.info("subscription %s: %s", self._place[1], done)
        return done

    # From beginning to end

    async def _work(self) -> None:
        keeping, saying, looking, pulling, stopping, hurrying = every = [
            asyncio.create_task(each)
            for each in (
                self._keep_leases(),
                self._say(),
                self._look_for_stop(),
                self._pull(),
                self._stop.wait(),
                self._at_once.wait(),
            )
        ]
        finished = asyncio.create_task(self._nothing_held_after(pulling))
        try:
            await _first({finished, stopping}, {keeping, saying, looking, pulling})
            if not finished.done():
                await asyncio.wait({pulling}, timeout=LAST_PULL)
                pulling.cancel()
                await asyncio.wait({pulling})
                self._give_back()
                await _first({finished, hurrying}, {keeping, saying, looking}, self._limits.grace)
        finally:
            self._stop.set()
            pulling.cancel()
            await self._end_handlers()
            await asyncio.wait({finished, saying}, timeout=GIVE_BACK, return_when=asyncio.FIRST_COMPLETED)
            for each in (*every, finished):
                each.cancel()
            await asyncio.gather(*every, finished, return_exceptions=True)

    async def _nothing_held_after(self, pulling: "asyncio.Task[Any]") -> None:
        """Return when nothing more is pulled, and every message is settled."""
        await asyncio.wait({pulling})
        while self._held:
            await self._some_freed()

    async def _end_handlers(self) -> None:
        """Give back what was not begun, and what is still handled when the time is over."""
        handling = dict(self._handling)
        for task in handling:
            task.cancel()
        if handling:
            await asyncio.wait(handling, timeout=GIVE_BACK)
        self._give_back()
        for held in handling.values():  # some handlers do not end when they are cancelled
            self._settle(held, _CUT_SHORT)

    def _give_back(self) -> None:
        while self._waiting:
            self._settle(self._waiting.popleft(), _NOT_BEGUN)

    # Pulling

    async def _pull(self) -> None:
        while not self._stop.is_set():
            if self._taken == self._limits.max_messages:
                return
            room = self._limits.held - len(self._held)
            if room < self._limits.least_room:
                await self._some_freed()
                continue
            if self._limits.max_messages is not None:
                room = min(room, self._limits.max_messages - self._taken)
            asked, was_idle = time.monotonic(), not self._held
            received = await self._connections.carry_out(self._plans.pull(*self._place, room, True))
            self._taken += len(received)
            for message in received:
                held = self._held[message.ack_id] = _Held(message, asked, asked + self._lease)
                self._waiting.append(held)
            self._begin()
            if not received and was_idle and self._limits.until_empty:
                return
            if not received and time.monotonic() - asked < BREATH:
                await asyncio.sleep(BREATH)

    # Handling

    def _begin(self) -> None:
        while len(self._handling) < self._limits.concurrency and not self._stop.is_set():
            held = next((each for each in self._waiting if self._key_of(each) not in self._busy_keys), None)
            if held is None:
                return
            self._waiting.remove(held)
            if held.lost:
                self._settle(held, _WORKED)  # which counts it as late
                continue
            if key := self._key_of(held):
                self._busy_keys.add(key)
            task = asyncio.create_task(self._handle(held))
            self._handling[task] = held
            task.add_done_callback(self._handled)

    def _handled(self, task: "asyncio.Task[None]") -> None:
        held = self._handling.pop(task)
        self._busy_keys.discard(self._key_of(held))
        self._settle(held, _NOT_BEGUN)  # unless it was settled: cancelled before it began
        self._begin()

    def _key_of(self, held: _Held) -> str:
        return held.message.ordering_key if self._keeps_order else ""

    async def _handle(self, held: _Held) -> None:
        try:
            await self._handler(held.message)
        except RetryLater as later:
            self._settle(held, _FAILED._replace(delay=later.delay))
        except asyncio.CancelledError:
            self._settle(held, _CUT_SHORT if self._stop.is_set() else _FAILED)
        except Exception as error:
            logger.warning("message %s of %s failed", held.message.id, self._place[1], exc_info=error)
            self._settle(held, _FAILED)
        else:
            self._settle(held, _WORKED)

    # Settling

    def _settle(self, held: _Held, verdict: _Verdict) -> None:
        if held.is_settled:
            return
        held.is_settled = True
        self._verdicts.setdefault(verdict, []).append(held)
        self._to_say.set()
        key = self._key_of(held)
        if not key or verdict.acknowledged:
            return
        for each in [each for each in self._waiting if self._key_of(each) == key]:  # they come again behind it
            self._waiting.remove(each)
            self._settle(each, _NOT_BEGUN)

    async def _say(self) -> None:
        while True:
            await self._to_say.wait()
            self._to_say.clear()
            while self._verdicts:
                verdict, several = next(iter(self._verdicts.items()))
                part, rest = several[:NAMED_IDS], several[NAMED_IDS:]
                del self._verdicts[verdict]
                if rest:
                    self._verdicts[verdict] = rest
                await self._say_of(verdict, part)

    async def _say_of(self, verdict: _Verdict, several: Sequence[_Held]) -> None:
        if verdict.acknowledged:
            late = await self._late(several, lambda ids: self._plans.acknowledge(*self._place, ids))
        elif not verdict.failed:
            late = await self._late(several, lambda ids: self._plans.release(*self._place, ids))
        else:
            late = await self._late(several, lambda ids: self._plans.nack(*self._place, ids, verdict.delay))
        for held in several:
            self._held.pop(held.message.ack_id, None)
            is_late = verdict.acknowledged and (held.lost or held.message.ack_id in late)
            self._counts["late" if is_late else verdict.counted] += 1
        self._freed.set()

    async def _late(self, several: Sequence[_Held], plan: Callable[[list[str]], Plan[None]]) -> set[str]:
        """Ask something for messages whose leases are not lost; return the ids for which that came too late."""
        ids = [each.message.ack_id for each in several if not each.lost]
        try:
            await self._connections.carry_out(plan(ids))
        except AckTimeout as error:
            return set(error.late or ids)
        except InvalidInput:
            # One of them is of a subscription that was deleted, and made anew under its name.
            if len(ids) < 2:
                return set(ids)
            return {each for held in several for each in await self._late([held], plan)}
        return set()

    # Leases

    async def _keep_leases(self) -> None:
        """Extend leases of which less than half is left, and with them those of which not much more is."""
        while True:
            await asyncio.sleep(self._lease / LOOKS)
            now = time.monotonic()
            kept = [each for each in self._held.values() if not each.lost and now < each.since + self._limits.max_lease]
            if any(each.ends - now < self._lease / 2 for each in kept):
                await self._extend([each for each in kept if each.ends - now < self._lease * 3 / 4], now)

    async def _extend(self, several: Sequence[_Held], now: float) -> None:
        late = await self._late(several, lambda ids: self._plans.extend(*self._place, ids, self._lease))
        for held in several:
            held.ends = now + self._lease
            # What is acknowledged cannot be extended; the answer to the verdict tells whether that came too late.
            if held.message.ack_id in late and not held.is_settled:
                held.lost = True
                logger.warning("lease of message %s of %s has ended", held.message.id, self._place[1])

    # What says that work is to stop

    async def _look_for_stop(self) -> None:
        while True:
            if self._limits.stop is not None and self._limits.stop.is_set():
                self._stop.set()
            if self._connections.closed:
                raise Closed("the client is closed")
            await asyncio.sleep(STOP_LOOKS)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at signals: at a second one at once. Not when the program said what stops the work."""
        if self._limits.stop is not None or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def stop(_number: int, _frame: object) -> None:
            loop.call_soon_threadsafe((self._at_once if self._stop.is_set() else self._stop).set)

        before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def _some_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def _note_retry(self, error: ClientError, sent: int, _pause: float) -> None:
        if sent == 1:
            logger.warning("%s; trying again until it can be reached", error.message)


async def _first(
    awaited: "set[asyncio.Task[Any]]", others: "set[asyncio.Task[Any]]", timeout: float | None = None
) -> None:
    """Wait for one of some tasks, for so many seconds; raise what one of the others raises meanwhile."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = None if timeout is None else max(until - time.monotonic(), 0)
        done, _ = await asyncio.wait(awaited | others, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for each in done & others:
            each.result()
        if not done or done & awaited:
            return
        others = others - done


class Worker:
    """Works on one subscription, once, for a client for threads."""

    def __init__(
        self,
        connections: Connections,
        plans: Planner,
        project: str,
        subscription: str,
        handler: Handler,
        limits: Limits,
    ) -> None:
        self._connections = connections
        self._plans = plans
        self._place = project, subscription
        self._handler = handler
        self._limits = limits

    def run(self) -> Worked:
        """Work until it is to stop; return what was done. Raises as `Subscription.work`."""
        return asyncio.run(self._run())

    async def _run(self) -> Worked:
        connections = self._connections.for_asyncio()
        threads = _Threads(self._limits.concurrency, self._handler)
        worker = AsyncWorker(connections, self._plans, *self._place, threads.handle, self._limits)

        async def close_when_closed() -> None:
            while not self._connections.closed:  # noqa: ASYNC110  # by any thread
                await asyncio.sleep(STOP_LOOKS)
            await connections.close()

        closing = asyncio.create_task(close_when_closed())
        try:
            return await worker.run()
        finally:
            closing.cancel()
            threads.end()
            await connections.close()


class _Threads:
    """Runs a handler in threads. They do not keep a program from ending, as a handler may take for ever."""

    def __init__(self, most: int, handler: Handler) -> None:
        self._handler = handler
        self._jobs: queue.SimpleQueue[tuple[ReceivedMessage, Callable[[Exception | None], object]] | None]
        self._jobs = queue.SimpleQueue()  # messages, each with what is called with the error of its handler
        self._threads = [
            threading.Thread(target=self._run, name=f"handler-{number}", daemon=True) for number in range(most)
        ]
        for each in self._threads:
            each.start()

    async def handle(self, message: ReceivedMessage) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exception | None] = loop.create_future()

        def end(error: Exception | None) -> None:
            if not ended.done():
                ended.set_result(error)

        self._jobs.put((message, lambda error: loop.call_soon_threadsafe(end, error)))
        error = await ended
        if error is not None:
            raise error

    def end(self) -> None:
        """Let threads end when they have handled what they are at."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            message, ended = job
            error: Exception | None = None
            try:
                self._handler(message)
            except Exception as raised:
                error = raised
            except BaseException as raised:
                error = RuntimeError(f"the handler raised {type(raised).__name__}")
            with contextlib.suppress(RuntimeError):  # nobody waits for it any more
                ended(error)
