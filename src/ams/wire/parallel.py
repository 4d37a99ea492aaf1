"""Parallel subscriptions: their options, as Google's Pub/Sub spells them. Spans are seconds: `10s`, `0.5s`."""

from collections.abc import Sequence

from ams.wire.base import CamelObject, CamelRequest, ListPage


class RetryBackoffBody(CamelRequest, frozen=True):
    """`retryPolicy` of a parallel subscription in a body: spans up to 600s; absent are 10s and 600s."""

    minimum_backoff: str | None = None
    maximum_backoff: str | None = None


class DeadLetterPolicyBody(CamelRequest, frozen=True):
    """`deadLetterPolicy` in a body."""

    dead_letter_topic: str | None = None
    """Name of a topic of the project, or `projects/P/topics/T`."""
    max_delivery_attempts: int | None = None
    """5 to 100; absent or 0: 5."""


class ExpirationPolicyBody(CamelRequest, frozen=True):
    """`expirationPolicy` in a body."""

    ttl: str | None = None
    """How long the subscription stays without being used, 86400s or more; absent: for ever."""


class ParallelOptions(CamelRequest, frozen=True):
    """Options of a parallel subscription to make."""

    retry_policy: RetryBackoffBody | None = None
    """Absent: what failed comes again at once."""
    dead_letter_policy: DeadLetterPolicyBody | None = None
    """Absent: it comes again without limit."""
    filter: str | None = None
    """At most 256 bytes; absent: all messages."""
    enable_message_ordering: bool | None = None
    enable_exactly_once_delivery: bool | None = None
    retain_acked_messages: bool | None = None
    expiration_policy: ExpirationPolicyBody | None = None
    message_retention_duration: str | None = None
    """600s to 2678400s; absent: as long as the topic keeps them."""


class RetryBackoff(CamelObject, frozen=True):
    """How long a message waits after a failure: longer each time."""

    minimum_backoff: str
    maximum_backoff: str


class DeadLetterPolicy(CamelObject, frozen=True):
    """Where messages go that failed so often."""

    dead_letter_topic: str
    """Its resource name, with a leading slash."""
    max_delivery_attempts: int


class ExpirationPolicy(CamelObject, frozen=True):
    """How long the subscription stays without being used."""

    ttl: str


class NewSnapshot(CamelRequest, frozen=True):
    """A snapshot to make."""

    subscription: str | None = None
    """Its name, or `projects/P/subscriptions/S`."""


class Snapshot(CamelObject, frozen=True):
    """Where a parallel subscription stood when this was made."""

    name: str
    """Its resource name, with a leading slash; the topic's likewise."""
    topic: str
    created_on: str
    expire_time: str
    """When it is gone by itself."""
    lost: int | None = None
    """How many messages that were not acknowledged then retention has taken since; where one is shown."""


class Snapshots(ListPage, frozen=True):
    """A page of snapshots, newest first."""

    snapshots: Sequence[Snapshot]
