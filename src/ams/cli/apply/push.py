"""Push configurations as a file declares them (HTTP contract 13.1).

Only what the service would show again as it was said is taken, so that a second run finds nothing to do: no fields that
the service drops for a type, no values that it replaces.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ams.cli.apply.resources import Fields
from ams.cli.output import short_name
from ams.core.yaml_tree import Value, bad

MAX_NUMBER = 2**31 - 1
MAX_ATTEMPTS = 1000
"""Of deliveries of a message (docs/reference/push.md)."""

HTTP, MATTERMOST = "http_endpoint", "mattermost"


def push_fields(value: Value) -> Fields:
    """Return the fields of a push configuration; nothing means pull."""
    said = value.mapping()
    if not said:
        return {}
    readers = _FIELDS.get(said["type"].text() if "type" in said else "")
    if readers is None:
        raise bad(value.place, f"the type of a push configuration is {HTTP} or {MATTERMOST}")
    needed = "pushEndpoint" if readers is _HTTP else "mattermostUrl"
    if needed not in said:
        raise bad(value.place, f"a push configuration of this type has a {needed}")
    if "maxDeliveryAttempts" in said and "deadLetterTopic" not in said:
        raise bad(said["maxDeliveryAttempts"].place, "maxDeliveryAttempts needs a deadLetterTopic")
    return {name: readers[name](each) for name, each in value.mapping(tuple(readers)).items()}


def same_push(declared: Fields, existing: Fields) -> bool:
    """Whether a push configuration is as declared; what is not declared may be anything."""
    if not declared:
        return not existing.get("type")
    dead_letters = short_name(existing.get("deadLetterTopic", ""))
    return _holds({**existing, "deadLetterTopic": dead_letters}, declared)


def _holds(existing: object, declared: object) -> bool:
    if isinstance(declared, Mapping):
        return isinstance(existing, Mapping) and all(_holds(existing.get(name), declared[name]) for name in declared)
    return existing == declared


def _header(value: Value) -> Fields:
    said = value.mapping(("type",))
    return {name: each.one_of("autogen", "disabled") for name, each in said.items()}


def _retry_policy(value: Value) -> Fields:
    said = value.mapping(("type", "period"))
    policy = said["type"].one_of("linear", "slowstart", "exponential") if "type" in said else "linear"
    if policy == "slowstart" and "period" in said:
        raise bad(said["period"].place, "slowstart has no period")
    period = {"period": said["period"].number(1, MAX_NUMBER)} if "period" in said else {}
    return {"type": policy, **period}


def _endpoint(value: Value) -> str:
    text = value.text()
    if not text.startswith("https://") or len(text) == len("https://"):
        raise bad(value.place, "a push endpoint is an https address")
    return text


def _count(value: Value) -> int:
    return value.number(1, MAX_NUMBER)


def _attempts(value: Value) -> int:
    return value.number(1, MAX_ATTEMPTS)


_BOTH: Mapping[str, Callable[[Value], Any]] = {
    "type": Value.text,
    "retryPolicy": _retry_policy,
    "base64Decode": Value.switch,
    "deadLetterTopic": Value.text,
    "maxDeliveryAttempts": _attempts,
}
_HTTP = {**_BOTH, "pushEndpoint": _endpoint, "maxMessages": _count, "authorizationHeader": _header}
_MATTERMOST = {
    **_BOTH,
    "mattermostUrl": Value.text,
    "mattermostUsername": Value.text,
    "mattermostChannel": Value.text,
}
_FIELDS = {HTTP: _HTTP, MATTERMOST: _MATTERMOST}
