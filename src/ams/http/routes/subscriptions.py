"""Subscriptions over HTTP, but for pull and acknowledge (contract 9), and where they stand (contract 11.3 to 11.5)."""

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
from ams.core.parallel_options import PARALLEL, ParallelOptions
from ams.http.bodies import Reader, access_change_reader, access_list_reader
from ams.http.messages import ack_ids_in_turns
from ams.http.routes import answers
from ams.http.routes.parallel import (
    asked_changes,
    asked_options,
    shown_dead_letters,
    shown_expiration,
    shown_retention,
    shown_retry,
)
from ams.http.routes.push import asked, shown_push
from ams.http.routing import PAGE, Call, Row, Versioned, page_request
from ams.service import subscriptions
from ams.service.lookup import without_access_list
from ams.service.parallel.settling import LeaseRequests
from ams.service.push.pushing import Pushing
from ams.service.seeking import Seeker
from ams.storage.registry import records
from ams.wire.projects import AccessListChange, Acl, NewAccessList
from ams.wire.push import PushConfig
from ams.wire.subscriptions import (
    AckDeadline,
    Nack,
    NewOffset,
    NewSubscription,
    OffsetAt,
    Offsets,
    Seek,
    Subscription,
    SubscriptionChanges,
    Subscriptions,
)

_ZULU = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z")
_NANOSECONDS = 1_000_000
"""In one millisecond."""

_create = Reader(NewSubscription, lambda: InvalidInput("Invalid Subscription Arguments"))
_update = Reader(SubscriptionChanges, lambda: InvalidInput("Invalid Subscription Arguments"))
_ack_deadline = Reader(AckDeadline, lambda: InvalidInput(BAD_ACK_DEADLINE))
_nack = Reader(Nack, lambda: InvalidInput("Invalid ack parameter"))
_access_list = access_list_reader("Invalid Subscription ACL Arguments")
_access_change = access_change_reader("Invalid Subscription ACL Arguments")
_seek = Reader(Seek, lambda: InvalidInput("Invalid Seek Arguments"))
_offset = Reader(NewOffset, lambda: InvalidInput("Invalid Offset Arguments"))


class SubscriptionRoutes:
    """The routes of subscriptions."""

    def __init__(self, subscriptions: subscriptions.Subscriptions, pushing: Pushing, leases: LeaseRequests) -> None:
        self._subscriptions = subscriptions
        self._pushing = pushing
        self._leases = leases

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        subscriptions = "/projects/{project}/subscriptions"
        one = subscriptions + "/{subscription}"
        return [
            Row("GET", subscriptions, "subscriptions:list", self.list, answers=Subscriptions, parameters=PAGE),
            Row("GET", one + ":acl", "subscriptions:acl", self.access_list, answers=Acl, versioned=True),
            Row(
                "POST",
                one + ":modifyAcl",
                "subscriptions:modifyAcl",
                self.modify_access_list,
                reads=NewAccessList,
                versioned=True,
            ),
            Row(
                "POST",
                one + ":changeAcl",
                "subscriptions:changeAcl",
                self.change_access_list,
                reads=AccessListChange,
                answers=Acl,
                versioned=True,
            ),
            Row(
                "POST",
                one + ":modifyAckDeadline",
                "subscriptions:modifyAckDeadline",
                self.modify_ack_deadline,
                reads=AckDeadline,
                most=None,
                versioned=True,
            ),
            Row(
                "POST",
                one + ":update",
                "subscriptions:update",
                self.update,
                reads=SubscriptionChanges,
                answers=Subscription,
                versioned=True,
            ),
            Row("POST", one + ":detach", "subscriptions:detach", self.detach, versioned=True),
            Row("POST", one + ":nack", "subscriptions:nack", self.nack, reads=Nack, most=None),
            Row(
                "POST",
                one + ":extendLeases",
                "subscriptions:extendLeases",
                self.extend_leases,
                reads=AckDeadline,
                most=None,
            ),
            Row("GET", one, "subscriptions:show", self.show, answers=Subscription, versioned=True),
            Row("PUT", one, "subscriptions:create", self.create, reads=NewSubscription, answers=Subscription),
            Row("DELETE", one, "subscriptions:delete", self.delete, versioned=True),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of subscriptions."""
        page = await self._subscriptions.list(call.caller, page_request(call))
        project = call.caller.here.name
        return await answers.encode_page(
            Subscriptions, "subscriptions", page, lambda each: shown_subscription(project, each)
        )

    async def show(self, call: Call) -> Versioned:
        """Answer a subscription; here alone with the state of its delivery, which its version is not of."""
        subscription = await self._subscriptions.show(call.caller, call.subscription)
        status = await self._pushing.status(call.caller.here.name, subscription)
        shown = shown_subscription(call.caller.here.name, subscription, status)
        return answers.versioned(shown, without_access_list(subscription))

    async def create(self, call: Call) -> bytes:
        """Make a subscription at the present end of its topic."""
        wanted = _create.read(await call.body())
        subscription = await self._subscriptions.create(
            call.caller,
            call.subscription,
            wanted.topic or "",
            wanted.ack_deadline_seconds or 0,
            push=asked(wanted.push_config),
            options=asked_options(wanted),
        )
        return answers.encode(shown_subscription(call.caller.here.name, subscription))

    async def update(self, call: Call) -> bytes:
        """Change options of a parallel subscription; answer it as it is then."""
        changes = asked_changes(_update.read(await call.body()))
        subscription = await self._subscriptions.change(call.caller, call.subscription, changes)
        return answers.encode(shown_subscription(call.caller.here.name, subscription))

    async def detach(self, call: Call) -> bytes:
        """Let a parallel subscription get nothing any more, for good."""
        await self._subscriptions.detach(call.caller, call.subscription)
        return answers.EMPTY

    async def delete(self, call: Call) -> bytes:
        """Delete a subscription; one that was delivered answers what becomes of that."""
        message = await self._subscriptions.delete(call.caller, call.subscription)
        return answers.encode({"message": message}) if message else answers.EMPTY

    async def modify_ack_deadline(self, call: Call) -> bytes:
        """Change the acknowledgement deadline; an absent one is 0. With ids: the end of their leases."""
        wanted = _ack_deadline.read(await call.body())
        seconds = wanted.ack_deadline_seconds or 0
        if wanted.ack_ids is not UNSET:
            return await self._extended(call, wanted.ack_ids or [], seconds)
        await self._subscriptions.modify_ack_deadline(call.caller, call.subscription, seconds)
        return answers.EMPTY

    async def extend_leases(self, call: Call) -> bytes:
        """Let leases of a parallel subscription go on, for a worker that delivers."""
        wanted = _ack_deadline.read(await call.body())
        return await self._extended(call, wanted.ack_ids or [], wanted.ack_deadline_seconds or 0)

    async def _extended(self, call: Call, ack_ids: Sequence[str], seconds: int) -> bytes:
        call.leave_unrecorded()  # consumers extend leases all the time
        ids = await ack_ids_in_turns(_prefix(call), ack_ids)
        await self._leases.extend(call.caller, call.subscription, ids, seconds)
        return answers.EMPTY

    async def nack(self, call: Call) -> bytes:
        """Give messages of a parallel subscription back."""
        wanted = _nack.read(await call.body())
        has_failed = wanted.failed is not False
        if wanted.delay_seconds is not None and not has_failed:
            raise InvalidInput("A message that has not failed has no delaySeconds")
        ids = await ack_ids_in_turns(_prefix(call), wanted.ack_ids or [])
        if has_failed:
            await self._leases.nack(call.caller, call.subscription, ids, wanted.delay_seconds)
        else:
            await self._leases.give_back(call.caller, call.subscription, ids)
        return answers.EMPTY

    async def access_list(self, call: Call) -> Versioned:
        """Answer who is on a subscription's access list."""
        listed = await self._subscriptions.access_list(call.caller, call.subscription)
        return answers.versioned(Acl(listed), listed)

    async def modify_access_list(self, call: Call) -> bytes:
        """Replace a subscription's access list."""
        await self._subscriptions.set_access_list(call.caller, call.subscription, _access_list(await call.body()))
        return answers.EMPTY

    async def change_access_list(self, call: Call) -> bytes:
        """Add users to a subscription's access list and remove others; answer the list."""
        add, remove = _access_change(await call.body())
        return answers.encode(
            Acl(await self._subscriptions.change_access_list(call.caller, call.subscription, add, remove))
        )


def _prefix(call: Call) -> str:
    return ack_prefix(call.caller.here.name, call.subscription)


class OffsetRoutes:
    """The routes of offsets."""

    def __init__(self, seeker: Seeker) -> None:
        self._seeker = seeker

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}/subscriptions/{subscription}"
        return [
            Row("GET", one + ":offsets", "subscriptions:offsets", self.show, answers=Offsets),
            Row(
                "GET",
                one + ":timeToOffset",
                "subscriptions:timeToOffset",
                self.of_time,
                answers=OffsetAt,
                parameters=("time",),
            ),
            Row("POST", one + ":modifyOffset", "subscriptions:modifyOffset", self.modify, reads=NewOffset),
            Row("POST", one + ":seek", "subscriptions:seek", self.seek, reads=Seek, answers=Offsets),
        ]

    async def show(self, call: Call) -> bytes:
        """Answer the topic's bounds and where the subscription stands between them."""
        offsets = await self._seeker.offsets(call.caller, call.subscription)
        return answers.encode(offsets)

    async def of_time(self, call: Call) -> bytes:
        """Answer the first message published at `time` or later; subscription and access list come before `time`."""
        await self._seeker.require(call.caller, call.subscription)
        time = zulu_time(call.parameter("time") or "")
        return answers.encode(OffsetAt(await self._seeker.offset_at(call.caller, call.subscription, time)))

    async def modify(self, call: Call) -> bytes:
        """Move the subscription; an absent offset is 0."""
        offset = _offset.read(await call.body()).offset or 0
        await self._seeker.seek(call.caller, call.subscription, offset)
        return answers.EMPTY

    async def seek(self, call: Call) -> bytes:
        """Move the subscription to a time, an offset or a snapshot, in one step; answer where it stands."""
        wanted = _seek.read(await call.body())
        if wanted.snapshot is not None:
            return answers.encode(await self._seek_snapshot(call, wanted))
        if (wanted.time is None) == (wanted.offset is None):
            raise InvalidInput("Give either time or offset")
        if wanted.time is not None:
            offsets = await self._seeker.seek_time(call.caller, call.subscription, zulu_time(wanted.time))
        else:
            offsets = await self._seeker.seek(call.caller, call.subscription, wanted.offset or 0)
        return answers.encode(offsets)

    async def _seek_snapshot(self, call: Call, wanted: Seek) -> Offsets:
        if wanted.time is not None or wanted.offset is not None:
            raise InvalidInput("Give one of time, offset and snapshot")
        snapshot = snapshot_reference(call.caller.here.name, wanted.snapshot or "")
        return await self._seeker.seek_snapshot(call.caller, call.subscription, snapshot)


def shown_subscription(project: str, subscription: records.Subscription, push_status: str = "") -> Subscription:
    """Show a subscription of a project, also when its topic is gone."""
    shown = Subscription(
        name=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        push_config=shown_push(project, subscription.push) if subscription.push else PushConfig(),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        created_on=resource_date(subscription.created_on),
        push_status=push_status,
    )
    options = subscription.parallel
    return shown if options is None else _with_options(project, shown, options)


def _with_options(project: str, shown: Subscription, options: ParallelOptions) -> Subscription:
    return msgspec.structs.replace(
        shown,
        type=PARALLEL,
        retry_policy=shown_retry(options),
        dead_letter_policy=shown_dead_letters(project, options),
        filter=options.filter,
        enable_message_ordering=options.enable_message_ordering,
        enable_exactly_once_delivery=options.enable_exactly_once_delivery,
        retain_acked_messages=options.retain_acked_messages,
        expiration_policy=shown_expiration(options),
        message_retention_duration=shown_retention(options),
        detached=options.detached,
    )


def zulu_time(text: str) -> Milliseconds:
    """Read `YYYY-MM-DDTHH:MM:SS.mmmZ`, with a blank for the T and 0 to 9 digits too (contract 11.4).

    What is finer than a millisecond is rounded up: messages carry whole ones, and none before the time is wanted.
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
    return Milliseconds(seconds * 1000 + math.ceil(int(fraction.ljust(9, "0")) / _NANOSECONDS))
