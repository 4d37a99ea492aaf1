"""Reads ranges of a topic, for tools that keep their own offsets. Nothing is handed out, and no cursor moves.

This is no part of the HTTP contract: its promises are in `docs/reference/reading.md`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, PROJECT_ADMIN, SERVICE_ADMIN
from ams.core.clock import Milliseconds
from ams.core.errors import NotAllowed, refuse_if
from ams.core.messages import Stored
from ams.core.names import Offset, SubscriptionName, TopicId, TopicName, is_resource_name
from ams.service.lookup import find_topic
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Topic
from ams.storage.registry.registry import Registry

PIECE_MESSAGES = 1_000
PIECE_BYTES = 384 * 1024  # of one read: with the record that is too much, no more than the log gives without a thread


class Range(NamedTuple):
    """An existing range: offsets from `first` up to `next`, exclusive."""

    topic: TopicId
    first: Offset
    next: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges of topics, for administrators and for consumers of a subscription to the topic."""

    registry: Registry
    log: Log
    max_messages: int

    async def bounds(self, caller: Caller, name: TopicName, subscription: str | None = None) -> Bounds:
        """Return the oldest kept offset of a topic and its end. Raises as `plan` does."""
        topic = await self.topic(caller, name, subscription)
        return await self.log.bounds(topic.id)

    async def offset_at(self, topic: Topic, time: Milliseconds) -> Offset:
        """Return the first kept message published at `time` or later, or the end."""
        bounds = await self.log.bounds(topic.id)
        found = await self.log.offset_at(topic.id, time)
        return bounds.end if found is None else max(found, bounds.oldest)

    async def plan(
        self, caller: Caller, name: TopicName, start: int | None, stop: int | None, most: int, subscription: str | None
    ) -> Range:
        """Return the existing part of a range. Raises `NotFound`, `NotAllowed`, `InvalidInput` beyond the end."""
        topic = await self.topic(caller, name, subscription)
        oldest, end = await self.log.bounds(topic.id)
        refuse_if(start is not None and start > end, "Offset out of bounds")
        first = oldest if start is None else max(start, oldest)
        stop = min(end if stop is None else stop, end, first + min(most, self.max_messages))
        return Range(topic.id, Offset(first), Offset(max(stop, first)), end)

    async def messages(self, planned: Range) -> AsyncIterator[Sequence[Stored]]:
        """Yield the messages of a range in order, piece by piece; without damaged ones, and those retention took."""
        offset = planned.first
        while offset < planned.next:
            most = min(PIECE_MESSAGES, planned.next - offset)
            found = await self.log.read(planned.topic, offset, max_messages=most, max_bytes=PIECE_BYTES)
            if found and found[-1].offset >= planned.next:  # it began after a gap
                found = [each for each in found if each.offset < planned.next]
            if not found:
                return
            yield found
            offset = Offset(found[-1].offset + 1)

    async def topic(self, caller: Caller, name: TopicName, subscription: str | None) -> Topic:
        """Return a topic that the caller may read; raises as `plan` does."""
        topic = await find_topic(self.registry, caller, name)
        if caller.roles & {SERVICE_ADMIN, PROJECT_ADMIN}:
            return topic
        if subscription is None or not is_resource_name(subscription):
            raise NotAllowed
        found = await self.registry.subscriptions.find(caller.here.id, SubscriptionName(subscription))
        if found is None or found.topic != topic.name:
            raise NotAllowed
        caller.require_listed(found.authorized, CONSUMER)
        return topic
