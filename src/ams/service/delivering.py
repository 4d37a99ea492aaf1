"""Delivering: pull and acknowledge (contract 10 and 11.1).

A subscription is a cursor on a topic. A pull reads from the cursor and notes how far it handed out; an acknowledgement
moves the cursor. Nothing is leased: a pull repeated without an acknowledgement returns the same messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ams.access.admission import Caller
from ams.access.roles import CONSUMER, PUSH_WORKER, SERVICE_ADMIN
from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotAllowed, Overloaded, TopicGone
from ams.core.messages import Stored
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId
from ams.service.counts import Counts
from ams.service.lookup import find_subscription, no_topic_is_a_conflict, topic_of
from ams.service.losses import follow
from ams.storage.cursors.base import NO_DEADLINE, Cursors, Position
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

Gone = asyncio.Future[None]
"""Completes when the client has left."""


@dataclass(slots=True)
class Deliverer:
    """Hands messages out and takes acknowledgements."""

    registry: Registry
    log: Log
    cursors: Cursors
    max_messages: int
    max_bytes: int
    wait_seconds: float
    """How long a pull that waits does so (contract 17.1, M9)."""
    push_enabled: bool = False
    """Whether workers may pull what is to be pushed (contract 10.3)."""
    counts: Counts = field(default_factory=Counts)
    _waiting: dict[asyncio.Task[None], SubscriptionId] = field(default_factory=dict)
    _stopping: bool = False

    async def subscription(self, caller: Caller, name: SubscriptionName) -> Subscription:
        """Return what the caller may pull from now, checked in the order of contract 10.3."""
        subscription = await self._subscription(caller, name, pulls=True)
        await topic_of(self.registry, subscription)
        return subscription

    async def pull(
        self,
        subscription: Subscription,
        max_messages: int,
        *,
        wait: bool,
        seconds: float | None = None,
        max_bytes: int | None = None,
        memory_left: Callable[[], int] | None = None,
        gone: Callable[[], Gone] | None = None,
        again: Callable[[], Awaitable[Subscription]] | None = None,
    ) -> Sequence[Stored]:
        """Return up to `max_messages` from the cursor on; with `wait`, as soon as there is one, else after a while.

        `seconds` and `max_bytes` take the place of the service's own limits, for who asks from inside. `memory_left`
        says how many bytes the answer may have now: the messages are fewer then, and `Overloaded` is raised when it is
        too little for the first. `gone` starts watching for the client to leave; it is called only when there is
        something to wait for. `again` is asked after a wait whether the caller may still have what came, and raises if
        not.
        """
        loop = asyncio.get_running_loop()
        patience = self.wait_seconds if seconds is None else seconds
        give_up = loop.time() + (patience if wait else 0)
        left: Gone | None = None
        try:
            while True:
                topic = await topic_of(self.registry, subscription)
                with no_topic_is_a_conflict():
                    messages, end = await self._take(
                        subscription,
                        topic.id,
                        min(max_messages, self.max_messages),
                        max_bytes or self.max_bytes,
                        memory_left,
                    )
                left_seconds = give_up - loop.time()
                if messages or left_seconds <= 0 or self._stopping:
                    break
                if left is None and gone is not None:
                    left = gone()
                await self._wait(subscription.id, topic.id, end, left_seconds, left)
                if self._stopping or (left is not None and left.done()) or loop.time() >= give_up:
                    break
                if again is not None:
                    subscription = await again()
        finally:
            if left is not None:
                left.cancel()
        self.counts.note_pull(subscription.id, messages)
        return messages

    async def acknowledge(self, caller: Caller, name: SubscriptionName, numbers: Callable[[], Sequence[int]]) -> None:
        """Acknowledge everything up to the largest of `numbers` (contract 11.2); durable when it returns.

        The numbers are asked for after the subscription was found and the caller let in, as contract 11.1 orders.
        """
        subscription = await self._subscription(caller, name)
        last = max(numbers(), default=-1)
        if last < 0:
            raise InvalidInput("Invalid ack id")
        deadline = Milliseconds(subscription.ack_deadline_seconds * 1000)
        await self.cursors.acknowledge(subscription.id, Offset(last), deadline)
        self.counts.note_acknowledgement(subscription.id)

    async def ready(
        self,
        subscriptions: Collection[SubscriptionId],
        seconds: float,
        gone: Callable[[], Gone] | None = None,
    ) -> frozenset[SubscriptionId]:
        """Return which of these have something to pull, as soon as one has; none after so many seconds.

        For those who deliver many subscriptions: a pull moves nothing and says nothing of the others. What is unknown,
        or whose topic is, counts as ready: a pull says why. `gone` is as of a pull.
        """
        places = await self.cursors.places()
        unknown = frozenset(each for each in subscriptions if each not in places)
        if unknown or self._stopping or not subscriptions:
            return unknown
        waits = {
            asyncio.create_task(self._ready(places[each].topic, places[each].offset, seconds)): each
            for each in subscriptions
        }
        self._waiting.update(waits)
        left = gone() if gone is not None else None
        if left is not None:
            left.add_done_callback(lambda _: _cancel(waits))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return frozenset(each for wait, each in waits.items() if wait.done() and _is_ready(wait))
        finally:
            for wait in waits:
                del self._waiting[wait]
            _cancel(waits)
            if left is not None:
                left.cancel()

    async def _ready(self, topic: TopicId, offset: Offset, seconds: float) -> None:
        """Return when there is something at or after an offset, or when the topic is gone; raise after a while."""
        try:
            if not await self.log.wait(topic, offset, seconds):
                raise TimeoutError
        except TopicGone:
            return

    async def settle(self, subscription: Subscription, last: Offset) -> None:
        """Acknowledge up to `last` for who delivers inside the service.

        There is no deadline to keep: nobody else delivers it meanwhile (`ams.push.leases`).
        """
        await self.cursors.acknowledge(subscription.id, last, NO_DEADLINE)
        self.counts.note_acknowledgement(subscription.id)

    def stop_waiting(self) -> None:
        """End every waiting pull with what it has: nothing; from now on none waits. For an orderly stop."""
        self._stopping = True
        for task in tuple(self._waiting):
            task.cancel()

    def wake(self, subscription: SubscriptionId) -> None:
        """Let the pulls that wait on a subscription look again: it was deleted, or its cursor moved."""
        for task in [task for task, each in self._waiting.items() if each == subscription]:
            task.cancel()

    def waited_on(self) -> frozenset[SubscriptionId]:
        """Return the subscriptions that pulls wait on."""
        return frozenset(self._waiting.values())

    @property
    def waiting(self) -> int:
        """How many pulls wait now."""
        return len(self._waiting)

    async def _subscription(self, caller: Caller, name: SubscriptionName, *, pulls: bool = False) -> Subscription:
        """Return a subscription the caller may consume; one with push belongs to its worker (17.2, A5)."""
        subscription = await find_subscription(self.registry, caller, name)
        if subscription.push is not None:
            if pulls and not self.push_enabled and PUSH_WORKER in caller.roles:
                raise Conflict("Push functionality is currently disabled")
            if not caller.roles & {PUSH_WORKER, SERVICE_ADMIN}:
                raise NotAllowed
        caller.require_listed(subscription.authorized, CONSUMER)
        return subscription

    async def _take(
        self,
        subscription: Subscription,
        topic: TopicId,
        max_messages: int,
        max_bytes: int,
        memory_left: Callable[[], int] | None,
    ) -> tuple[Sequence[Stored], Offset]:
        """Read from the cursor and record the hand-out; again when somebody moved the cursor in between."""
        while True:
            position = await self.cursors.position(subscription.id, topic)
            most = max_bytes if memory_left is None else max(min(max_bytes, memory_left()), 1)
            messages = await self.log.read(topic, position.offset, max_messages=max_messages, max_bytes=most)
            if memory_left is not None and messages and memory_left() < max_bytes:
                messages = _within(messages, memory_left())  # others may have taken what there was meanwhile
            if not messages:
                end = await self._end(subscription, topic, position)
                if end is not None:
                    return [], end
            elif messages[0].offset > position.offset:
                await self._skip(subscription, position, messages[0].offset)
            else:
                end = Offset(messages[-1].offset + 1)
                if await self.cursors.hand_out(subscription.id, position.generation, end):
                    return messages, end

    async def _end(self, subscription: Subscription, topic: TopicId, position: Position) -> Offset | None:
        """Return the topic's end if the cursor is there; None when there is more to read after all."""
        end = (await self.log.bounds(topic)).end
        if end <= position.offset:
            return end
        late = await self.log.read(topic, position.offset, max_messages=1, max_bytes=1)
        if not late:
            await self._skip(subscription, position, end)
        return None

    async def _skip(self, subscription: Subscription, position: Position, to: Offset) -> None:
        """Follow retention, or pass what is damaged: never silently (law 3)."""
        await follow(self.cursors, subscription, position, to)

    async def _wait(
        self, subscription: SubscriptionId, topic: TopicId, end: Offset, seconds: float, gone: Gone | None
    ) -> None:
        """Wait for a message after `end`, or until time, the client, the service, or a deletion ends the wait."""
        waiting = asyncio.ensure_future(self._grown(topic, end, seconds))
        self._waiting[waiting] = subscription
        if gone is not None:
            gone.add_done_callback(lambda _: waiting.cancel())
        try:
            await asyncio.wait({waiting})
        finally:
            del self._waiting[waiting]
            waiting.cancel()
        if not waiting.cancelled():
            waiting.result()

    async def _grown(self, topic: TopicId, end: Offset, seconds: float) -> None:
        with no_topic_is_a_conflict():
            await self.log.wait(topic, end, seconds)


def _within(messages: Sequence[Stored], memory_left: int) -> Sequence[Stored]:
    """Return as many of the first messages as there is memory for; raise `Overloaded` when it is none."""
    for count, message in enumerate(messages):
        memory_left -= len(message.fragment)
        if memory_left < 0:
            if count == 0:
                raise Overloaded("Too many answers wait to be read by their clients")
            return messages[:count]
    return messages


def _cancel(waits: "Iterable[asyncio.Task[None]]") -> None:
    for wait in waits:
        wait.cancel()


def _is_ready(wait: "asyncio.Task[None]") -> bool:
    """Whether a wait that is over found something, or was told that its subscription is deleted."""
    return wait.cancelled() or wait.exception() is None
