"""Works on a parallel subscription: several messages at a time, each acknowledged by itself.

Four tasks run beside the handlers. One pulls when there is room, within the limit of leases. One extends leases. One
sends verdicts (acknowledgements, nacks, releases) in groups: those that come during a request go with the next. One
checks whether to stop. Requests are retried as long as the service is away; acknowledgements too, as an ack id stays
valid until its message is delivered again.

`AsyncWorker` is for handlers on asyncio; `work_in_threads` runs it in a loop of its own, and handlers in threads.
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
from functools import partial
from typing import Any, NamedTuple

from ams.client import wire
from ams.client.async_client import AsyncConnections
from ams.client.client import Connections
from ams.client.errors import AckTimeout, ClientError, Closed, Conflict, InvalidInput
from ams.client.messages import AsyncHandler, Handler, Limits, ReceivedMessage, RetryLater, Worked, WorkOptions
from ams.client.plans import EMPTY_PULL_PAUSE_SECONDS, MAX_REQUEST_ACK_IDS, Planner, Retry
from ams.client.wire import Call

ENDLESS_RETRY = Retry(attempts=None, total=math.inf, longest=4.0)  # waits for the service without end
LOOKS = 10  # checks of leases per lease time
STOP_CHECK_SECONDS = 0.1  # between two checks for stop
LAST_PULL_SECONDS = 0.5  # for a pull under way when work stops; its messages are released
RELEASE_SECONDS = 5.0  # for the last releases at the end

Place = tuple[str, str]  # names of a project and of its subscription
Tasks = set[asyncio.Task[Any]]

logger = logging.getLogger("ams.client")


class _Verdict(NamedTuple):
    counted: str  # the field of `Worked`
    acknowledged: bool = False
    failed: bool = True  # if not acknowledged: whether it counts as a failure
    delay: float | None = None  # seconds until a failed one comes again; None: retry policy


_WORKED = _Verdict("worked", acknowledged=True)
_FAILED = _Verdict("failed")
_CUT_SHORT = _Verdict("given_back", delay=0)
_NOT_BEGUN = _Verdict("given_back", failed=False)


@dataclass(slots=True, eq=False)
class _Held:
    message: ReceivedMessage
    since: float
    ends: float  # earliest end of its lease; monotonic seconds, as all times here
    lost: bool = False  # the lease is known to have expired
    is_settled: bool = False  # it has a verdict


class AsyncWorker:
    """Works on one subscription, once."""

    def __init__(
        self, connections: AsyncConnections, plans: Planner, place: Place, handler: AsyncHandler, options: WorkOptions
    ) -> None:
        self._connections, self._first_plans, self._place = connections, plans, place
        self._plans = replace(plans, retry=ENDLESS_RETRY, on_retry=plans.on_retry or self._note_retry)
        self._handler, self._limits = handler, Limits(**options)
        self._lease = 0  # seconds of a lease
        self._taken = 0
        self._held: dict[str, _Held] = {}  # leased messages by ack id, until their verdict is accepted
        self._waiting: deque[_Held] = deque()  # messages to handle
        self._keeps_order = False  # True if messages of an ordering key are handled one after the other
        self._busy_keys: set[str] = set()
        self._handling: dict[asyncio.Task[None], _Held] = {}
        self._verdicts: dict[_Verdict, list[_Held]] = {}  # verdicts to send
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
        works = self._keep_leases(), self._say(), self._look_for_stop(), self._pull()
        waits = self._stop.wait(), self._at_once.wait()
        every = [asyncio.create_task(each) for each in (*works, *waits)]
        keeping, saying, looking, pulling, stopping, hurrying = every
        finished = asyncio.create_task(self._nothing_held_after(pulling))
        try:
            await _first({finished, stopping}, {keeping, saying, looking, pulling})
            if not finished.done():
                await asyncio.wait({pulling}, timeout=LAST_PULL_SECONDS)
                pulling.cancel()
                await asyncio.wait({pulling})
                self._give_back()
                await _first({finished, hurrying}, {keeping, saying, looking}, self._limits.grace)
        finally:
            self._stop.set()
            pulling.cancel()
            await self._cancel_handlers()
            await asyncio.wait({finished, saying}, timeout=RELEASE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for each in (*every, finished):
                each.cancel()
            await asyncio.gather(*every, finished, return_exceptions=True)

    async def _nothing_held_after(self, pulling: "asyncio.Task[Any]") -> None:
        await asyncio.wait({pulling})
        while self._held:
            await self._some_freed()

    async def _cancel_handlers(self) -> None:
        handling = dict(self._handling)
        for task in handling:
            task.cancel()
        if handling:
            await asyncio.wait(handling, timeout=RELEASE_SECONDS)
        self._give_back()
        for held in handling.values():  # some handlers do not end when cancelled
            self._settle(held, _CUT_SHORT)

    def _give_back(self) -> None:
        while self._waiting:
            self._settle(self._waiting.popleft(), _NOT_BEGUN)

    # Pulling

    async def _pull(self) -> None:
        """Prefetch: pull while there is room, ahead of the handlers, up to the limit of leases."""
        while not self._stop.is_set():
            if self._taken == self._limits.max_messages:
                return
            room = self._limits.max_leased - len(self._held)
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
            if not received and time.monotonic() - asked < EMPTY_PULL_PAUSE_SECONDS:
                await asyncio.sleep(EMPTY_PULL_PAUSE_SECONDS)

    # Handling

    def _begin(self) -> None:
        while len(self._handling) < self._limits.concurrency and not self._stop.is_set():
            held = next((each for each in self._waiting if self._key_of(each) not in self._busy_keys), None)
            if held is None:
                return
            self._waiting.remove(held)
            if held.lost:
                self._settle(held, _WORKED)  # counts it as late
                continue
            if key := self._key_of(held):
                self._busy_keys.add(key)
            task = asyncio.create_task(self._handle(held))
            self._handling[task] = held
            task.add_done_callback(self._on_handler_done)

    def _on_handler_done(self, task: "asyncio.Task[None]") -> None:
        held = self._handling.pop(task)
        self._busy_keys.discard(self._key_of(held))
        self._settle(held, _NOT_BEGUN)  # if not settled: cancelled before it began
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
        for each in [each for each in self._waiting if self._key_of(each) == key]:  # they come again after it
            self._waiting.remove(each)
            self._settle(each, _NOT_BEGUN)

    async def _say(self) -> None:
        while True:
            await self._to_say.wait()
            self._to_say.clear()
            while self._verdicts:
                verdict, several = next(iter(self._verdicts.items()))
                part, rest = several[:MAX_REQUEST_ACK_IDS], several[MAX_REQUEST_ACK_IDS:]
                del self._verdicts[verdict]
                if rest:
                    self._verdicts[verdict] = rest
                await self._say_of(verdict, part)

    async def _say_of(self, verdict: _Verdict, several: Sequence[_Held]) -> None:
        if verdict.acknowledged:
            call = partial(wire.acknowledge, *self._place)
        else:
            delay = None if verdict.delay is None else math.ceil(verdict.delay)
            call = partial(wire.nack, *self._place, delay=delay, failed=verdict.failed)
        late = await self._late(several, call)
        for held in several:
            self._held.pop(held.message.ack_id, None)
            is_late = verdict.acknowledged and (held.lost or held.message.ack_id in late)
            self._counts["late" if is_late else verdict.counted] += 1
        self._freed.set()

    async def _late(self, several: Sequence[_Held], call: Callable[[Sequence[str]], Call[None]]) -> set[str]:
        ids = [each.message.ack_id for each in several if not each.lost]
        try:
            await self._connections.carry_out(self._plans.in_parts(ids, call))
        except AckTimeout as error:
            return set(error.late or ids)
        except InvalidInput:
            # One is of a deleted subscription that was made again under its name.
            if len(ids) < 2:
                return set(ids)
            return {each for held in several for each in await self._late([held], call)}
        return set()

    # Leases

    async def _keep_leases(self) -> None:
        """Extend leases with less than half their time left, and others close to that."""
        while True:
            await asyncio.sleep(self._lease / LOOKS)
            now = time.monotonic()
            kept = [each for each in self._held.values() if not each.lost and now < each.since + self._limits.max_lease]
            if all(each.ends - now >= self._lease / 2 for each in kept):
                continue
            several = [each for each in kept if each.ends - now < self._lease * 3 / 4]
            late = await self._late(several, lambda ids: wire.extend(*self._place, ids, self._lease))
            for held in several:
                held.ends = now + self._lease
                # Acknowledged messages cannot be extended; the verdict's answer tells if it was late.
                if held.message.ack_id in late and not held.is_settled:
                    held.lost = True
                    logger.warning("lease of message %s of %s has ended", held.message.id, self._place[1])

    # Stopping

    async def _look_for_stop(self) -> None:
        while True:
            if self._limits.stop is not None and self._limits.stop.is_set():
                self._stop.set()
            if self._connections.is_closed:
                raise Closed("the client is closed")
            await asyncio.sleep(STOP_CHECK_SECONDS)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at a signal, at once at a second one; not if the program gave its own `stop`."""
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


async def _first(awaited: Tasks, others: Tasks, timeout: float | None = None) -> None:
    """Wait for the first of `awaited` up to `timeout` seconds; raise errors of `others`."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = None if timeout is None else max(until - time.monotonic(), 0)
        done, _ = await asyncio.wait(awaited | others, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for each in done & others:
            each.result()
        if not done or done & awaited:
            return
        others = others - done


def work_in_threads(
    connections: Connections, plans: Planner, place: Place, handler: Handler, options: WorkOptions
) -> Worked:
    """Work on one subscription for a client for threads; return what was done. Raises as `Subscription.work`."""

    async def work() -> Worked:
        threads = _Threads(Limits(**options).concurrency, handler)
        own = AsyncConnections(*connections.arguments)

        async def close_when_closed() -> None:
            while not connections.is_closed:  # noqa: ASYNC110  # by any thread
                await asyncio.sleep(STOP_CHECK_SECONDS)
            await own.close()

        closing = asyncio.create_task(close_when_closed())
        try:
            return await AsyncWorker(own, plans, place, threads.handle, options).run()
        finally:
            closing.cancel()
            threads.end()
            await own.close()

    return asyncio.run(work())


class _Threads:
    """Runs a handler in daemon threads, as a handler may never return."""

    def __init__(self, most: int, handler: Handler) -> None:
        self._handler = handler
        self._jobs: queue.SimpleQueue[tuple[ReceivedMessage, Callable[[Exception | None], object]] | None]
        self._jobs = queue.SimpleQueue()  # messages, each with a callback for its handler's error
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
        if (error := await ended) is not None:
            raise error

    def end(self) -> None:
        """End threads after their current message."""
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
            with contextlib.suppress(RuntimeError):  # the loop is gone
                ended(error)
