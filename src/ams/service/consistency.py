"""What registry, log and cursors hold that does not fit together.

They keep their parts of a topic or a subscription apart, and no transaction spans them: a log is made before its topic
is registered and dropped after it is forgotten, and so is a cursor. So what does not fit may be a change that is under
way, here or on another node; it counts only when a second look finds it too (`Inconsistencies.both`).
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from ams.core.names import SubscriptionId, TopicId
from ams.storage.cursors.base import Place
from ams.storage.log.base import Bounds

T = TypeVar("T")


class Held(NamedTuple):
    """What the engines hold; None of what could not be asked."""

    topics: frozenset[TopicId] | None
    subscriptions: frozenset[SubscriptionId] | None
    cursors: Mapping[SubscriptionId, Place] | None
    logs: frozenset[TopicId] | None
    bounds: Mapping[TopicId, Bounds] | None
    """Asked for after the cursors: an end never goes back, so a cursor beyond it here is really beyond it."""


class Inconsistencies(NamedTuple):
    """What one engine holds and another does not."""

    topics_without_log: frozenset[TopicId]
    logs_without_topic: frozenset[TopicId]
    subscriptions_without_cursor: frozenset[SubscriptionId]
    cursors_without_subscription: frozenset[SubscriptionId]
    past_the_end: frozenset[SubscriptionId]
    """Subscriptions whose cursors are beyond the ends of their topics: what is published next will not reach them."""

    def both(self, other: "Inconsistencies") -> "Inconsistencies":
        """Return what the other look found too."""
        return Inconsistencies(
            self.topics_without_log & other.topics_without_log,
            self.logs_without_topic & other.logs_without_topic,
            self.subscriptions_without_cursor & other.subscriptions_without_cursor,
            self.cursors_without_subscription & other.cursors_without_subscription,
            self.past_the_end & other.past_the_end,
        )


def inconsistencies(held: Held) -> Inconsistencies:
    """Compare what the engines hold; what could not be asked fits."""
    cursors = None if held.cursors is None else frozenset(held.cursors)
    past = _past_the_end(held.cursors or {}, held.bounds or {})
    return Inconsistencies(
        _without(held.topics, held.logs),
        _without(held.logs, held.topics),
        _without(held.subscriptions, cursors),
        _without(cursors, held.subscriptions),
        # A cursor without a subscription is reported once.
        past if held.subscriptions is None else past & held.subscriptions,
    )


def _without(here: frozenset[T] | None, there: frozenset[T] | None) -> frozenset[T]:
    return frozenset() if here is None or there is None else here - there


def _past_the_end(
    cursors: Mapping[SubscriptionId, Place], bounds: Mapping[TopicId, Bounds]
) -> frozenset[SubscriptionId]:
    ends = ((subscription, place.offset, bounds.get(place.topic)) for subscription, place in cursors.items())
    return frozenset(subscription for subscription, offset, found in ends if found and offset > found.end)
