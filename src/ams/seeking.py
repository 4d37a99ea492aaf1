"""Seeking: where a subscription stands, and moving it (contract 11.3 to 11.5)."""

from dataclasses import dataclass
from typing import NamedTuple

from ams.access.admission import Caller
from ams.access.roles import CONSUMER
from ams.clock import Milliseconds
from ams.cursors.base import Cursors
from ams.errors import Conflict, InvalidInput, LogUnavailable, NotFound
from ams.log.base import Log
from ams.names import Offset, SubscriptionName, TopicId
from ams.registry.records import Subscription
from ams.registry.registry import Registry


class Offsets(NamedTuple):
    """`min` is the oldest kept message, `max` the end of the topic, `current` the cursor; all ids."""

    min: Offset
    max: Offset
    current: Offset


@dataclass(frozen=True, slots=True)
class Seeker:
    """Shows and moves cursors. The access list binds as for a pull (contract 17.2, A5)."""

    registry: Registry
    log: Log
    cursors: Cursors

    async def offsets(self, caller: Caller, name: SubscriptionName) -> Offsets:
        """Return where the subscription stands; a cursor that retention has passed is moved up first."""
        subscription = await self._subscription(caller, name)
        topic = await self._topic(subscription)
        if topic is None:
            raise Conflict("Subscription's topic doesn't exist")
        return await self._offsets(subscription, topic)

    async def offset_at(self, caller: Caller, name: SubscriptionName, time: Milliseconds) -> Offset:
        """Return the first message published at `time` or later; raise `Conflict` when there is none."""
        subscription = await self._subscription(caller, name)
        topic = await self._topic(subscription)
        if topic is None:
            raise LogUnavailable
        offset = await self.log.offset_at(topic, time)
        if offset is None:
            raise Conflict("Timestamp is out of bounds for the subscription's topic/partition")
        return offset

    async def seek(self, caller: Caller, name: SubscriptionName, offset: int) -> None:
        """Move the cursor to `offset`, backwards to replay or forwards to skip.

        Raises `InvalidInput` outside the topic's bounds, both ends allowed; nothing has changed then (A6).
        """
        subscription = await self._subscription(caller, name)
        topic = await self._topic(subscription)
        if topic is None:
            raise Conflict("Subscription's topic doesn't exist")
        bounds = await self.log.bounds(topic)
        if not bounds.oldest <= offset <= bounds.end:
            raise InvalidInput("Offset out of bounds")
        await self.cursors.position(subscription.id, topic)
        await self.cursors.seek(subscription.id, Offset(offset))

    async def _offsets(self, subscription: Subscription, topic: TopicId) -> Offsets:
        position = await self.cursors.position(subscription.id, topic)
        bounds = await self.log.bounds(topic)
        if position.offset < bounds.oldest:
            position = await self.cursors.retain(subscription.id, bounds.oldest)
        return Offsets(bounds.oldest, bounds.end, position.offset)

    async def _subscription(self, caller: Caller, name: SubscriptionName) -> Subscription:
        subscription = await self.registry.subscriptions.find(caller.here.id, name)
        if subscription is None:
            raise NotFound("Subscription doesn't exist")
        caller.require_listed(subscription.authorized, CONSUMER)
        return subscription

    async def _topic(self, subscription: Subscription) -> TopicId | None:
        topic = await self.registry.topics.find(subscription.project_id, subscription.topic)
        return topic.id if topic else None
