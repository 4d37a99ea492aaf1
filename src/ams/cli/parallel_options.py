"""Options of parallel subscriptions on the command line, and their output."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from ams.cli.arguments import option, seconds_said, topic_names
from ams.cli.command import OptionSet
from ams.cli.exit_codes import Usage
from ams.cli.output import short_name
from ams.client import wire


class SubscriptionType(StrEnum):
    """The types of subscriptions."""

    ORDERED = "ordered"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class Redelivery(OptionSet):
    """Retry policy and dead letter policy."""

    retry_min: Annotated[str, option("How long a message waits after its first failure; 10s.", metavar="DURATION")] = ""
    retry_max: Annotated[str, option("How long it waits at most; 600s.", metavar="DURATION")] = ""
    dead_letter_topic: Annotated[
        str, option("Topic for messages that failed too often.", metavar="TOPIC", complete=topic_names)
    ] = ""
    max_attempts: Annotated[int, option("How often that is, 5 to 100; the service's is 5.", min=0)] = 0

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields that are set; raises `Usage` for what is no duration."""
        said: dict[str, Any] = {}
        if self.retry_min or self.retry_max:
            said["retry_policy"] = wire.RetryBackoff(_span(self.retry_min), _span(self.retry_max))
        if self.dead_letter_topic or self.max_attempts:
            said["dead_letter_policy"] = wire.DeadLetterPolicy(
                self.dead_letter_topic or None, self.max_attempts or None
            )
        return said


@dataclass(frozen=True, slots=True)
class Keeping(OptionSet):
    """Retention of messages, and expiry of the subscription."""

    exactly_once: Annotated[bool | None, option("What was acknowledged never comes again.")] = None
    retain_acked: Annotated[bool | None, option("A seek can bring acknowledged messages back.")] = None
    expires_after: Annotated[str, option("Unused for so long it is deleted; at least 1d.", metavar="DURATION")] = ""
    retention: Annotated[str, option("How long messages are kept for it, 10m to 31d.", metavar="DURATION")] = ""

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields that are set; raises `Usage` for what is no duration."""
        fields = {
            "enable_exactly_once_delivery": self.exactly_once,
            "retain_acked_messages": self.retain_acked,
            "expiration_policy": wire.ExpirationPolicy(_span(self.expires_after)) if self.expires_after else None,
            "message_retention_duration": _span(self.retention),
        }
        return {name: value for name, value in fields.items() if value is not None}


_UNSET = {
    "retry": "retry_policy",
    "dead-letters": "dead_letter_policy",
    "expiry": "expiration_policy",
    "retention": "message_retention_duration",
}
Unset = Annotated[list[str] | None, option(f"Take one back: {', '.join(_UNSET)}.", "--unset", metavar="OPTION")]


def unset(names: list[str] | None) -> dict[str, Any]:
    """Return the fields to unset. Raises `Usage` for an unknown one."""
    for name in names or ():
        if name not in _UNSET:
            raise Usage(f"--unset {name!r} is none of {', '.join(_UNSET)}")
    return {_UNSET[name]: None for name in names or ()}


def _span(text: str) -> str | None:
    if not text:
        return None
    seconds = seconds_said(text)
    if seconds is None:
        raise Usage(f"{text!r} is no duration such as 10s, 0.5s or 7d")
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def parallel_fields(subscription: wire.Subscription) -> dict[str, str]:
    """Return the fields of a parallel subscription for people; empty for an ordered one."""
    if not subscription.type:
        return {}
    retry, dead, expiry = subscription.retry_policy, subscription.dead_letter_policy, subscription.expiration_policy
    topic = short_name(dead.dead_letter_topic) if dead else ""
    facts = {
        "type": subscription.type,
        "retry": f"after {retry.minimum_backoff} to {retry.maximum_backoff}" if retry else "at once",
        "dead letters": f"to {topic} after {dead.max_delivery_attempts} attempts" if dead else "",
        "filter": subscription.filter,
        "ordering": "by key" if subscription.enable_message_ordering else "",
        "exactly once": "yes" if subscription.enable_exactly_once_delivery else "",
        "retains acked": "yes" if subscription.retain_acked_messages else "",
        "expires": f"unused for {expiry.ttl}" if expiry else "",
        "retention": subscription.message_retention_duration,
        "detached": "yes: it gets nothing any more" if subscription.detached else "",
    }
    return {name: fact for name, fact in facts.items() if fact}
