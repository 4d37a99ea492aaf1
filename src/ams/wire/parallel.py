"""Parallel subscriptions: their options, as Google's Pub/Sub spells them. Spans are seconds: `10s`, `0.5s`."""

from ams.wire.base import CamelObject, CamelRequest


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
    """`projects/P/subscriptions/S`, or its name."""


class Snapshot(CamelObject, frozen=True):
    """Where a parallel subscription stood when this was made."""

    name: str
    """Its resource name, with a leading slash; the topic's likewise."""
    topic: str
    created_on: str
    expire_time: str
    """When it is gone by itself."""
