"""Seeking: where a subscription stands, and moving it (contract 11.3 to 11.5, 19.3 and 19.5)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER
from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.errors import Conflict, InvalidInput, LogUnavailable, TopicGone
from ams.core.names import Offset, SnapshotName, SubscriptionId, SubscriptionName, TopicId
from ams.service.lookup import (
    find_snapshot,
    find_subscription,
    no_topic_is_a_conflict,
    parallel_options,
    require_attached,
    topic_of,
)
from ams.service.parallel.working import Working
from ams.service.retention import follow, oldest_for
from ams.service.snapshots import lost_of
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry
from ams.wire.subscriptions import Offsets

OTHER_TOPIC = "Snapshot is of another topic than the subscription"


@dataclass(frozen=True, slots=True)
class Seeker:
    """Shows and moves cursors. The access list binds as for a pull (contract 17.2, A5)."""

    registry: Registry
    log: Log
    cursors: CursorStore
    moved: Callable[[SubscriptionId], None] = lambda _: None
    """Is called for each subscription that was moved, so that pulls that wait for its messages look again."""
    own: Callable[[SubscriptionId], Awaitable[None]] | None = None
    """Is called before a parallel subscription is moved, which is done where its leases are; raises `OwnedElsewhere`.
    """
    working: Working | None = None
    """What is under way of parallel subscriptions; None: nothing is, here."""
    clock: Clock = field(default_factory=SystemClock)
    used: Callable[[SubscriptionId], None] = lambda _: None
    """Is called for each subscription that somebody asks for."""

    async def offsets(self, caller: Caller, name: SubscriptionName) -> Offsets:
        """Return where the subscription stands; a cursor that retention has passed is moved up first."""
        subscription = await self._subscription(caller, name)
        topic = await topic_of(self.registry, subscription)
        with no_topic_is_a_conflict:
            position = await self.cursors.position(subscription.id, topic.id)
            bounds = await self._bounds(topic.id, subscription)
            position = await follow(self.cursors, subscription, position, bounds.oldest)
            return await self._offsets(subscription, bounds, position.offset)

    async def require(self, caller: Caller, name: SubscriptionName) -> None:
        """Raise `NotFound` for an unknown subscription, `NotAllowed` for a consumer outside its access list."""
        await self._subscription(caller, name)

    async def offset_at(self, caller: Caller, name: SubscriptionName, time: Milliseconds) -> Offset:
        """Return the first message published at `time` or later; raise `Conflict` when there is none."""
        subscription = await self._subscription(caller, name)
        try:
            topic = await topic_of(self.registry, subscription)
            offset = await self.log.offset_at(topic.id, time)
        except (Conflict, TopicGone):  # contract 11.4: without the topic's log, a 500
            raise LogUnavailable from None
        if offset is None:
            raise Conflict("Timestamp is out of bounds for the subscription's topic/partition")
        return offset

    async def seek(self, caller: Caller, name: SubscriptionName, offset: int) -> Offsets:
        """Move the cursor to `offset`, backwards to replay or forwards to skip; return where everything stands then.

        Raises `InvalidInput` outside the topic's bounds, both ends allowed; nothing has changed then (A6).
        """

        async def there(topic: TopicId, bounds: Bounds) -> Offset:
            if not bounds.oldest <= offset <= bounds.end:
                raise InvalidInput("Offset out of bounds")
            return Offset(offset)

        return await self._move(caller, name, there)

    async def seek_time(self, caller: Caller, name: SubscriptionName, time: Milliseconds) -> Offsets:
        """Move the cursor to the first message published at `time` or later; return where everything stands then.

        A time before the oldest kept message leads to that one, a time after the last to the end as it was when this
        began, so that no message published meanwhile is passed.
        """

        async def there(topic: TopicId, bounds: Bounds) -> Offset:
            found = await self.log.offset_at(topic, time)
            return bounds.end if found is None else max(min(found, bounds.end), bounds.oldest)

        return await self._move(caller, name, there)

    async def seek_snapshot(self, caller: Caller, name: SubscriptionName, snapshot: SnapshotName) -> Offsets:
        """Let a parallel subscription stand where the one stood of which a snapshot was made.

        Everything published since is to be delivered. What retention has taken meanwhile counts as lost. Returns where
        everything stands then. Raises `Conflict` for an ordered subscription, `NotFound` for the snapshot, `Conflict`
        for one of another topic; nothing has changed then.
        """
        subscription = await self._subscription(caller, name)
        parallel_options(subscription)
        await self._own(subscription)
        there = await find_snapshot(self.registry, caller, snapshot)
        while True:
            topic = await topic_of(self.registry, subscription)
            if topic.id != there.topic_id:
                raise Conflict(OTHER_TOPIC)
            with no_topic_is_a_conflict:
                position = await self.cursors.position(subscription.id, topic.id)
                bounds = await self._bounds(topic.id, subscription)
            await follow(self.cursors, subscription, position, bounds.oldest)
            if await self.cursors.restore(subscription.id, topic.id, there.floor, there.done) is not None:
                self.moved(subscription.id)
                lost = lost_of(there, bounds.oldest)
                return msgspec.structs.replace(await self.offsets(caller, name), lost=lost)

    async def _move(
        self, caller: Caller, name: SubscriptionName, where: Callable[[TopicId, Bounds], Awaitable[Offset]]
    ) -> Offsets:
        """Move the cursor to `where`; again when the topic was made anew meanwhile: that offset is of the old one."""
        subscription = await self._subscription(caller, name)
        await self._own(subscription)
        while True:
            topic = await topic_of(self.registry, subscription)
            with no_topic_is_a_conflict:
                position = await self.cursors.position(subscription.id, topic.id)
                bounds = await self._bounds(topic.id, subscription)
                offset = await where(topic.id, bounds)
            await follow(self.cursors, subscription, position, bounds.oldest)
            if await self.cursors.seek(subscription.id, topic.id, offset):
                self.moved(subscription.id)
                return await self._offsets(subscription, bounds, offset)

    async def _own(self, subscription: Subscription) -> None:
        if subscription.parallel is not None and self.own is not None:
            await self.own(subscription.id)

    async def _subscription(self, caller: Caller, name: SubscriptionName) -> Subscription:
        subscription = await find_subscription(self.registry, caller, name)
        caller.require_listed(subscription.authorized, CONSUMER)
        require_attached(subscription)
        self.used(subscription.id)
        return subscription

    async def _offsets(self, subscription: Subscription, bounds: Bounds, current: Offset) -> Offsets:
        """Return where a subscription stands, of a parallel one with what is above."""
        if subscription.parallel is None:
            return Offsets(bounds.oldest, bounds.end, current)
        opened = await self.working.opened.followed(subscription.id) if self.working else None
        if opened is None:
            done = len((await self.cursors.progress(subscription.id)).done)
            return Offsets(bounds.oldest, bounds.end, current, done)
        backlog = opened.backlog
        current = max(current, backlog.floor)  # what is on the disk may be farther for a moment, or not as far
        return Offsets(
            bounds.oldest, max(bounds.end, current), current, backlog.done.count_from(current), len(backlog.leases),
            backlog.waiting, backlog.keys.blocked,
        )  # fmt: skip

    async def _bounds(self, topic: TopicId, subscription: Subscription) -> Bounds:
        """Return the bounds of what a subscription may get of its topic."""
        bounds = await self.log.bounds(topic)
        oldest = await oldest_for(self.log, topic, subscription, bounds, self.clock.wall())
        return bounds._replace(oldest=oldest)
