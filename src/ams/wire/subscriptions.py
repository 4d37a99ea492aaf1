"""Subscriptions, where they stand (contract 9 and 11), options of parallel ones (contract 19), and snapshots.

Options are spelled as in Google's Pub/Sub. Spans are seconds: `10s`, `0.5s`.
"""

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType

from ams.wire.base import CamelObject, CamelRequest, ListPage, Object, Request, Text
from ams.wire.push import PushConfig, PushConfigBody


class RetryBackoffBody(CamelRequest, frozen=True):
    """`retryPolicy` of a parallel subscription in a body: spans up to 600s; absent are 10s and 600s."""

    minimum_backoff: str | None = None
    maximum_backoff: str | None = None


class DeadLetterPolicyBody(CamelRequest, frozen=True):
    """`deadLetterPolicy` in a body."""

    dead_letter_topic: str | None = None  # name of a topic of the project, or `projects/P/topics/T`
    max_delivery_attempts: int | None = None  # 5 to 100; absent or 0: 5


class ExpirationPolicyBody(CamelRequest, frozen=True):
    """`expirationPolicy` in a body."""

    ttl: str | None = None  # how long the subscription stays without being used, 86400s or more; absent: for ever


class ParallelOptions(CamelRequest, frozen=True):
    """Options of a parallel subscription to make."""

    retry_policy: RetryBackoffBody | None = None  # absent: what failed comes again at once
    dead_letter_policy: DeadLetterPolicyBody | None = None  # absent: it comes again without limit
    filter: str | None = None  # at most 256 bytes; absent: all messages
    enable_message_ordering: bool | None = None
    enable_exactly_once_delivery: bool | None = None
    retain_acked_messages: bool | None = None
    expiration_policy: ExpirationPolicyBody | None = None
    message_retention_duration: str | None = None  # 600s to 2678400s; absent: as long as the topic keeps them


class RetryBackoff(CamelObject, frozen=True):
    """How long a message waits after a failure: longer each time."""

    minimum_backoff: str
    maximum_backoff: str


class DeadLetterPolicy(CamelObject, frozen=True):
    """Where messages go that failed so often."""

    dead_letter_topic: str  # its resource name, with a leading slash
    max_delivery_attempts: int


class ExpirationPolicy(CamelObject, frozen=True):
    """How long the subscription stays without being used."""

    ttl: str


class NewSnapshot(CamelRequest, frozen=True):
    """A snapshot to make."""

    subscription: str | None = None  # its name, or `projects/P/subscriptions/S`


class Snapshot(CamelObject, frozen=True):
    """Where a parallel subscription stood when this was made."""

    name: str  # its resource name, with a leading slash; the topic's likewise
    topic: str
    created_on: str
    expire_time: str  # when it is gone by itself
    lost: int | None = None  # unacknowledged messages that retention has taken since; where one is shown


class Snapshots(ListPage, frozen=True):
    """A page of snapshots, newest first."""

    snapshots: Sequence[Snapshot]


class NewSubscription(ParallelOptions, frozen=True):
    """A subscription to make (contract 9.3); options are for parallel ones alone (contract 19)."""

    topic: str | None = None
    ack_deadline_seconds: int | None = None
    push_config: PushConfigBody | None = None
    type: str | None = None  # `ordered` or `parallel`; absent: ordered


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
    ack_ids: list[str] | UnsetType | None = UNSET  # null names none, which is refused


class Nack(CamelRequest, frozen=True):
    """Messages of a parallel subscription that a consumer gives back."""

    ack_ids: list[str] | None = None
    delay_seconds: int | None = None  # after which they come again, 0 to 600; absent: as the retry policy says
    failed: bool | None = None  # False: nobody worked on them, so they come at once and no failure is counted


class NewOffset(Request, frozen=True):
    """Where to move a subscription; absent is 0."""

    offset: int | None = None


class Seek(Request, frozen=True):
    """Where to move a subscription: to the first message published at `time` or later, to `offset`, or to where a
    parallel subscription stood when `snapshot` was made; one of them.
    """

    time: str | None = None
    offset: int | None = None
    snapshot: str | None = None  # its name, or `projects/P/snapshots/N`


class Subscription(CamelObject, frozen=True):
    """A subscription (contract 9.1). What follows `type` is there for parallel ones alone, when it is set."""

    name: str  # its resource name, as the topic's
    topic: str
    push_config: PushConfig
    ack_deadline_seconds: int
    created_on: Text = ""
    push_status: str = ""
    type: str = ""  # `parallel`; absent: ordered
    retry_policy: RetryBackoff | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    filter: str = ""
    enable_message_ordering: bool = False
    enable_exactly_once_delivery: bool = False
    retain_acked_messages: bool = False
    expiration_policy: ExpirationPolicy | None = None
    message_retention_duration: str = ""
    detached: bool = False  # whether it gets nothing any more


class Subscriptions(ListPage, frozen=True):
    """A page of subscriptions (contract 9.2)."""

    subscriptions: Sequence[Subscription]


class Offsets(Object, frozen=True):
    """Ids: the oldest kept message, the next one to be given, and where the subscription stands (contract 11.3)."""

    min: int
    max: int
    current: int  # the first id not acknowledged: `max - current` are to come, less those acknowledged above
    acknowledged: int | None = None  # of a parallel subscription: above `current`, or passed over by the filter
    leased: int | None = None  # of one that is used: how many consumers have; what follows likewise
    waiting: int | None = None  # how many failed, and are to be given again
    blocked: int | None = None  # how many are blocked by an earlier one of their ordering key
    lost: int | None = None  # of a seek to a snapshot: how many messages that it had, retention has taken since


class OffsetAt(Object, frozen=True):
    """The id of a message (contract 11.4)."""

    offset: int
