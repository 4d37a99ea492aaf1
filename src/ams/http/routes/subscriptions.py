"""Subscriptions over HTTP, except pull and acknowledge (contract 9), and their offsets (contract 11.3 to 11.5)."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from ams.core.ack_ids import BAD_ACK_DEADLINE
from ams.core.clock import Milliseconds, resource_date
from ams.core.errors import InvalidInput
from ams.core.names import ack_prefix, snapshot_reference, subscription_path, topic_path
from ams.http.bodies import BodyReader, read_access_change, read_access_list
from ams.http.messages import ack_ids_in_turns
from ams.http.routes.parallel import asked_changes, asked_options, shown_options
from ams.http.routes.push import requested_push, shown_push
from ams.http.routing import Call, Versioned, page_request, shown_page
from ams.service import subscriptions
from ams.service.lookup import without_access_list
from ams.service.parallel.settlement import Settler, holder_of
from ams.service.push.configurations import Pushing
from ams.service.subscription_offsets import Seeker
from ams.storage.registry import records
from ams.wire import subscriptions as wire
from ams.wire.projects import Acl
from ams.wire.push import PushConfig

_ZULU = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z")
_NANOSECONDS_PER_MILLISECOND = 1_000_000

_create = BodyReader(wire.NewSubscription, lambda: InvalidInput("Invalid Subscription Arguments"))
_update = BodyReader(wire.SubscriptionChanges, lambda: InvalidInput("Invalid Subscription Arguments"))
_ack_deadline = BodyReader(wire.AckDeadline, lambda: InvalidInput(BAD_ACK_DEADLINE))
_nack = BodyReader(wire.Nack, lambda: InvalidInput("Invalid ack parameter"))
_BAD_ACCESS_LIST_TEXT = "Invalid Subscription ACL Arguments"
_seek = BodyReader(wire.Seek, lambda: InvalidInput("Invalid Seek Arguments"))
_offset = BodyReader(wire.NewOffset, lambda: InvalidInput("Invalid Offset Arguments"))


class SubscriptionRoutes:
    """The routes of subscriptions."""

    def __init__(self, subscriptions: subscriptions.Subscriptions, pushing: Pushing, settler: Settler) -> None:
        self._subscriptions, self._pushing, self._settler = subscriptions, pushing, settler

    async def subscriptions_list(self, call: Call) -> wire.Subscriptions:
        page = await self._subscriptions.list(call.caller, page_request(call))
        return await shown_page(
            wire.Subscriptions, "subscriptions", page, lambda each: _wire_record(call.project, each)
        )

    async def subscriptions_show(self, call: Call) -> Versioned:
        subscription = await self._subscriptions.show(call.caller, call.subscription)
        status = await self._pushing.status(call.project, subscription)
        return Versioned(_wire_record(call.project, subscription, status), without_access_list(subscription))

    async def subscriptions_create(self, call: Call) -> wire.Subscription:
        wanted = _create.read(await call.body())
        subscription = await self._subscriptions.create(
            call.caller,
            call.subscription,
            wanted.topic or "",
            wanted.ack_deadline_seconds or 0,
            push=requested_push(wanted.push_config),
            options=asked_options(wanted),
        )
        return _wire_record(call.project, subscription)

    async def subscriptions_update(self, call: Call) -> wire.Subscription:
        changes = asked_changes(_update.read(await call.body()))
        subscription = await self._subscriptions.change(call.caller, call.subscription, changes)
        return _wire_record(call.project, subscription)

    async def subscriptions_detach(self, call: Call) -> None:
        await self._subscriptions.detach(call.caller, call.subscription)

    async def subscriptions_delete(self, call: Call) -> dict[str, str] | None:
        message = await self._subscriptions.delete(call.caller, call.subscription)
        return {"message": message} if message else None

    async def subscriptions_modify_ack_deadline(self, call: Call) -> None:
        wanted = _ack_deadline.read(await call.body())
        seconds = wanted.ack_deadline_seconds or 0
        if wanted.ack_ids is UNSET:
            await self._subscriptions.modify_ack_deadline(call.caller, call.subscription, seconds)
        else:
            await self._extend(call, wanted.ack_ids or [], seconds)

    async def subscriptions_extend_leases(self, call: Call) -> None:
        wanted = _ack_deadline.read(await call.body())
        await self._extend(call, wanted.ack_ids or [], wanted.ack_deadline_seconds or 0)

    async def _extend(self, call: Call, ack_ids: Sequence[str], seconds: int) -> None:
        call.leave_unrecorded()  # consumers extend leases all the time
        ids = await ack_ids_in_turns(_prefix(call), ack_ids)
        caller = call.caller
        subscription = await self._settler.to_settle(caller, call.subscription, ids, seconds)
        await self._settler.extend(subscription, caller.here.name, ids, seconds, holder=holder_of(caller))

    async def subscriptions_nack(self, call: Call) -> None:
        wanted = _nack.read(await call.body())
        has_failed, delay = wanted.failed is not False, wanted.delay_seconds
        if delay is not None and not has_failed:
            raise InvalidInput("A message that has not failed has no delaySeconds")
        ids = await ack_ids_in_turns(_prefix(call), wanted.ack_ids or [])
        subscription = await self._settler.to_settle(call.caller, call.subscription, ids, delay)
        if has_failed:
            wait = None if delay is None else Milliseconds(delay * 1000)
            await self._settler.nack(subscription, call.caller.here.name, ids, wait)
        else:
            await self._settler.give_back(subscription, call.caller.here.name, ids)

    async def subscriptions_acl(self, call: Call) -> Versioned:
        found = await self._subscriptions.access_list(call.caller, call.subscription)
        return Versioned(found, found.authorized_users)

    async def subscriptions_modify_acl(self, call: Call) -> None:
        names = read_access_list(await call.body(), _BAD_ACCESS_LIST_TEXT)
        await self._subscriptions.set_access_list(call.caller, call.subscription, names)

    async def subscriptions_change_acl(self, call: Call) -> Acl:
        add, remove = read_access_change(await call.body(), _BAD_ACCESS_LIST_TEXT)
        return Acl(await self._subscriptions.change_access_list(call.caller, call.subscription, add, remove))


def _prefix(call: Call) -> str:
    return ack_prefix(call.project, call.subscription)


class OffsetRoutes:
    """The routes of offsets."""

    def __init__(self, seeker: Seeker) -> None:
        self._seeker = seeker

    async def subscriptions_offsets(self, call: Call) -> wire.Offsets:
        return await self._seeker.offsets(call.caller, call.subscription)

    async def subscriptions_time_to_offset(self, call: Call) -> wire.OffsetAt:
        await self._seeker.require(call.caller, call.subscription)
        time = zulu_time(call.parameter("time") or "")
        return wire.OffsetAt(await self._seeker.offset_at(call.caller, call.subscription, time))

    async def subscriptions_modify_offset(self, call: Call) -> None:
        offset = _offset.read(await call.body()).offset or 0
        await self._seeker.seek(call.caller, call.subscription, offset)

    async def subscriptions_seek(self, call: Call) -> wire.Offsets:
        wanted = _seek.read(await call.body())
        if wanted.snapshot is not None:
            if wanted.time is not None or wanted.offset is not None:
                raise InvalidInput("Give one of time, offset and snapshot")
            snapshot = snapshot_reference(call.project, wanted.snapshot)
            return await self._seeker.seek_snapshot(call.caller, call.subscription, snapshot)
        if (wanted.time is None) == (wanted.offset is None):
            raise InvalidInput("Give either time or offset")
        if wanted.time is not None:
            return await self._seeker.seek_time(call.caller, call.subscription, zulu_time(wanted.time))
        return await self._seeker.seek(call.caller, call.subscription, wanted.offset or 0)


def _wire_record(project: str, subscription: records.Subscription, push_status: str = "") -> wire.Subscription:
    shown = wire.Subscription(
        name=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        push_config=shown_push(project, subscription.push) if subscription.push else PushConfig(),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        created_on=resource_date(subscription.created_on),
        push_status=push_status,
    )
    options = subscription.parallel
    return shown if options is None else msgspec.structs.replace(shown, **shown_options(project, options))


def zulu_time(text: str) -> Milliseconds:
    """Parse `YYYY-MM-DDTHH:MM:SS.mmmZ`, also with a blank for the T, and 0 to 9 digits (contract 11.4).

    Fractions of a millisecond are rounded up: times of messages have whole ones, and none before the time is wanted.
    Raises `InvalidInput`.
    """
    found = _ZULU.fullmatch(text)
    if found is None:
        raise InvalidInput("Time is not in valid Zulu format.")
    date, time, fraction = found.groups(default="")
    try:
        seconds = int(datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise InvalidInput("Time is not in valid Zulu format.") from None
    return Milliseconds(seconds * 1000 + math.ceil(int(fraction.ljust(9, "0")) / _NANOSECONDS_PER_MILLISECOND))
