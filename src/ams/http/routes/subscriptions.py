"""Subscriptions over HTTP, except pull and acknowledge (contract 9), their offsets (11.3 to 11.5), options of parallel
ones (19), and snapshots (19.3).
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from ams.core import parallel_options as limits
from ams.core.ack_ids import BAD_ACK_DEADLINE
from ams.core.clock import Milliseconds, resource_date, seconds_span, seconds_text
from ams.core.errors import InvalidInput, refuse_if
from ams.core.names import ack_prefix, snapshot_path, snapshot_reference, subscription_path, topic_path
from ams.core.parallel_options import Changes, DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.http import routing
from ams.http.messages import ack_ids_in_turns
from ams.http.routes.push import is_empty, requested_push, shown_push
from ams.http.routing import Call, Versioned
from ams.service import subscriptions
from ams.service.lookup import without_access_list
from ams.service.parallel.settlement import Settler, holder_of
from ams.service.push.configurations import Pushing
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.storage.registry import records
from ams.wire import subscriptions as wire
from ams.wire.push import PushConfig

Default = TypeVar("Default", Milliseconds, None)

_ZULU = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z")

_BAD_TEXT = "Invalid Subscription Arguments"
_BAD_ACCESS_LIST_TEXT = "Invalid Subscription ACL Arguments"
_OPTIONS = msgspec.structs.fields(wire.ParallelOptions)  # of a body for parallel subscriptions only
_REFUSED_CHANGES = {  # fields of a body that `:update` does not change, and why
    "type": "cannot change",
    "filter": "cannot change",
    "enableMessageOrdering": "cannot change",
    "ackDeadlineSeconds": "is changed by :modifyAckDeadline",
    "pushConfig": "is changed by :modifyPushConfig",
}


class SubscriptionRoutes:
    """The routes of subscriptions, their offsets, and snapshots."""

    def __init__(
        self, subscriptions: subscriptions.Subscriptions, pushing: Pushing, settler: Settler, seeker: Seeker,
        snapshots: Snapshots,
    ) -> None:  # fmt: skip
        self._subscriptions, self._pushing, self._settler, self._seeker = subscriptions, pushing, settler, seeker
        self._snapshots = snapshots
        self.snapshots_delete = routing.forward(snapshots.delete, "snapshot")
        self.subscriptions_detach = routing.forward(subscriptions.detach, "subscription")
        self.subscriptions_offsets = routing.forward(seeker.offsets, "subscription")
        self.subscriptions_acl = routing.forward(subscriptions.access_list, "subscription", show=routing.shown_acl)
        change_list = subscriptions.change_access_list
        self.subscriptions_modify_acl = routing.replace_acl(change_list, "subscription", _BAD_ACCESS_LIST_TEXT)
        self.subscriptions_change_acl = routing.change_acl(change_list, "subscription", _BAD_ACCESS_LIST_TEXT)

    async def subscriptions_list(self, call: Call) -> wire.Subscriptions:
        page = await self._subscriptions.list(call.caller, routing.page_request(call))
        return await routing.shown_page(wire.Subscriptions, "subscriptions", page, partial(_shown, call.project))

    async def subscriptions_show(self, call: Call) -> Versioned:
        subscription = await self._subscriptions.show(call.caller, call.subscription)
        status = await self._pushing.status(call.project, subscription)
        return Versioned(_shown(call.project, subscription, status), without_access_list(subscription))

    async def subscriptions_create(self, call: Call) -> wire.Subscription:
        wanted = await call.read(wire.NewSubscription, _BAD_TEXT)
        topic, deadline = wanted.topic or "", wanted.ack_deadline_seconds or 0
        push, options = requested_push(wanted.push_config), _asked_options(wanted)
        subscription = await self._subscriptions.create(
            call.caller, call.subscription, topic, deadline, push=push, options=options
        )
        return _shown(call.project, subscription)

    async def subscriptions_update(self, call: Call) -> wire.Subscription:
        body = await call.read(wire.SubscriptionChanges, _BAD_TEXT)
        for field in msgspec.structs.fields(body):
            if field.encode_name in _REFUSED_CHANGES and getattr(body, field.name) is not msgspec.UNSET:
                name = field.encode_name
                raise InvalidInput(f"Field {name} of a subscription {_REFUSED_CHANGES[name]}")
        return _shown(call.project, await self._subscriptions.change(call.caller, call.subscription, _asked(body)))

    async def subscriptions_delete(self, call: Call) -> dict[str, str] | None:
        message = await self._subscriptions.delete(call.caller, call.subscription)
        return {"message": message} if message else None

    async def subscriptions_modify_ack_deadline(self, call: Call) -> None:
        wanted = await call.read(wire.AckDeadline, BAD_ACK_DEADLINE)
        seconds = wanted.ack_deadline_seconds or 0
        if wanted.ack_ids is msgspec.UNSET:
            await self._subscriptions.modify_ack_deadline(call.caller, call.subscription, seconds)
        else:
            await self._extend(call, wanted.ack_ids or [], seconds)

    async def subscriptions_extend_leases(self, call: Call) -> None:
        wanted = await call.read(wire.AckDeadline, BAD_ACK_DEADLINE)
        await self._extend(call, wanted.ack_ids or [], wanted.ack_deadline_seconds or 0)

    async def _extend(self, call: Call, ack_ids: Sequence[str], seconds: int) -> None:
        call.leave_unrecorded()  # consumers extend leases all the time
        ids = await ack_ids_in_turns(ack_prefix(call.project, call.subscription), ack_ids)
        subscription = await self._settler.to_settle(call.caller, call.subscription, ids, seconds)
        await self._settler.extend(subscription, ids, seconds, holder=holder_of(call.caller))

    async def subscriptions_nack(self, call: Call) -> None:
        wanted = await call.read(wire.Nack, "Invalid ack parameter")
        has_failed, delay = wanted.failed is not False, wanted.delay_seconds
        refuse_if(delay is not None and not has_failed, "A message that has not failed has no delaySeconds")
        ids = await ack_ids_in_turns(ack_prefix(call.project, call.subscription), wanted.ack_ids or [])
        subscription = await self._settler.to_settle(call.caller, call.subscription, ids, delay)
        if has_failed:
            wait = None if delay is None else Milliseconds(delay * 1000)
            await self._settler.nack(subscription, ids, wait)
        else:
            await self._settler.give_back(subscription, ids)

    async def subscriptions_time_to_offset(self, call: Call) -> wire.OffsetAt:
        await self._seeker.require(call.caller, call.subscription)
        time = zulu_time(call.parameter("time") or "")
        return wire.OffsetAt(await self._seeker.offset_at(call.caller, call.subscription, time))

    async def subscriptions_modify_offset(self, call: Call) -> None:
        wanted = await call.read(wire.NewOffset, "Invalid Offset Arguments")
        await self._seeker.seek(call.caller, call.subscription, wanted.offset or 0)

    async def subscriptions_seek(self, call: Call) -> wire.Offsets:
        wanted = await call.read(wire.Seek, "Invalid Seek Arguments")
        if wanted.snapshot is not None:
            refuse_if(wanted.time is not None or wanted.offset is not None, "Give one of time, offset and snapshot")
            snapshot = snapshot_reference(call.project, wanted.snapshot)
            return await self._seeker.seek_snapshot(call.caller, call.subscription, snapshot)
        refuse_if((wanted.time is None) == (wanted.offset is None), "Give either time or offset")
        if wanted.time is not None:
            return await self._seeker.seek_time(call.caller, call.subscription, zulu_time(wanted.time))
        return await self._seeker.seek(call.caller, call.subscription, wanted.offset or 0)

    async def snapshots_list(self, call: Call) -> wire.Snapshots:
        page = await self._snapshots.list(call.caller, routing.page_request(call))
        return await routing.shown_page(wire.Snapshots, "snapshots", page, partial(_snapshot, call.project))

    async def snapshots_show(self, call: Call) -> wire.Snapshot:
        found, lost = await self._snapshots.show(call.caller, call.snapshot)
        return _snapshot(call.project, found, lost)

    async def snapshots_create(self, call: Call) -> wire.Snapshot:
        wanted = await call.read(wire.NewSnapshot, "Invalid Snapshot Arguments")
        made = await self._snapshots.create(call.caller, call.snapshot, wanted.subscription or "")
        return _snapshot(call.project, made)


def _shown(project: str, subscription: records.Subscription, push_status: str = "") -> wire.Subscription:
    options = subscription.parallel or ParallelOptions()
    retry, letters = options.retry_policy, options.dead_letter_policy
    ttl, kept = options.expiration_ttl, options.message_retention
    shown_retry = retry and wire.RetryBackoff(seconds_text(retry.minimum_backoff), seconds_text(retry.maximum_backoff))
    return routing.wire_record(
        wire.Subscription,
        options,
        name=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        push_config=shown_push(project, subscription.push) if subscription.push else PushConfig(),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        created_on=resource_date(subscription.created_on),
        push_status=push_status,
        type=limits.PARALLEL if subscription.parallel else "",
        retry_policy=shown_retry,
        dead_letter_policy=letters and wire.DeadLetterPolicy(topic_path(project, letters.topic), letters.max_attempts),
        expiration_policy=None if ttl is None else wire.ExpirationPolicy(seconds_text(ttl)),
        message_retention_duration="" if kept is None else seconds_text(kept),
    )


def zulu_time(text: str) -> Milliseconds:
    """Parse `YYYY-MM-DDTHH:MM:SS.mmmZ`, also with a blank for the T, and 0 to 9 digits (contract 11.4).

    Fractions of a millisecond are rounded up: times of messages have whole ones, and none before the time is wanted.
    Raises `InvalidInput`.
    """
    if (found := _ZULU.fullmatch(text)) is None:
        raise InvalidInput("Time is not in valid Zulu format.")
    date, time, fraction = found.groups(default="")
    try:
        seconds = int(datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise InvalidInput("Time is not in valid Zulu format.") from None
    return Milliseconds(seconds * 1000 + math.ceil(int(fraction.ljust(9, "0")) / 1_000_000))


def _asked_options(body: wire.NewSubscription) -> ParallelOptions | None:
    """Return the requested options, None for an ordered subscription. Raises `InvalidInput`."""
    refuse_if(body.type not in (None, "", limits.ORDERED, limits.PARALLEL), limits.BAD_TYPE)
    if body.type != limits.PARALLEL:
        said = [each.encode_name for each in _OPTIONS if not is_empty(getattr(body, each.name))]
        refuse_if(said, f"Only a subscription of type parallel has {', '.join(said)}")
        return None
    is_ordered = body.enable_message_ordering or False
    return ParallelOptions(filter=body.filter or "", enable_message_ordering=is_ordered, **_asked(body))


def _asked(body: wire.NewSubscription | wire.SubscriptionChanges) -> Changes:
    said = ((option, read, getattr(body, field)) for field, (option, read) in _READERS.items())
    return cast("Changes", {option: read(value) for option, read, value in said if value is not msgspec.UNSET})


def _retry(body: wire.RetryBackoffBody | None) -> RetryPolicy | None:
    if body is None:
        return None
    minimum = _span("minimumBackoff", body.minimum_backoff, limits.DEFAULT_MINIMUM)
    return RetryPolicy(minimum, _span("maximumBackoff", body.maximum_backoff, limits.DEFAULT_MAXIMUM))


def _dead_letters(body: wire.DeadLetterPolicyBody | None) -> DeadLetterPolicy | None:
    if body is None:
        return None
    return DeadLetterPolicy(body.dead_letter_topic or "", body.max_delivery_attempts or limits.DEFAULT_ATTEMPTS)


def _ttl(body: wire.ExpirationPolicyBody | None) -> Milliseconds | None:
    return None if body is None else _span("ttl", body.ttl, None)


def _span(field: str, text: str | None, default: Default) -> Milliseconds | Default:
    if not text:
        return default
    try:
        return seconds_span(text)
    except ValueError:
        raise InvalidInput(f"Field {field} should be seconds such as 10s or 0.5s") from None


_READERS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "retry_policy": ("retry_policy", _retry),
    "dead_letter_policy": ("dead_letter_policy", _dead_letters),
    "enable_exactly_once_delivery": ("enable_exactly_once_delivery", bool),
    "retain_acked_messages": ("retain_acked_messages", bool),
    "expiration_policy": ("expiration_ttl", _ttl),
    "message_retention_duration": ("message_retention", partial(_span, "messageRetentionDuration", default=None)),
}
"""Options that can change, by the fields of bodies: name and reader."""


def _snapshot(project: str, snapshot: records.Snapshot, lost: int | None = None) -> wire.Snapshot:
    name, topic = snapshot_path(project, snapshot.name), topic_path(project, snapshot.topic)
    return wire.Snapshot(name, topic, resource_date(snapshot.created_on), resource_date(snapshot.expires_on), lost)
