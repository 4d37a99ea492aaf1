"""Subscriptions, and where they stand (contract 9 and 11)."""

from collections.abc import Sequence

from ams.wire.base import CamelObject, CamelRequest, ListPage, Object, Request, Text
from ams.wire.push import PushConfig, PushConfigBody


class NewSubscription(CamelRequest, frozen=True):
    """A subscription to make (contract 9.3)."""

    topic: str | None = None
    ack_deadline_seconds: int | None = None
    push_config: PushConfigBody | None = None


class AckDeadline(CamelRequest, frozen=True):
    """Seconds, 0 to 600; absent is 0."""

    ack_deadline_seconds: int | None = None


class NewOffset(Request, frozen=True):
    """Where to move a subscription; absent is 0."""

    offset: int | None = None


class Seek(Request, frozen=True):
    """Where to move a subscription: to the first message published at `time` or later, or to `offset`; one of them."""

    time: str | None = None
    offset: int | None = None


class Subscription(CamelObject, frozen=True):
    """A subscription (contract 9.1)."""

    name: str
    """Its resource name, as the topic's."""
    topic: str
    push_config: PushConfig
    ack_deadline_seconds: int
    created_on: Text = ""
    push_status: str = ""


class Subscriptions(ListPage, frozen=True):
    """A page of subscriptions (contract 9.2)."""

    subscriptions: Sequence[Subscription]


class Offsets(Object, frozen=True):
    """Ids: the oldest kept message, the next one to be given, and where the subscription stands (contract 11.3)."""

    min: int
    max: int
    current: int
    """The first id not acknowledged: `max - current` messages are still to come."""


class OffsetAt(Object, frozen=True):
    """The id of a message (contract 11.4)."""

    offset: int
