"""Snapshots of where parallel subscriptions stand, for moving back there later (contract 19.3)."""

from dataclasses import dataclass

from ams.access.admission import Caller
from ams.core.clock import DAY, Clock, Milliseconds
from ams.core.errors import AlreadyExists, Conflict, NotFound
from ams.core.names import Offset, SnapshotName, TopicId, subscription_reference
from ams.service.lookup import (
    NO_SNAPSHOT,
    NO_TOPIC,
    find_snapshot,
    find_subscription,
    no_topic_is_a_conflict,
    parallel_options,
    require_attached,
    topic_of,
)
from ams.service.retention import follow, oldest_for
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import Page, PageRequest, Snapshot
from ams.storage.registry.registry import Registry

LIFE = Milliseconds(7 * DAY)
"""Of a snapshot of a subscription that has acknowledged everything."""
SHORTEST = Milliseconds(3_600_000)
"""A snapshot that would end sooner is not made."""
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

    async def create(self, caller: Caller, name: SnapshotName, subscription: str) -> Snapshot:
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
        made = Snapshot(caller.here.id, name, topic.id, topic.name, progress.floor, now, until, progress.done)
        if not await self.registry.snapshots.create(made):
            raise Conflict(NO_TOPIC)
        return made

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
