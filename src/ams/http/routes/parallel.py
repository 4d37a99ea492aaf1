"""Options of parallel subscriptions in bodies and answers (contract 19), and snapshots (contract 19.3)."""

import msgspec
from msgspec import UNSET

from ams.core import parallel_options as limits
from ams.core.clock import Milliseconds, resource_date, seconds_span, seconds_text
from ams.core.errors import InvalidInput
from ams.core.names import snapshot_path, topic_path
from ams.core.parallel_options import Changes, DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.http.bodies import BodyReader
from ams.http.routes.push import is_empty
from ams.http.routing import Call, page_request, shown_page
from ams.service import subscription_offsets
from ams.storage.registry import records
from ams.wire import subscriptions as wire

_create = BodyReader(wire.NewSnapshot, lambda: InvalidInput("Invalid Snapshot Arguments"))
_OPTIONS = {field.encode_name: field.name for field in msgspec.structs.fields(wire.ParallelOptions)}
"""Fields of a body for parallel subscriptions only."""
_FIXED_FIELDS = {"type": "type", "filter": "filter", "enableMessageOrdering": "enable_message_ordering"}
_OTHER_FIELDS = {
    "ackDeadlineSeconds": ("ack_deadline_seconds", ":modifyAckDeadline"),
    "pushConfig": ("push_config", ":modifyPushConfig"),
}
"""Fields that other requests change."""


def asked_options(body: wire.NewSubscription) -> ParallelOptions | None:
    """Return the requested options, None for an ordered subscription. Raises `InvalidInput`."""
    if body.type not in (None, "", limits.ORDERED, limits.PARALLEL):
        raise InvalidInput(limits.BAD_TYPE)
    if body.type != limits.PARALLEL:
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


def asked_changes(body: wire.SubscriptionChanges) -> Changes:
    """Return the changed options. Raises `InvalidInput` for options that cannot change, and bad spans."""
    for name, field in _FIXED_FIELDS.items():
        if getattr(body, field) is not UNSET:
            raise InvalidInput(f"Field {name} of a subscription cannot change")
    for name, (field, verb) in _OTHER_FIELDS.items():
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


def _retry(body: wire.RetryBackoffBody | None) -> RetryPolicy | None:
    if body is None:
        return None
    minimum = _span("minimumBackoff", body.minimum_backoff)
    maximum = _span("maximumBackoff", body.maximum_backoff)
    return RetryPolicy(
        limits.DEFAULT_MINIMUM if minimum is None else minimum, limits.DEFAULT_MAXIMUM if maximum is None else maximum
    )


def _dead_letters(body: wire.DeadLetterPolicyBody | None) -> DeadLetterPolicy | None:
    if body is None:
        return None
    attempts = body.max_delivery_attempts or limits.DEFAULT_ATTEMPTS
    return DeadLetterPolicy(body.dead_letter_topic or "", attempts)


def _ttl(body: wire.ExpirationPolicyBody | None) -> Milliseconds | None:
    return None if body is None else _span("ttl", body.ttl)


def _span(field: str, text: str | None) -> Milliseconds | None:
    if not text:
        return None
    try:
        return seconds_span(text)
    except ValueError:
        raise InvalidInput(f"Field {field} should be seconds such as 10s or 0.5s") from None


def shown_options(project: str, options: ParallelOptions) -> dict[str, object]:
    """Return the members of an answer that show the options of a parallel subscription."""
    retry, letters = options.retry_policy, options.dead_letter_policy
    ttl, kept = options.expiration_ttl, options.message_retention
    shown_retry = retry and wire.RetryBackoff(seconds_text(retry.minimum_backoff), seconds_text(retry.maximum_backoff))
    return {
        "type": limits.PARALLEL,
        "retry_policy": shown_retry,
        "dead_letter_policy": letters
        and wire.DeadLetterPolicy(topic_path(project, letters.topic), letters.max_attempts),
        "filter": options.filter,
        "enable_message_ordering": options.enable_message_ordering,
        "enable_exactly_once_delivery": options.enable_exactly_once_delivery,
        "retain_acked_messages": options.retain_acked_messages,
        "expiration_policy": None if ttl is None else wire.ExpirationPolicy(seconds_text(ttl)),
        "message_retention_duration": "" if kept is None else seconds_text(kept),
        "detached": options.detached,
    }


class SnapshotRoutes:
    """The routes of snapshots."""

    def __init__(self, snapshots: subscription_offsets.Snapshots) -> None:
        self._snapshots = snapshots

    async def snapshots_list(self, call: Call) -> wire.Snapshots:
        page = await self._snapshots.list(call.caller, page_request(call))
        return await shown_page(wire.Snapshots, "snapshots", page, lambda each: _snapshot(call.project, each))

    async def snapshots_show(self, call: Call) -> wire.Snapshot:
        found, lost = await self._snapshots.show(call.caller, call.snapshot)
        return _snapshot(call.project, found, lost)

    async def snapshots_create(self, call: Call) -> wire.Snapshot:
        wanted = _create.read(await call.body())
        made = await self._snapshots.create(call.caller, call.snapshot, wanted.subscription or "")
        return _snapshot(call.project, made)

    async def snapshots_delete(self, call: Call) -> None:
        await self._snapshots.delete(call.caller, call.snapshot)


def _snapshot(project: str, snapshot: records.Snapshot, lost: int | None = None) -> wire.Snapshot:
    return wire.Snapshot(
        name=snapshot_path(project, snapshot.name),
        topic=topic_path(project, snapshot.topic),
        created_on=resource_date(snapshot.created_on),
        expire_time=resource_date(snapshot.expires_on),
        lost=lost,
    )
