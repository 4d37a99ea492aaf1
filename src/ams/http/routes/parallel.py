"""Options of parallel subscriptions over HTTP (contract 19): how bodies say them, and how answers show them."""

from msgspec import UNSET

from ams.core import parallel_options
from ams.core.clock import Milliseconds, seconds_span, seconds_text
from ams.core.errors import InvalidInput
from ams.core.names import topic_path
from ams.core.parallel_options import (
    BAD_TYPE,
    DEFAULT_ATTEMPTS,
    DEFAULT_MAXIMUM,
    DEFAULT_MINIMUM,
    ORDERED,
    PARALLEL,
    Changes,
    ParallelOptions,
    RetryPolicy,
)
from ams.http.routes.push import is_empty
from ams.wire.parallel import (
    DeadLetterPolicy,
    DeadLetterPolicyBody,
    ExpirationPolicy,
    ExpirationPolicyBody,
    RetryBackoff,
    RetryBackoffBody,
)
from ams.wire.subscriptions import NewSubscription, SubscriptionChanges

_OPTIONS = {
    "retryPolicy": "retry_policy",
    "deadLetterPolicy": "dead_letter_policy",
    "filter": "filter",
    "enableMessageOrdering": "enable_message_ordering",
    "enableExactlyOnceDelivery": "enable_exactly_once_delivery",
    "retainAckedMessages": "retain_acked_messages",
    "expirationPolicy": "expiration_policy",
    "messageRetentionDuration": "message_retention_duration",
}
"""Fields of a body that only a parallel subscription has."""
_FIXED = {"type": "type", "filter": "filter", "enableMessageOrdering": "enable_message_ordering"}
"""Those that never change."""
_OWN_REQUEST = {
    "ackDeadlineSeconds": ("ack_deadline_seconds", ":modifyAckDeadline"),
    "pushConfig": ("push_config", ":modifyPushConfig"),
}
"""Those that are changed by another request."""


def asked_options(body: NewSubscription) -> ParallelOptions | None:
    """Return the options that a body asks for; None for an ordered subscription.

    Raises `InvalidInput` for another type, for options of an ordered subscription, and for what is no span.
    """
    if body.type not in (None, "", ORDERED, PARALLEL):
        raise InvalidInput(BAD_TYPE)
    if body.type != PARALLEL:
        said = [name for name, field in _OPTIONS.items() if not is_empty(getattr(body, field))]
        if said:
            raise InvalidInput(f"Only a subscription of type parallel has {', '.join(said)}")
        return None
    return ParallelOptions(
        retry_policy=_retry(body.retry_policy),
        dead_letter_policy=_dead_letters(body.dead_letter_policy),
        filter=body.filter or "",
        enable_message_ordering=body.enable_message_ordering or False,
        enable_exactly_once_delivery=body.enable_exactly_once_delivery or False,
        retain_acked_messages=body.retain_acked_messages or False,
        expiration_ttl=_ttl(body.expiration_policy),
        message_retention=_span("messageRetentionDuration", body.message_retention_duration),
    )


def asked_changes(body: SubscriptionChanges) -> Changes:
    """Return the options that a body changes.

    Raises `InvalidInput` for one that never changes, or not by this request, and for what is no span.
    """
    for name, field in _FIXED.items():
        if getattr(body, field) is not UNSET:
            raise InvalidInput(f"Field {name} of a subscription cannot change")
    for name, (field, verb) in _OWN_REQUEST.items():
        if getattr(body, field) is not UNSET:
            raise InvalidInput(f"Field {name} of a subscription is changed by {verb}")
    changes = Changes()
    if body.retry_policy is not UNSET:
        changes["retry_policy"] = _retry(body.retry_policy)
    if body.dead_letter_policy is not UNSET:
        changes["dead_letter_policy"] = _dead_letters(body.dead_letter_policy)
    if body.enable_exactly_once_delivery is not UNSET:
        changes["enable_exactly_once_delivery"] = body.enable_exactly_once_delivery or False
    if body.retain_acked_messages is not UNSET:
        changes["retain_acked_messages"] = body.retain_acked_messages or False
    if body.expiration_policy is not UNSET:
        changes["expiration_ttl"] = _ttl(body.expiration_policy)
    if body.message_retention_duration is not UNSET:
        changes["message_retention"] = _span("messageRetentionDuration", body.message_retention_duration)
    return changes


def _retry(body: RetryBackoffBody | None) -> RetryPolicy | None:
    if body is None:
        return None
    minimum = _span("minimumBackoff", body.minimum_backoff)
    maximum = _span("maximumBackoff", body.maximum_backoff)
    return RetryPolicy(DEFAULT_MINIMUM if minimum is None else minimum, DEFAULT_MAXIMUM if maximum is None else maximum)


def _dead_letters(body: DeadLetterPolicyBody | None) -> parallel_options.DeadLetterPolicy | None:
    if body is None:
        return None
    attempts = body.max_delivery_attempts or DEFAULT_ATTEMPTS
    return parallel_options.DeadLetterPolicy(body.dead_letter_topic or "", attempts)


def _ttl(body: ExpirationPolicyBody | None) -> Milliseconds | None:
    return None if body is None else _span("ttl", body.ttl)


def _span(field: str, text: str | None) -> Milliseconds | None:
    if not text:
        return None
    try:
        return seconds_span(text)
    except ValueError:
        raise InvalidInput(f"Field {field} should be seconds such as 10s or 0.5s") from None


def shown_retry(options: ParallelOptions) -> RetryBackoff | None:
    """Show a retry policy."""
    policy = options.retry_policy
    if policy is None:
        return None
    return RetryBackoff(seconds_text(policy.minimum_backoff), seconds_text(policy.maximum_backoff))


def shown_dead_letters(project: str, options: ParallelOptions) -> DeadLetterPolicy | None:
    """Show a dead letter policy of a project."""
    policy = options.dead_letter_policy
    if policy is None:
        return None
    return DeadLetterPolicy(topic_path(project, policy.topic), policy.max_attempts)


def shown_expiration(options: ParallelOptions) -> ExpirationPolicy | None:
    """Show an expiration policy."""
    return None if options.expiration_ttl is None else ExpirationPolicy(seconds_text(options.expiration_ttl))


def shown_retention(options: ParallelOptions) -> str:
    """Show how long messages are kept; empty where the topic says that."""
    return "" if options.message_retention is None else seconds_text(options.message_retention)
