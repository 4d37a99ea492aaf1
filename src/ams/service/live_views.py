"""Live views of a project: counts of some topics and subscriptions, and the tail of a topic.

A view is updated when something is published, and every few seconds, as acknowledgements do not wake it. Rights are
checked again after changes in the registry, and every few seconds, as tokens expire. A view buffers nothing: events
are made only when the client reads them.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.access.admission import Caller
from ams.access.permissions import PUBLISHER
from ams.core.clock import Clock, publish_time
from ams.core.errors import Conflict, Overloaded, OwnedElsewhere, RateLimited, refuse_if
from ams.core.filters import Filter, parse
from ams.core.messages import Stored, attributes_of
from ams.core.names import Offset, SubscriptionName, TopicId, TopicName, UserId
from ams.service.lookup import check_names, find_listed_subscription, find_topic
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.push.configurations import PushWatcher
from ams.service.ranges import RangeReader
from ams.service.retention import age_of, lag_of
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.wire.service import Counts, SubscriptionCounts, TopicCounts

MOST_VIEWS = 100  # of one user at a time
LOOK_SECONDS = 2.0
COUNTS_SECONDS, TAIL_SECONDS = 1.0, 0.25  # seconds between two events with counts, and with messages of a tail
RIGHTS_SECONDS = 5.0
TAIL_MESSAGES, TAIL_BYTES = 200, 2**20  # messages that a tail reads per second, and bytes per event

Admit = Callable[[str, Mapping[str, str]], Awaitable[Caller]]
"""Admits the user of a view to an action on the resource of these path variables; raises as for any request."""


class ViewRequest(NamedTuple):
    """Names for a view; a topic whose tail it shows, if any, and a filter of its messages."""

    topics: Sequence[str]
    subscriptions: Sequence[str]
    tail: str = ""
    filter: str = ""


class Tail(NamedTuple):
    """The next messages of a topic; `skipped` messages before them are not shown."""

    messages: Sequence[Stored]
    skipped: int


class ViewResources(NamedTuple):
    """Resources of a view, as last looked up."""

    topics: Mapping[str, Topic]
    subscriptions: Mapping[str, tuple[Subscription, Topic | None]]
    tail: Topic | None
    caller: Caller


@dataclass(slots=True)
class TailReader:
    """Position of a view on the topic whose tail it shows. Older messages are skipped for newer ones."""

    log: Log
    topic: TopicId
    offset: Offset
    filter: Filter | None
    at: float
    allowed: float = TAIL_MESSAGES

    async def next(self, end: Offset, now: float) -> Tail | None:
        """Return messages up to `end`, within the rate of a tail; None: nothing."""
        self.allowed = min(self.allowed + (now - self.at) * TAIL_MESSAGES, TAIL_MESSAGES)
        self.at = now
        most = int(self.allowed)
        if self.offset >= end or not most:
            return None
        first = Offset(max(self.offset, end - most))
        found = await self.log.read(self.topic, first, max_messages=most, max_bytes=TAIL_BYTES)
        if not found:  # damaged, or gone by retention
            skipped, self.offset = end - self.offset, end
            return Tail((), skipped)
        self.allowed -= len(found)
        skipped, self.offset = found[0].offset - self.offset, Offset(found[-1].offset + 1)
        shown = found if not self.filter else [each for each in found if self.filter(attributes_of(each.fragment))]
        return Tail(shown, skipped) if shown or skipped else None


@dataclass(slots=True)
class Live:
    """Makes views."""

    registry: Registry
    log: Log
    cursors: CursorStore
    clock: Clock
    reader: RangeReader
    watcher: PushWatcher
    working: ParallelSubscriptions
    _by_user: Counter[UserId | None] = field(default_factory=Counter)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def views(self) -> int:
        """Number of open views."""
        return self._by_user.total()

    def stop(self) -> None:
        """End all views."""
        self._stopping.set()

    async def view(
        self, wanted: ViewRequest, names: Mapping[str, str], admit: Admit
    ) -> AsyncGenerator[Counts | Tail | None]:
        """Yield counts, at first and when they change, and messages of the tail; None before each pause.

        Raises `InvalidInput`, `NotFound`, `NotAllowed`, `RateLimited`; at a stop `Overloaded`.
        """
        chosen, now, invalidations = _check(wanted), asyncio.get_running_loop().time, self.registry.invalidations
        generation = invalidations.generation
        seen = await self._look_up(wanted, names, admit)
        with self._count_view(seen.caller.user):
            ends = await self._ends(seen)
            tail = self._tail_of(seen, ends, chosen, None)
            told, counted, looked_up = await self._counts(seen), now(), now()
            yield told
            is_counted = True
            while True:
                await self._change(
                    ends if tail is None else {**ends, tail.topic: tail.offset},
                    LOOK_SECONDS if is_counted else max(counted + COUNTS_SECONDS - now(), 0),
                )
                if generation != invalidations.generation or now() - looked_up >= RIGHTS_SECONDS:
                    generation = invalidations.generation
                    seen, looked_up = await self._look_up(wanted, names, admit), now()
                ends = await self._ends(seen)
                tail = self._tail_of(seen, ends, chosen, tail)
                if tail and (came := await tail.next(ends[tail.topic], now())):
                    yield came
                is_counted = now() - counted >= COUNTS_SECONDS
                if is_counted:
                    counts, counted = await self._counts(seen), now()
                    if (counts.topics, counts.subscriptions) != (told.topics, told.subscriptions):
                        told = counts
                        yield told
                yield None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TAIL_SECONDS if tail else COUNTS_SECONDS):
                        await self._stopping.wait()

    def _tail_of(
        self, seen: ViewResources, ends: Mapping[TopicId, Offset], chosen: Filter | None, before: TailReader | None
    ) -> TailReader | None:
        if seen.tail is None:
            return None
        if before is not None and before.topic == seen.tail.id:
            return before
        now = asyncio.get_running_loop().time()
        return TailReader(self.log, seen.tail.id, ends[seen.tail.id], chosen, now)

    async def _look_up(self, wanted: ViewRequest, names: Mapping[str, str], admit: Admit) -> ViewResources:
        caller, subscriptions, topics, tail = await admit("projects:watch", names), {}, {}, None
        for name in wanted.subscriptions:
            caller = await admit("subscriptions:metrics", {**names, "subscription": name})
            found = await find_listed_subscription(self.registry, caller, SubscriptionName(name))
            subscriptions[name] = (found, await self.registry.topics.find(caller.here.id, found.topic))
        for name in wanted.topics:
            caller = await admit("topics:metrics", {**names, "topic": name})
            topics[name] = await find_topic(self.registry, caller, TopicName(name))
            caller.require_listed(topics[name].authorized, PUBLISHER)
        if wanted.tail:
            caller = await admit("topics:read", {**names, "topic": wanted.tail})
            through = next((name for name, (found, _) in subscriptions.items() if found.topic == wanted.tail), None)
            tail = await self.reader.topic(caller, TopicName(wanted.tail), through)
        return ViewResources(topics, subscriptions, tail, caller)

    async def _ends(self, seen: ViewResources) -> Mapping[TopicId, Offset]:
        of_subscriptions = [topic for _, topic in seen.subscriptions.values()]
        shown = {each.id for each in [*seen.topics.values(), *of_subscriptions, seen.tail] if each}
        return {topic: (await self.log.bounds(topic)).end for topic in shown}

    async def _change(self, ends: Mapping[TopicId, Offset], seconds: float) -> None:
        """Wait until a topic grows, at most so many seconds. Raises `Overloaded` at a stop."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        waits = [asyncio.ensure_future(self.log.wait(topic, end, LOOK_SECONDS)) for topic, end in ends.items()]
        try:
            await asyncio.wait((stopped, *waits), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (stopped, *waits):
                each.cancel()
            await asyncio.gather(stopped, *waits, return_exceptions=True)
        if self._stopping.is_set():
            raise Overloaded("The service is stopping")

    async def _counts(self, seen: ViewResources) -> Counts:
        totals = {name: await self.log.totals(topic.id) for name, topic in seen.topics.items()}
        topics = {name: TopicCounts(each.messages, each.bytes) for name, each in totals.items()}
        subscriptions = {name: await self._count(seen.caller, *each) for name, each in seen.subscriptions.items()}
        return Counts(publish_time(self.clock.wall()), topics, subscriptions)

    async def _count(self, caller: Caller, subscription: Subscription, topic: Topic | None) -> SubscriptionCounts:
        if topic is None:
            return SubscriptionCounts(0, 0, 0)
        lag = await lag_of(self.log, self.cursors, subscription, topic.id)
        waited = await age_of(self.log, topic.id, lag.current, self.clock) if lag.messages else None
        opened = await self.working.opened.here(subscription.id) if subscription.parallel else None
        push = None
        if subscription.push:
            with contextlib.suppress(Conflict, OwnedElsewhere):  # a pull subscription by now; known to another node
                push = (await self.watcher.look(caller, subscription.name)).state
        return SubscriptionCounts(
            lag.current, lag.end, lag.messages,
            None if waited is None else waited // 1000, len(opened.backlog.leases) if opened else None, push,
        )  # fmt: skip

    @contextlib.contextmanager
    def _count_view(self, user: UserId | None) -> Iterator[None]:
        if self._by_user[user] >= MOST_VIEWS:
            raise RateLimited(f"A user may have {MOST_VIEWS} event streams at a time")
        self._by_user[user] += 1
        try:
            yield
        finally:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]


def _check(wanted: ViewRequest) -> Filter | None:
    names = [*wanted.topics, *wanted.subscriptions, *([wanted.tail] if wanted.tail else [])]
    refuse_if(not names, "Name what to watch: topics, subscriptions or tail")
    check_names(names)
    refuse_if(wanted.filter and not wanted.tail, "A filter is of a tail: name its topic")
    return parse(wanted.filter) if wanted.filter else None
