"""Options of a parallel subscription, and the rules by which they change.

`check` has every limit. Filter and message ordering cannot change after creation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from ams.core import filters
from ams.core.clock import DAY, Milliseconds
from ams.core.errors import InvalidInput, refuse_if

ORDERED, PARALLEL = "ordered", "parallel"

SECOND = 1000  # milliseconds
MAX_BACKOFF = Milliseconds(600 * SECOND)
DEFAULT_MINIMUM, DEFAULT_MAXIMUM = Milliseconds(10 * SECOND), MAX_BACKOFF
MIN_ATTEMPTS, MAX_ATTEMPTS = 5, 100
DEFAULT_ATTEMPTS = 5
MIN_TTL = Milliseconds(DAY)
MIN_RETENTION, MAX_RETENTION = Milliseconds(600 * SECOND), Milliseconds(31 * DAY)

BAD_TYPE = "Subscription type can only be of 'ordered' or 'parallel'"
BAD_BACKOFF = "Fields minimumBackoff and maximumBackoff should be between 0s and 600s"
BAD_BACKOFFS = "Field minimumBackoff (10s if absent) should not be more than maximumBackoff"
BAD_ATTEMPTS = f"Field maxDeliveryAttempts should be between {MIN_ATTEMPTS} and {MAX_ATTEMPTS}"
NO_DEAD_LETTER_TOPIC = "Field deadLetterPolicy needs a deadLetterTopic"
BAD_TTL = "Field ttl of expirationPolicy should be 86400s or more"
BAD_RETENTION = "Field messageRetentionDuration should be between 600s and 2678400s"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Backoff of a failed message, from the minimum, growing up to the maximum."""

    minimum_backoff: Milliseconds = DEFAULT_MINIMUM
    maximum_backoff: Milliseconds = DEFAULT_MAXIMUM


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """Topic for messages that failed too often."""

    topic: str  # name of a topic of the same project, or a reference `projects/P/topics/T` in requests
    max_attempts: int = DEFAULT_ATTEMPTS


@dataclass(frozen=True, slots=True)
class ParallelOptions:
    """The options of a parallel subscription."""

    retry_policy: RetryPolicy | None = None  # None: failed messages are redelivered at once
    dead_letter_policy: DeadLetterPolicy | None = None  # None: retries are unlimited
    filter: str = ""  # messages to deliver (`ams.core.filters`); empty: all
    enable_message_ordering: bool = False
    enable_exactly_once_delivery: bool = False
    retain_acked_messages: bool = False  # stored for Google's clients, without effect
    expiration_ttl: Milliseconds | None = None  # an unused subscription is deleted after it; None: never
    message_retention: Milliseconds | None = None  # undelivered ones are skipped after it; None: as topics keep them
    detached: bool = False  # it gets no more messages, permanently


class Changes(TypedDict, total=False):
    """Options that change, with their new values; the others stay."""

    retry_policy: RetryPolicy | None
    dead_letter_policy: DeadLetterPolicy | None
    enable_exactly_once_delivery: bool
    retain_acked_messages: bool
    expiration_ttl: Milliseconds | None
    message_retention: Milliseconds | None


OptionsChange = Callable[[ParallelOptions | None], ParallelOptions]
"""Returns new options for the current ones (None: ordered subscription). If it raises, nothing changes."""


def check(options: ParallelOptions) -> None:
    """Raise `InvalidInput` for the first bad option. Does not look up the dead letter topic."""
    retry, letters = options.retry_policy, options.dead_letter_policy
    if retry is not None:
        if not (0 <= retry.minimum_backoff <= MAX_BACKOFF and 0 <= retry.maximum_backoff <= MAX_BACKOFF):
            raise InvalidInput(BAD_BACKOFF)
        refuse_if(retry.minimum_backoff > retry.maximum_backoff, BAD_BACKOFFS)
    if letters is not None:
        refuse_if(not MIN_ATTEMPTS <= letters.max_attempts <= MAX_ATTEMPTS, BAD_ATTEMPTS)
        refuse_if(not letters.topic, NO_DEAD_LETTER_TOPIC)
    if options.filter:
        filters.parse(options.filter)
    refuse_if(options.expiration_ttl is not None and options.expiration_ttl < MIN_TTL, BAD_TTL)
    if options.message_retention is not None and not MIN_RETENTION <= options.message_retention <= MAX_RETENTION:
        raise InvalidInput(BAD_RETENTION)
