"""Snapshots of where parallel subscriptions stand, for moving back there later (contract 19.3)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ams.access.admission import Caller
from ams.core.clock import DAY, Clock, Milliseconds
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from ams.core.names import Offset, SnapshotName, TopicId, TopicName, subscription_reference
from ams.service.lookup import (
    NO_SNAPSHOT,
    NO_TOPIC,
    find_snapshot,
    find_subscription,
    find_topic,
    no_topic_is_a_conflict,
    parallel_options,
    require_attached,
    topic_of,
)
from ams.service.retention import follow, oldest_for
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import NO_LABELS, Page, PageRequest, Snapshot
from ams.storage.registry.registry import Registry

LIFE = Milliseconds(7 * DAY)
"""Of a snapshot of a subscription that has acknowledged everything."""
SHORTEST = Milliseconds(3_600_000)
"""A snapshot that would end sooner is not made."""
BAD_EXPIRY = "A snapshot ends later than now, and within seven days"
TOO_OLD = "Snapshot would expire within an hour: the oldest message that is not acknowledged is too old"


@dataclass(frozen=True, slots=True)
class Snapshots:
    """What can be done with the snapshots of the caller's project."""

    registry: Registry
    log: Log
    cursors: CursorStore
    clock: Clock

    async def list(self, caller: Caller, page: PageRequest) -> Page[Snapshot]:
        """Return a page of snapshots, newest first; raise `InvalidInput` "Invalid page token"."""
        return await self.registry.snapshots.page(caller.here.id, page)

    async def show(self, caller: Caller, name: SnapshotName) -> tuple[Snapshot, int]:
        """Return a snapshot, and what retention has taken of it (`lost_of`); raise `NotFound` when there is none."""
        found = await find_snapshot(self.registry, caller, name)
        with no_topic_is_a_conflict:
            return found, lost_of(found, (await self.log.bounds(found.topic_id)).oldest)

    async def of_topic(self, caller: Caller, topic: TopicName, page: PageRequest) -> Page[SnapshotName]:
        """Return a page of the snapshots of a topic, newest first.

        Raises `NotFound` for the topic, `InvalidInput` "Invalid page token".
        """
        found = await find_topic(self.registry, caller, topic)
        return await self.registry.snapshots.of_topic(found.id, page)

    async def create(
        self, caller: Caller, name: SnapshotName, subscription: str, *, labels: Mapping[str, str] = NO_LABELS
    ) -> Snapshot:
        """Remember where a subscription stands; what is acknowledged meanwhile may be in it or not.

        `subscription` is its name, or a reference `projects/P/subscriptions/S`. Raises, in this order: `InvalidInput`
        for the reference, `NotFound`, `Conflict` for an ordered subscription, `AlreadyExists`, `Conflict` without its
        topic, and for a subscription that has not acknowledged a message for so long that the snapshot would end within
        an hour.
        """
        found = await find_subscription(self.registry, caller, subscription_reference(caller.here.name, subscription))
        parallel_options(found)
        require_attached(found)
        if await self.registry.snapshots.find(caller.here.id, name) is not None:
            raise AlreadyExists("Snapshot already exists")
        topic = await topic_of(self.registry, found)
        with no_topic_is_a_conflict:
            # So that it stands on this topic, and not on one that had its name before.
            position = await self.cursors.position(found.id, topic.id)
            bounds = await self.log.bounds(topic.id)
            oldest = await oldest_for(self.log, topic.id, found, bounds, self.clock.wall())
            await follow(self.cursors, found, position, oldest)
            progress = await self.cursors.progress(found.id)
            age = await self._age(topic.id, progress.floor)
        if LIFE - age < SHORTEST:
            raise Conflict(TOO_OLD)
        now = self.clock.wall()
        until = Milliseconds(now + LIFE - age)
        made = Snapshot(caller.here.id, name, topic.id, topic.name, progress.floor, now, until, progress.done, labels)
        if not await self.registry.snapshots.create(made):
            raise Conflict(NO_TOPIC)
        return made

    async def set_labels(self, caller: Caller, name: SnapshotName, labels: Mapping[str, str]) -> Snapshot:
        """Replace the labels; return the snapshot as it is then. Raises `NotFound`."""
        await self.registry.snapshots.set_labels(caller.here.id, name, labels)
        return await find_snapshot(self.registry, caller, name)

    async def set_expiry(self, caller: Caller, name: SnapshotName, moment: Milliseconds) -> Snapshot:
        """Change when a snapshot ends, in milliseconds since the epoch; return it as it is then.

        Raises `InvalidInput` for a moment that is not ahead, or more than seven days, and `NotFound`.
        """
        now = self.clock.wall()
        if not now < moment <= now + LIFE:
            raise InvalidInput(BAD_EXPIRY)
        await self.registry.snapshots.set_expiry(caller.here.id, name, moment)
        return await find_snapshot(self.registry, caller, name)

    async def delete(self, caller: Caller, name: SnapshotName) -> None:
        """Remove a snapshot; raise `NotFound`."""
        if not await self.registry.snapshots.delete(caller.here.id, name):
            raise NotFound(NO_SNAPSHOT)

    async def _age(self, topic: TopicId, offset: Offset) -> Milliseconds:
        """Return how long ago the first message from there on was published; 0 without one."""
        found = await self.log.read(topic, offset, max_messages=1, max_bytes=1)
        return Milliseconds(max(self.clock.wall() - found[0].time, 0) if found else 0)


def lost_of(snapshot: Snapshot, oldest: Offset) -> int:
    """Return how many messages below the oldest that is kept were not acknowledged at a snapshot."""
    if oldest <= snapshot.floor:
        return 0
    return oldest - snapshot.floor - snapshot.done.range_cardinality(snapshot.floor, oldest)
