"""Subscriptions, and where they stand (contract 9 and 11)."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType

from ams.wire.base import CamelObject, CamelRequest, ListPage, Object, Request, Text
from ams.wire.parallel import (
    DeadLetterPolicy,
    DeadLetterPolicyBody,
    ExpirationPolicy,
    ExpirationPolicyBody,
    ParallelOptions,
    RetryBackoff,
    RetryBackoffBody,
)
from ams.wire.push import PushConfig, PushConfigBody


class NewSubscription(ParallelOptions, frozen=True):
    """A subscription to make (contract 9.3); options are for parallel ones alone (contract 19)."""

    topic: str | None = None
    ack_deadline_seconds: int | None = None
    push_config: PushConfigBody | None = None
    type: str | None = None
    """`ordered` or `parallel`; absent: ordered."""


class SubscriptionChanges(CamelRequest, frozen=True):
    """Options to change of a parallel subscription (contract 19).

    What is absent stays, and null is what it is without being said. The last five are refused: they never change, or by
    requests of their own.
    """

    retry_policy: RetryBackoffBody | UnsetType | None = UNSET
    dead_letter_policy: DeadLetterPolicyBody | UnsetType | None = UNSET
    enable_exactly_once_delivery: bool | UnsetType | None = UNSET
    retain_acked_messages: bool | UnsetType | None = UNSET
    expiration_policy: ExpirationPolicyBody | UnsetType | None = UNSET
    message_retention_duration: str | UnsetType | None = UNSET
    type: Raw | UnsetType = UNSET
    filter: Raw | UnsetType = UNSET
    enable_message_ordering: Raw | UnsetType = UNSET
    ack_deadline_seconds: Raw | UnsetType = UNSET
    push_config: Raw | UnsetType = UNSET


class AckDeadline(CamelRequest, frozen=True):
    """Seconds, 0 to 600; absent is 0. With ids of a parallel subscription: from now on, and 0 gives them back."""

    ack_deadline_seconds: int | None = None
    ack_ids: list[str] | UnsetType | None = UNSET
    """Null names none, which is refused."""


class Nack(CamelRequest, frozen=True):
    """Messages of a parallel subscription that a consumer gives back."""

    ack_ids: list[str] | None = None
    delay_seconds: int | None = None
    """After which they come again, 0 to 600; absent: as the retry policy says."""
    failed: bool | None = None
    """False: nobody has worked on them, so that they come again at once and no failure is counted."""


class NewOffset(Request, frozen=True):
    """Where to move a subscription; absent is 0."""

    offset: int | None = None


class Seek(Request, frozen=True):
    """Where to move a subscription: to the first message published at `time` or later, to `offset`, or to where a
    parallel subscription stood when `snapshot` was made; one of them."""

    time: str | None = None
    offset: int | None = None
    snapshot: str | None = None
    """Its name, or `projects/P/snapshots/N`."""


class Subscription(CamelObject, frozen=True):
    """A subscription (contract 9.1). What follows `type` is there for parallel ones alone, when it is set."""

    name: str
    """Its resource name, as the topic's."""
    topic: str
    push_config: PushConfig
    ack_deadline_seconds: int
    created_on: Text = ""
    push_status: str = ""
    type: str = ""
    """`parallel`; absent: ordered."""
    retry_policy: RetryBackoff | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    filter: str = ""
    enable_message_ordering: bool = False
    enable_exactly_once_delivery: bool = False
    retain_acked_messages: bool = False
    expiration_policy: ExpirationPolicy | None = None
    message_retention_duration: str = ""
    detached: bool = False
    """Whether it gets nothing any more."""


class Subscriptions(ListPage, frozen=True):
    """A page of subscriptions (contract 9.2)."""

    subscriptions: Sequence[Subscription]


class Offsets(Object, frozen=True):
    """Ids: the oldest kept message, the next one to be given, and where the subscription stands (contract 11.3)."""

    min: int
    max: int
    current: int
    """The first id not acknowledged: `max - current` messages are still to come, without those acknowledged above."""
    acknowledged: int | None = None
    """Of a parallel subscription: how many above `current` are acknowledged, or passed over by the filter."""
    leased: int | None = None
    """Of one that is used: how many consumers have; what follows likewise."""
    waiting: int | None = None
    """How many failed, and are to be given again."""
    blocked: int | None = None
    """How many are blocked by an earlier one of their ordering key."""
    lost: int | None = None
    """Of a seek to a snapshot: how many messages that it had, retention has taken since."""


class OffsetAt(Object, frozen=True):
    """The id of a message (contract 11.4)."""

    offset: int
