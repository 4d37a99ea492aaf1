"""Options of parallel subscriptions in declarations: read from a file, read from the service, and sent.

They are spelled as in the API, spans as the service writes them; `{}` and an empty text mean unset.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ams.client import wire
from ams.core import parallel_options
from ams.core.ack_ids import MIN_ACK_DEADLINE
from ams.core.clock import seconds_span, seconds_text
from ams.core.errors import InvalidInput
from ams.core.yaml_tree import Value, bad
from ams.provisioning.declarations import Fields

IMMUTABLE_FIELDS = ("type", "filter", "enableMessageOrdering")  # fields that never change


def text_as(read: Callable[[str], Any], *, optional: bool = False) -> Callable[[Value], Any]:
    """Return a reader that applies `read` to a text and reports its error; null of an optional one is empty."""

    def reader(value: Value) -> Any:
        try:
            return "" if optional and value.is_null else read(value.text())
        except (ValueError, InvalidInput) as error:
            raise bad(value.place, str(error)) from None

    return reader


_span = text_as(seconds_span)


def _check_options(value: Value, options: parallel_options.ParallelOptions) -> None:
    try:
        parallel_options.check(options)
    except InvalidInput as error:
        raise bad(value.place, error.message) from None


def _retry(value: Value) -> Fields:
    if value.is_null:
        return {}
    said = value.mapping(("minimumBackoff", "maximumBackoff"))
    minimum = _span(said["minimumBackoff"]) if "minimumBackoff" in said else parallel_options.DEFAULT_MINIMUM
    maximum = _span(said["maximumBackoff"]) if "maximumBackoff" in said else parallel_options.DEFAULT_MAXIMUM
    _check_options(value, parallel_options.ParallelOptions(parallel_options.RetryPolicy(minimum, maximum)))
    return {"minimumBackoff": seconds_text(minimum), "maximumBackoff": seconds_text(maximum)}


def _dead_letters(value: Value) -> Fields:
    if value.is_null:
        return {}
    said = value.mapping(("deadLetterTopic", "maxDeliveryAttempts"))
    if "deadLetterTopic" not in said:
        raise bad(value.place, parallel_options.NO_DEAD_LETTER_TOPIC)
    attempts = said.get("maxDeliveryAttempts")
    return {
        "deadLetterTopic": said["deadLetterTopic"].text(),
        "maxDeliveryAttempts": attempts.number(parallel_options.MIN_ATTEMPTS, parallel_options.MAX_ATTEMPTS)
        if attempts
        else parallel_options.DEFAULT_ATTEMPTS,
    }


def _filter(text: str) -> str:
    parallel_options.check(parallel_options.ParallelOptions(filter=text))
    return text


def _expiration(value: Value) -> Fields:
    said = value.mapping(("ttl",))
    if not said:
        return {}
    ttl = _span(said["ttl"])
    _check_options(value, parallel_options.ParallelOptions(expiration_ttl=ttl))
    return {"ttl": seconds_text(ttl)}


def _retention(text: str) -> str:
    retention = seconds_span(text)
    parallel_options.check(parallel_options.ParallelOptions(message_retention=retention))
    return seconds_text(retention)


OPTIONS = {
    "retryPolicy": _retry,
    "deadLetterPolicy": _dead_letters,
    "filter": text_as(_filter, optional=True),
    "enableMessageOrdering": Value.switch,
    "enableExactlyOnceDelivery": Value.switch,
    "retainAckedMessages": Value.switch,
    "expirationPolicy": _expiration,
    "messageRetentionDuration": text_as(_retention, optional=True),
}
"""Readers of the fields of a file."""


def check_type(said: Mapping[str, Value], found: Fields) -> None:
    """Raise `BadDocument` for options of an ordered subscription, and for a deadline no parallel one can have."""
    if found.get("type") == parallel_options.PARALLEL:
        if found.get("ackDeadline", MIN_ACK_DEADLINE) < MIN_ACK_DEADLINE:
            raise bad(said["ackDeadline"].place, f"a parallel subscription has {MIN_ACK_DEADLINE} seconds or more")
        return
    for name in OPTIONS:
        if name in said:
            raise bad(said[name].place, f"{name} is of parallel subscriptions: say type: parallel")


def existing(subscription: wire.Subscription, topic: str) -> Fields:
    """Return the fields of a subscription that exists; `topic` is the name of its dead letter topic."""
    retry, letters = subscription.retry_policy, subscription.dead_letter_policy
    expiry = subscription.expiration_policy
    return {
        "type": subscription.type or parallel_options.ORDERED,
        "retryPolicy": msgspec.to_builtins(retry) if retry else {},
        "deadLetterPolicy": {**msgspec.to_builtins(letters), "deadLetterTopic": topic} if letters else {},
        "filter": subscription.filter,
        "enableMessageOrdering": subscription.enable_message_ordering,
        "enableExactlyOnceDelivery": subscription.enable_exactly_once_delivery,
        "retainAckedMessages": subscription.retain_acked_messages,
        "expirationPolicy": msgspec.to_builtins(expiry) if expiry else {},
        "messageRetentionDuration": subscription.message_retention_duration,
    }


def options_to_create(said: Fields) -> wire.ParallelOptions | None:
    """Return the options to make a subscription with; None for an ordered one."""
    return msgspec.convert(_body(said), wire.ParallelOptions) if said.get("type") == parallel_options.PARALLEL else None


def changes(said: Fields) -> wire.SubscriptionChanges | None:
    """Return the options to change; None when there are none."""
    sent = _body(said)
    return msgspec.convert(sent, wire.SubscriptionChanges) if sent else None


def _body(said: Fields) -> dict[str, Any]:
    return {name: None if said[name] in ({}, "") else said[name] for name in OPTIONS if name in said}
