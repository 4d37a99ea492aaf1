"""The subscriptions that this process works on: which ones are open, how one is taken over, and when it is let go.

What runs up to the first wait may be driven without a task (`ams.http.lane`): no `asyncio.timeout`, `TaskGroup` or
`current_task` there.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError
from ams.core.names import Offset, ProjectName, SubscriptionId, TopicId
from ams.core.supervisor import Supervisor
from ams.service.lookup import topic_of
from ams.service.parallel.finding import Finder
from ams.service.parallel.opened import Open, opened_by
from ams.service.parallel.ownership import Alone, Ownership
from ams.storage.cursors.acks import CursorStore, Progress, ended
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

logger = structlog.get_logger("ams.parallel")


class OpenSubscriptions:
    """Opens subscriptions when they are used first, and knows which ones are open."""

    def __init__(
        self, registry: Registry, log: Log, cursors: CursorStore, finder: Finder, clock: Clock, ownership: Ownership
    ) -> None:
        self._registry, self._log, self._cursors = registry, log, cursors
        self._finder = finder
        self._clock = clock
        self._ownership = ownership
        self._open: dict[SubscriptionId, Open] = {}
        self._opening: dict[SubscriptionId, asyncio.Lock] = {}
        self._ends: Mapping[TopicId, Offset] | None = None
        """Where topics ended when this process began, which works alone; None: that is not known."""
        self._began = clock.monotonic()
        self._worked_on: set[SubscriptionId] = set()
        """What this process has opened since it began; what it was not given before that is known by `_ends`."""

    async def start(self, supervisor: Supervisor) -> None:
        """Renew in the background what this process owns."""
        await self.note_ends()
        await self._ownership.start(supervisor, self._forget_all)

    async def note_ends(self) -> None:
        """Note where topics end before anything is published: what comes later, no process before this one gave."""
        if isinstance(self._ownership, Alone):
            with contextlib.suppress(AmsError):
                self._ends = {topic: bounds.end for topic, bounds in (await self._log.all_bounds()).items()}

    async def hand_over(self) -> None:
        """Let other nodes have everything: this one stops soon."""
        self._forget_all()
        await self._ownership.leave()

    async def close(self) -> None:
        """End the background work, and own nothing any more."""
        await self._ownership.close()

    # Which ones are open

    def get(self, subscription: SubscriptionId) -> Open | None:
        """Return a subscription that this process works on."""
        return self._open.get(subscription)

    def all(self) -> Collection[Open]:
        """Return all subscriptions that this process works on."""
        return self._open.values()

    def has(self, opened: Open) -> bool:
        """Whether it is still open, and nobody has opened it anew."""
        return self._open.get(opened.subscription.id) is opened

    def holds(self, subscription: SubscriptionId) -> bool:
        """Whether this process owns a subscription."""
        return self._ownership.holds(subscription)

    async def here(self, subscription: SubscriptionId) -> Open | None:
        """Return a subscription that this process works on, None when nobody does; raise `OwnedElsewhere`."""
        if self._ownership.holds(subscription):
            return self._open.get(subscription)
        await self._ownership.look(subscription)
        return None

    async def followed(self, subscription: SubscriptionId) -> Open | None:
        """Return what `here` does, after it has followed what retention took."""
        opened = await self.here(subscription)
        if opened is not None:
            await self._finder.retain(opened)
        return opened

    # Letting go

    def forget(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription that was sought, deleted, or changed: who uses it opens it anew."""
        opened = self._open.pop(subscription, None)
        if opened is not None:
            opened.backlog.leases.free_windows()  # else a stream that is full would wait for ever
            opened.wake()

    def leave(self, subscription: SubscriptionId) -> None:
        """Let go of a subscription, so that another node may have it, or as it was deleted."""
        self.forget(subscription)
        self._ownership.release(subscription)

    def _forget_all(self) -> None:
        for subscription in list(self._open):
            self.forget(subscription)

    # Opening

    async def own(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """See that this process owns a subscription, for what has to be done where its leases are.

        With `seizes` it is taken from any other node, which then can store nothing of it any more: for who delivers it
        by push, which one process does at a time. Raises `OwnedElsewhere`, `SubscriptionGone`.
        """
        if seizes or not self._ownership.holds(subscription):
            self.forget(subscription)  # what is known of it may be from before another node had it
            await self._ownership.claim(subscription, seizes=seizes)

    async def use(self, subscription: Subscription, project: ProjectName) -> Open:
        """Return a subscription, open. Raises `OwnedElsewhere`, `SubscriptionGone`, or `Conflict` without its topic."""
        opened = self._open.get(subscription.id)
        topic = await topic_of(self._registry, subscription)
        if opened is not None and opened.topic == topic.id and self._ownership.holds(subscription.id):
            if opened.subscription is not subscription:
                opened.follow(subscription)
            opened.used = self._clock.monotonic()
            return opened
        await self.own(subscription.id)
        async with self._opening.setdefault(subscription.id, asyncio.Lock()):
            await self.own(subscription.id)  # again, should it have taken long to get here
            opened = self._open.get(subscription.id)
            if opened is not None and opened.topic == topic.id:
                return opened
            self.forget(subscription.id)
            progress, end = await self._taken_over(subscription, topic.id)
            end, since = self._given_before(subscription.id, topic.id, progress, end)
            opened = opened_by(subscription, project, topic.id, progress, end, since, self._clock)
            await self._finder.retain(opened)
            self._open[subscription.id] = opened
            self._worked_on.add(subscription.id)
        self._opening.pop(subscription.id, None)
        return opened

    async def _taken_over(self, subscription: Subscription, topic: TopicId) -> tuple[Progress, Offset]:
        """Return what is stored, and the end of the topic.

        What is stored beyond that end is of a log that was put back to an older state: what is published there next is
        not done.
        """
        progress = await self._cursors.take_over(subscription.id, topic)
        end = (await self._log.bounds(topic)).end
        kept = ended(progress, end)
        if kept is not progress:
            logger.warning("parallel.past_the_end", subscription=subscription.name, end=end)
            await self._cursors.restore(subscription.id, topic, kept.floor, kept.done)
            progress = await self._cursors.take_over(subscription.id, topic)
        return progress, end

    def _given_before(
        self, subscription: SubscriptionId, topic: TopicId, progress: Progress, end: Offset
    ) -> tuple[Offset, Milliseconds]:
        """Return below which offset, and until when, others may have given what this process takes over at `end`.

        Nothing from there on is done or has failed: what a snapshot of another subscription brought may be above where
        the topic ended at the start.
        """
        if self._ends is None or subscription in self._worked_on:
            return end, self._clock.monotonic()
        known = max(progress.failures, default=-1)
        if progress.done:
            known = max(known, progress.done.max())
        return min(max(self._ends.get(topic, Offset(0)), Offset(known + 1)), end), self._began
