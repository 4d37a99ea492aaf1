"""Delivering: pull and acknowledge (contract 10 and 11.1).

A subscription is a cursor on a topic. A pull reads from the cursor and notes how far it handed out; an acknowledgement
moves the cursor. Nothing is leased: a pull repeated without an acknowledgement returns the same messages.

No `asyncio.timeout`, `TaskGroup` or `current_task` before the first wait: `ams.http.fast_lane` runs it without a task.
"""

import asyncio
import contextlib
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, PUSH_WORKER, SERVICE_ADMIN
from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotAllowed, Overloaded, TopicGone
from ams.core.fair_share import MAX_UNCOUNTED_BYTES, FairShare
from ams.core.messages import Stored
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId
from ams.core.runs import runs_of, sizes
from ams.core.supervisor import FairQueue
from ams.service.lookup import find_subscription, no_topic_is_a_conflict, require_attached, topic_of
from ams.service.retention import follow_retention
from ams.service.tallies import Counts
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.base import NO_DEADLINE
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

Gone = asyncio.Future[None]  # completes when the client has left

LARGE_ANSWER_BYTES = 2**19  # larger answers take a millisecond each, and are encoded one at a time
LOOP_ITERATIONS_PER_ANSWER = 3  # per large answer: a publish takes three, so it waits for one answer, not for three
TOO_MANY_UNREAD = "Too many answers wait to be read by their clients"


class UnreadAnswers(FairShare[str]):
    """Back-pressure: bytes of large answers that clients have not read yet. Each project has a fair share."""

    def check(self, project: str, size: int) -> None:
        """Raise `Overloaded` for an answer that is too large now."""
        if size > MAX_UNCOUNTED_BYTES and size > self.room(project):
            raise Overloaded(TOO_MANY_UNREAD)

    def fit(self, project: str | None, messages: Sequence[Stored]) -> tuple[Sequence[Stored], int, int]:
        """Return the first messages that fit the share (None: all), and `sizes`. Raises `Overloaded` if none fits."""
        size, data_bytes = sizes(messages)
        if project is None or size <= (left := self.room(project)):
            return messages, size, data_bytes
        count = bisect_right([*accumulate(len(each.fragment) for each in messages)], left)
        if not count:
            raise Overloaded(TOO_MANY_UNREAD)
        return messages[:count], *sizes(messages[:count])

    def hold_answer(self, project: str | None, size: int) -> contextlib.AbstractContextManager[None]:
        """Count an answer until it is sent; None: it is not sent to any client."""
        return contextlib.nullcontext() if project is None else self.hold_bytes(size, project)


@dataclass(slots=True)
class Deliverer:
    """Hands out messages, and takes acknowledgements."""

    registry: Registry
    log: Log
    cursors: CursorStore
    max_messages: int
    max_bytes: int
    wait_seconds: float
    push_enabled: bool = False  # True if workers may pull from push subscriptions (contract 10.3)
    counts: Counts = field(default_factory=Counts)
    unread: UnreadAnswers = field(default_factory=lambda: UnreadAnswers(sys.maxsize))
    _waiting: dict[asyncio.Task[Any], SubscriptionId] = field(default_factory=dict)
    _stopping: bool = False
    _large: FairQueue = field(default_factory=lambda: FairQueue(every=LOOP_ITERATIONS_PER_ANSWER))

    async def to_pull(self, caller: Caller, name: SubscriptionName) -> Subscription:
        """Return a subscription that the caller may pull from now, checked in the order of contract 10.3."""
        subscription = await self.to_acknowledge(caller, name, pulls=True)
        await topic_of(self.registry, subscription)
        return subscription

    async def is_parallel(self, caller: Caller, name: SubscriptionName) -> bool:
        """Return whether a subscription exists and is parallel, so that each ack id counts for one message."""
        found = await self.registry.subscriptions.find(caller.here.id, name)
        return found is not None and found.parallel is not None

    async def to_acknowledge(self, caller: Caller, name: SubscriptionName, *, pulls: bool = False) -> Subscription:
        """Return a subscription that the caller may consume; one with push belongs to its worker (17.2, A5)."""
        subscription = await find_subscription(self.registry, caller, name)
        if subscription.push is not None:
            if pulls and not self.push_enabled and PUSH_WORKER in caller.roles:
                raise Conflict("Push functionality is currently disabled")
            if not caller.roles & {PUSH_WORKER, SERVICE_ADMIN}:
                raise NotAllowed
        caller.require_listed(subscription.authorized, CONSUMER)
        require_attached(subscription)
        return subscription

    async def pull(
        self, subscription: Subscription, max_messages: int, *, wait: bool, max_bytes: int | None = None,
        project: str | None = None,
    ) -> Sequence[Stored]:  # fmt: skip
        """Return up to `max_messages` from the cursor on, and record the hand-out.

        With `wait` the caller calls the method `wait` after an empty pull. `max_bytes` replaces the service's limit.
        The answer counts as unread by `project`; None: it goes to no client. Little memory for unread answers gives
        fewer messages. Raises `Overloaded` if not even one fits.
        """
        topic = await topic_of(self.registry, subscription)
        with no_topic_is_a_conflict:
            messages = await self._read_and_hand_out(
                subscription, topic.id, min(max_messages, self.max_messages), max_bytes or self.max_bytes, project
            )
        if not (messages or wait):
            self.counts.note_pull(subscription.id)
        return messages

    async def wait(self, subscription: Subscription, until: float, left: Gone | None = None) -> bool:
        """Wait for messages after an empty pull; return whether to pull again. Check the rights again before.

        It ends at the time `until` of the event loop, at a stop, and when the client has `left`.
        """

        async def wait_for_growth(seconds: float) -> None:
            topic = await topic_of(self.registry, subscription)
            position = await self.cursors.position(subscription.id, topic.id)
            await self.log.wait(topic.id, position.offset, seconds)

        return await self.wait_for(subscription.id, wait_for_growth, until, left)

    async def wait_for(
        self, subscription: SubscriptionId, change: Callable[[float], Coroutine[Any, Any, object]], until: float,
        left: Gone | None,
    ) -> bool:  # fmt: skip
        """Wait for a `change`, which gets the seconds that are left; return as `wait`."""
        loop = asyncio.get_running_loop()
        seconds = until - loop.time()
        if seconds > 0 and not self._stopping:
            waiting = asyncio.ensure_future(change(seconds))
            with no_topic_is_a_conflict:
                with self._hold_waits({waiting: subscription}, left):
                    await asyncio.wait({waiting})
                if not waiting.cancelled():
                    waiting.result()
            if not (self._stopping or (left is not None and left.done()) or loop.time() >= until):
                return True
        self.counts.note_pull(subscription)
        return False

    @contextlib.contextmanager
    def _hold_waits(self, waits: Mapping[asyncio.Task[Any], SubscriptionId], left: Gone | None) -> Generator[None]:
        """Cancel waits at a stop, when woken, when the client has left, and at the end of the block."""
        self._waiting.update(waits)
        if left is not None:
            left.add_done_callback(lambda _: _cancel(waits))
        try:
            yield
        finally:
            for wait in waits:
                del self._waiting[wait]
            _cancel(waits)

    async def acknowledge(self, subscription: Subscription, numbers: Sequence[int]) -> None:
        """Acknowledge everything up to the largest of `numbers` (contract 11.2); durable when it returns."""
        last = max(numbers, default=-1)
        if last < 0:
            raise InvalidInput("Invalid ack id")
        deadline = Milliseconds(subscription.ack_deadline_seconds * 1000)
        await self.cursors.acknowledge(subscription.id, Offset(last), deadline)
        self.counts.note_acknowledgement(subscription.id)

    async def ready(
        self, subscriptions: Collection[SubscriptionId], seconds: float, left: Gone | None = None,
        coming: Callable[[SubscriptionId, float], Coroutine[Any, Any, None] | None] | None = None,
    ) -> frozenset[SubscriptionId]:  # fmt: skip
        """Return the subscriptions that have messages, as soon as one has; empty after so many seconds.

        For workers that deliver many subscriptions. An unknown subscription, or one without a topic, counts as ready:
        its pull raises the error. The wait ends when the client has `left`.

        `coming` replaces the wait of some subscriptions, such as parallel ones. It returns a coroutine that ends when
        there may be messages, and raises `TimeoutError` after so many seconds.
        """
        places = await self.cursors.places()
        unknown = frozenset(each for each in subscriptions if each not in places)
        if unknown or self._stopping or not subscriptions:
            return unknown
        waits = {
            asyncio.create_task(
                (coming and coming(each, seconds)) or self._ready(places[each].topic, places[each].offset, seconds)
            ): each
            for each in subscriptions
        }
        with self._hold_waits(waits, left):
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            # A cancelled wait was woken, as its subscription was deleted or moved.
            ready = [wait for wait in waits if wait.done() and (wait.cancelled() or wait.exception() is None)]
            return frozenset(waits[wait] for wait in ready)

    async def _ready(self, topic: TopicId, offset: Offset, seconds: float) -> None:
        """Wait for a message at or after an offset, or the deletion of the topic; raises `TimeoutError`."""
        with contextlib.suppress(TopicGone):
            if not await self.log.wait(topic, offset, seconds):
                raise TimeoutError

    async def settle(self, subscription: Subscription, last: Offset) -> None:
        """Acknowledge up to `last` for a worker of this process, without a deadline: it is the only consumer."""
        await self.cursors.acknowledge(subscription.id, last, NO_DEADLINE)
        self.counts.note_acknowledgement(subscription.id)

    def stop_waiting(self) -> None:
        """End all waiting pulls, and let none wait from now on. For an orderly stop."""
        self._stopping = True
        _cancel(tuple(self._waiting))

    def wake(self, subscription: SubscriptionId) -> None:
        """Wake pulls that wait on a subscription: it was deleted, or its cursor moved."""
        _cancel([task for task, each in self._waiting.items() if each == subscription])

    def waited_on(self) -> frozenset[SubscriptionId]:
        """Return the subscriptions that pulls wait on."""
        return frozenset(self._waiting.values())

    @property
    def waiting(self) -> int:
        """Number of waiting pulls."""
        return len(self._waiting)

    async def _read_and_hand_out(
        self, subscription: Subscription, topic: TopicId, max_messages: int, max_bytes: int, project: str | None
    ) -> Sequence[Stored]:
        """Read from the cursor and record the hand-out; retry if the cursor was moved meanwhile."""
        expected = self.cursors.cached_position(subscription.id, topic)
        while True:
            position = expected or await self.cursors.position(subscription.id, topic)
            at, expected = (position.offset if expected else None), None  # it is tried once
            most = max_bytes if project is None else max(min(max_bytes, self.unread.room(project)), 1)
            messages = await self.log.read(topic, position.offset, max_messages=max_messages, max_bytes=most)
            is_next = bool(messages) and runs_of(messages)[0].first == position.offset
            if at is not None and not is_next and await self.cursors.position(subscription.id, topic) != position:
                continue
            if not messages:
                end = (await self.log.bounds(topic)).end
                if end <= position.offset:
                    return ()
                if not await self.log.read(topic, position.offset, max_messages=1, max_bytes=1):
                    await follow_retention(self.cursors, subscription, position, end)
                continue
            if not is_next:
                # Retention removed the messages, or they are damaged: skip them, never silently (law 3).
                await follow_retention(self.cursors, subscription, position, runs_of(messages)[0].first)
            else:
                messages, size, data_bytes = self.unread.fit(project, messages)  # others may have taken what there was
                with self.unread.hold_answer(project, size):
                    end = runs_of(messages)[-1].end
                    if await self.cursors.hand_out(subscription.id, position.generation, end, at):
                        self.counts.note_pull(subscription.id, len(messages), data_bytes)
                        await self.turn(size, project)
                        return messages

    async def turn(self, size: int, project: str | None) -> None:
        """Wait for a turn of the project before encoding a large answer. None: the answer goes to no client."""
        if size > LARGE_ANSWER_BYTES:
            await self._large(project)


def _cancel(waits: "Iterable[asyncio.Task[Any]]") -> None:
    for wait in waits:
        wait.cancel()
