"""How far a subscription is behind its topic: what a live view, a history and the status of a push say alike."""

from typing import NamedTuple

from ams.core.clock import Clock, Milliseconds
from ams.core.names import Offset, TopicId
from ams.service.parallel.watching import oldest_time
from ams.storage.cursors.acks import CursorStore
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription


class Lag(NamedTuple):
    """Where a subscription stands on its topic."""

    current: Offset
    """The oldest kept message that is not acknowledged, or the end."""
    end: Offset
    messages: int
    """Kept, and not acknowledged."""


async def lag_of(log: Log, cursors: CursorStore, subscription: Subscription, topic: TopicId) -> Lag:
    """Return how far a subscription is behind; raise `TopicGone`."""
    position = await cursors.position(subscription.id, topic)
    oldest, end = await log.bounds(topic)
    current = max(position.offset, oldest)
    if subscription.parallel is None or current >= end:
        return Lag(current, end, max(end - current, 0))
    done = (await cursors.progress(subscription.id)).done
    return Lag(current, end, end - current - int(done.range_cardinality(current, end)))


async def waiting_for(log: Log, topic: TopicId, lag: Lag, clock: Clock) -> Milliseconds | None:
    """Return how long ago the oldest message that is not acknowledged was published; None: there is none."""
    published = await oldest_time(log, topic, lag.current) if lag.messages else None
    return None if published is None else Milliseconds(max(clock.wall() - published, 0))
