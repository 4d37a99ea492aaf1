"""Offsets of a subscription, seek, and snapshots (contract 11.3 to 11.5, 19.3, 19.5)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from ams.access.admission import Caller
from ams.core.clock import DAY, Clock, Milliseconds, SystemClock
from ams.core.errors import AlreadyExists, Conflict, LogUnavailable, NotFound, TopicGone, refuse_if
from ams.core.names import Offset, SnapshotName, SubscriptionId, SubscriptionName, TopicName, subscription_reference
from ams.core.retention_clock import RetentionClock
from ams.service import lookup
from ams.service.leftovers import finish_or_leave
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.retention import age_of, bounds_for, follow_retention, offset_within
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.base import Position
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import NO_LABELS, Page, PageRequest, Snapshot, Subscription, Topic
from ams.storage.registry.registry import Registry
from ams.wire.subscriptions import Offsets

SNAPSHOT_LIFE_MS = Milliseconds(7 * DAY)  # of a snapshot of a subscription that has acknowledged everything
MIN_SNAPSHOT_LIFE_MS = Milliseconds(3_600_000)  # a snapshot that would end sooner is not made


@dataclass(frozen=True, slots=True)
class Seeker:
    """Shows and moves cursors. The access list applies as for a pull (contract 17.2, A5)."""

    registry: Registry
    log: Log
    cursors: CursorStore
    moved: Callable[[SubscriptionId], None] = lambda _: None  # called after a seek: wakes the pulls that wait
    working: ParallelSubscriptions | None = None
    retention_clock: RetentionClock = field(default_factory=lambda: RetentionClock(SystemClock()))
    used: Callable[[SubscriptionId], None] = lambda _: None

    async def offsets(self, caller: Caller, name: SubscriptionName) -> Offsets:
        """Return the offsets of a subscription. First a cursor below the oldest kept message is moved up."""
        subscription = await self.require(caller, name)
        topic = await lookup.topic_of(self.registry, subscription)
        with lookup.no_topic_is_a_conflict:
            position, bounds = await self._follow_retention(subscription, topic)
            return await self._offsets(subscription, bounds, position.offset)

    async def offset_at(self, caller: Caller, name: SubscriptionName, time: Milliseconds) -> Offset:
        """Return the first message published at `time` or later; raise `Conflict` when there is none."""
        subscription = await self.require(caller, name)
        try:
            topic = await lookup.topic_of(self.registry, subscription)
            offset = await self.log.offset_at(topic.id, time)
        except (Conflict, TopicGone):  # contract 11.4: without the topic's log, a 500
            raise LogUnavailable from None
        if offset is None:
            raise Conflict("Timestamp is out of bounds for the subscription's topic/partition")
        return offset

    async def seek(self, caller: Caller, name: SubscriptionName, offset: int) -> Offsets:
        """Move the cursor to `offset`; return the new offsets. Raises `InvalidInput` (A6)."""

        async def there(_: Topic, bounds: Bounds) -> Offset:
            refuse_if(not bounds.oldest <= offset <= bounds.end, "Offset out of bounds")
            return Offset(offset)

        return await self._move_cursor(caller, name, there)

    async def seek_time(self, caller: Caller, name: SubscriptionName, time: Milliseconds) -> Offsets:
        """Move to the first message published at `time` or later, at most to the present end; return offsets."""

        async def there(topic: Topic, bounds: Bounds) -> Offset:
            return await offset_within(self.log, topic.id, time, bounds)

        return await self._move_cursor(caller, name, there)

    async def seek_snapshot(self, caller: Caller, name: SubscriptionName, snapshot: SnapshotName) -> Offsets:
        """Restore a parallel subscription to a snapshot; return the new offsets.

        Messages that retention removed since then count as lost. Raises `Conflict` for an ordered subscription,
        `NotFound` for the snapshot, `Conflict` for one of another topic.
        """
        subscription = await self.require(caller, name)
        lookup.parallel_options(subscription.parallel)
        await self._own(subscription)
        there = await lookup.find_snapshot(self.registry, caller, snapshot)
        while True:
            topic = await lookup.topic_of(self.registry, subscription)
            if topic.id != there.topic_id:
                raise Conflict("Snapshot is of another topic than the subscription")
            with lookup.no_topic_is_a_conflict:
                _, bounds = await self._follow_retention(subscription, topic)
            if await self.cursors.restore(subscription.id, topic.id, there.floor, there.done) is not None:
                self.moved(subscription.id)
                lost = lost_of(there, bounds.oldest)
                shown = await finish_or_leave(self.offsets(caller, name), "offsets")
                shown = shown or Offsets(bounds.oldest, bounds.end, max(there.floor, bounds.oldest))
                return msgspec.structs.replace(shown, lost=lost)

    async def _move_cursor(
        self, caller: Caller, name: SubscriptionName, where: Callable[[Topic, Bounds], Awaitable[Offset]]
    ) -> Offsets:
        """Move the cursor to `where`; retry if the topic was recreated meanwhile, as its offsets begin anew."""
        subscription = await self.require(caller, name)
        await self._own(subscription)
        while True:
            topic = await lookup.topic_of(self.registry, subscription)
            with lookup.no_topic_is_a_conflict:
                _, bounds = await self._follow_retention(subscription, topic)
                offset = await where(topic, bounds)
            if await self.cursors.seek(subscription.id, topic.id, offset):
                self.moved(subscription.id)
                shown = await finish_or_leave(self._offsets(subscription, bounds, offset), "offsets")
                return shown or Offsets(bounds.oldest, bounds.end, offset)

    async def _own(self, subscription: Subscription) -> None:
        if subscription.parallel is not None and self.working is not None:  # its owner alone moves it
            await self.working.opened.own(subscription.id)

    async def require(self, caller: Caller, name: SubscriptionName) -> Subscription:
        """Return a subscription; raise `NotFound`, `NotAllowed` for a consumer outside its access list, `Conflict`."""
        subscription = await lookup.find_listed_subscription(self.registry, caller, name)
        lookup.require_attached(subscription)
        self.used(subscription.id)
        return subscription

    async def _follow_retention(self, subscription: Subscription, topic: Topic) -> tuple[Position, Bounds]:
        position = await self.cursors.position(subscription.id, topic.id)
        bounds = await bounds_for(self.log, topic.id, subscription, self.retention_clock)
        return await follow_retention(self.cursors, subscription, position, bounds.oldest), bounds

    async def _offsets(self, subscription: Subscription, bounds: Bounds, current: Offset) -> Offsets:
        if subscription.parallel is None:
            return Offsets(bounds.oldest, bounds.end, current)
        opened = await self.working.opened.here(subscription.id) if self.working else None
        if self.working is None or opened is None:
            done = len((await self.cursors.progress(subscription.id)).done)
            return Offsets(bounds.oldest, bounds.end, current, done)
        await self.working.opened.retain(opened)
        backlog = opened.backlog
        current = max(current, backlog.done.floor)  # disk and memory may differ for a moment
        return Offsets(
            bounds.oldest, max(bounds.end, current), current,
            backlog.done.above - backlog.done.count(Offset(0), current), len(backlog.leases),
            backlog.waiting, backlog.keys.blocked_messages,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of subscriptions in the caller's project: creation, listing, deletion, and seek to one."""

    registry: Registry
    log: Log
    cursors: CursorStore
    clock: Clock
    retention_clock: RetentionClock

    async def list(self, caller: Caller, page: PageRequest) -> Page[Snapshot]:
        """Return a page of snapshots, newest first; raise `InvalidInput` "Invalid page token"."""
        return await self.registry.snapshots.page(caller.here.id, page)

    async def show(self, caller: Caller, name: SnapshotName) -> tuple[Snapshot, int]:
        """Return a snapshot, and how many of its messages retention removed. Raises `NotFound`."""
        found = await lookup.find_snapshot(self.registry, caller, name)
        with lookup.no_topic_is_a_conflict:
            return found, lost_of(found, (await self.log.bounds(found.topic_id)).oldest)

    async def of_topic(self, caller: Caller, topic: TopicName, page: PageRequest) -> Page[SnapshotName]:
        """Return a page of the snapshots of a topic, newest first; raise `NotFound`, `InvalidInput`."""
        found = await lookup.find_topic(self.registry, caller, topic)
        return await self.registry.snapshots.of_topic(found.id, page)

    async def create(
        self, caller: Caller, name: SnapshotName, subscription: str, *, labels: Mapping[str, str] = NO_LABELS
    ) -> Snapshot:
        """Make a snapshot of a subscription. Acknowledgements during the call may be in it or not.

        `subscription` is its name, or a reference. Raises, in this order: `InvalidInput` for the reference, `NotFound`,
        `Conflict` for an ordered subscription, `AlreadyExists`, `Conflict` without its topic, and when the snapshot
        would end within an hour.
        """
        reference = subscription_reference(caller.here.name, subscription)
        found = await lookup.find_subscription(self.registry, caller, reference)
        lookup.parallel_options(found.parallel)
        lookup.require_attached(found)
        if await self.registry.snapshots.find(caller.here.id, name) is not None:
            raise AlreadyExists("Snapshot already exists")
        topic = await lookup.topic_of(self.registry, found)
        with lookup.no_topic_is_a_conflict:
            # Moves the cursor to this topic, if it is of a former topic of this name.
            position = await self.cursors.position(found.id, topic.id)
            bounds = await bounds_for(self.log, topic.id, found, self.retention_clock)
            await follow_retention(self.cursors, found, position, bounds.oldest)
            progress = await self.cursors.progress(found.id)
            life = SNAPSHOT_LIFE_MS - (await age_of(self.log, topic.id, progress.floor, self.retention_clock) or 0)
        if life < MIN_SNAPSHOT_LIFE_MS:
            text = "Snapshot would expire within an hour: the oldest message that is not acknowledged is too old"
            raise Conflict(text)
        now = self.clock.wall()
        until = Milliseconds(now + life)
        made = Snapshot(caller.here.id, name, topic.id, topic.name, progress.floor, now, until, progress.done, labels)
        if not await self.registry.snapshots.create(made):
            raise Conflict(lookup.NO_TOPIC)
        return made

    async def set_labels(self, caller: Caller, name: SnapshotName, labels: Mapping[str, str]) -> Snapshot:
        """Replace the labels; return the snapshot as it is then. Raises `NotFound`."""
        changed = await self.registry.snapshots.update(caller.here.id, name, labels=labels)
        return lookup.require_found(changed, NotFound(lookup.NO_SNAPSHOT))

    async def set_expiry(self, caller: Caller, name: SnapshotName, moment: Milliseconds) -> Snapshot:
        """Change the expiry of a snapshot to a time within seven days. Raises `InvalidInput`, `NotFound`."""
        now = self.clock.wall()
        refuse_if(not now < moment <= now + SNAPSHOT_LIFE_MS, "A snapshot ends later than now, and within seven days")
        changed = await self.registry.snapshots.update(caller.here.id, name, expires_on=moment)
        return lookup.require_found(changed, NotFound(lookup.NO_SNAPSHOT))

    async def delete(self, caller: Caller, name: SnapshotName) -> None:
        """Remove a snapshot; raise `NotFound`."""
        lookup.require_found(await self.registry.snapshots.delete(caller.here.id, name), NotFound(lookup.NO_SNAPSHOT))


def lost_of(snapshot: Snapshot, oldest: Offset) -> int:
    """Return how many unacknowledged messages of a snapshot are below the oldest kept one."""
    if oldest <= snapshot.floor:
        return 0
    return oldest - snapshot.floor - snapshot.done.range_cardinality(snapshot.floor, oldest)
