"""Calls about subscriptions: pull, acknowledge, seek (contract 9 to 11), push, leases of push, snapshots (19.3)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from types import NoneType
from typing import Any

import msgspec

from ams.client.wire.call import Call, call_of, check_name, page
from ams.wire import push as delivery
from ams.wire import subscriptions as wire
from ams.wire.messages import AckBody, PullBody, Received
from ams.wire.projects import AccessListChange, Acl, NewAccessList
from ams.wire.service import Diagnosis


class Subscription(wire.Subscription, frozen=True):
    """A subscription with a raw push configuration: the original service leaves out fields."""

    push_config: dict[str, Any]  # type: ignore[assignment]


class Subscriptions(wire.Subscriptions, frozen=True):
    """A page of subscriptions, newest first."""

    subscriptions: Sequence[Subscription]


class PushTarget(delivery.PushTarget, frozen=True):
    """A subscription to deliver, with a raw push configuration."""

    push_config: dict[str, Any]  # type: ignore[assignment]


class PushLease(delivery.Lease, frozen=True):
    """Lease of deliveries, for so many seconds from the request; `targets` None: as in the previous lease."""

    targets: Sequence[PushTarget] | None = None


get_subscription = partial(call_of, "subscriptions:show", Subscription)
detach_subscription = partial(call_of, "subscriptions:detach", NoneType)
"""Detach a parallel subscription from its topic, permanently."""
delete_subscription = partial(call_of, "subscriptions:delete", NoneType)
"""Remove a subscription and its cursor."""
get_subscription_acl = partial(call_of, "subscriptions:acl", Acl)
"""Get the users who may consume."""
verify_push_endpoint = partial(call_of, "subscriptions:verifyPushEndpoint", NoneType)
"""Verify the push endpoint by its verification hash; delivery begins after that."""
get_offsets = partial(call_of, "subscriptions:offsets", wire.Offsets)
"""Get the subscription's offset and the bounds of its topic."""
diagnose = partial(call_of, "subscriptions:doctor", Diagnosis)
"""Diagnose why no messages arrive."""
get_push_status = partial(call_of, "subscriptions:pushStatus", delivery.PushReport)
"""Get the push status of a subscription; `Conflict` for a pull subscription."""


def list_subscriptions(project: str, *, page_size: int = 0, page_token: str = "") -> Call[Subscriptions]:
    """Ask for the subscriptions of a project that the caller may see."""
    return call_of("subscriptions:list", Subscriptions, project, query=page(page_size, page_token))


def create_subscription(
    project: str,
    subscription: str,
    topic: str,
    *,
    ack_deadline: int | None = None,
    push: delivery.PushConfigBody | None = None,
    parallel: wire.ParallelOptions | None = None,
) -> Call[Subscription]:
    """Subscribe to a topic of the project, from its end on; the deadline in seconds, absent = the service's 10.

    `parallel` are the options of a parallel subscription; without them it is an ordered one.
    """
    reference = f"projects/{project}/topics/{check_name('topic', topic)}"
    options = {} if parallel is None else {"type": "parallel", **msgspec.structs.asdict(parallel)}
    body = wire.NewSubscription(topic=reference, ack_deadline_seconds=ack_deadline, push_config=push, **options)
    return call_of("subscriptions:create", Subscription, project, subscription, body=body)


def update_subscription(project: str, subscription: str, changes: wire.SubscriptionChanges) -> Call[Subscription]:
    """Change options of a parallel subscription; None resets an option to its default."""
    return call_of("subscriptions:update", Subscription, project, subscription, body=changes)


def change_subscription_acl(
    project: str, subscription: str, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> Call[Acl]:
    """Add users to those who may consume and remove others; returns the list."""
    body = AccessListChange(list(add), list(remove))
    return call_of("subscriptions:changeAcl", Acl, project, subscription, body=body, repeatable=True)


def modify_subscription_acl(project: str, subscription: str, users: Sequence[str]) -> Call[None]:
    """Set the users who may consume; replaces the list, and an empty one closes the subscription to consumers."""
    return call_of("subscriptions:modifyAcl", NoneType, project, subscription, body=NewAccessList(list(users)))


def modify_ack_deadline(project: str, subscription: str, seconds: int) -> Call[None]:
    """Change the ack deadline, 0 to 600 seconds after a pull."""
    return call_of("subscriptions:modifyAckDeadline", NoneType, project, subscription, body=wire.AckDeadline(seconds))


def modify_push_config(project: str, subscription: str, push: delivery.PushConfigBody | None) -> Call[None]:
    """Replace the push configuration; None makes it a pull subscription."""
    body = delivery.NewPushConfig(push or delivery.PushConfigBody())
    return call_of("subscriptions:modifyPushConfig", NoneType, project, subscription, body=body)


def rotate_push_secret(project: str, subscription: str, *, keep_seconds: int | None = None) -> Call[delivery.NewSecret]:
    """Get a new signing secret; the previous one stays valid for `keep_seconds`, default the service's day."""
    body = delivery.SecretRotation(keep_seconds)
    return call_of("subscriptions:rotatePushSecret", delivery.NewSecret, project, subscription, body=body)


def dead_letter(
    project: str, subscription: str, ack_id: str, *, reason: str, attempts: int, status: int, wait: int | None = None
) -> Call[None]:
    """Put the next message into the dead letter topic and acknowledge it, once however often this is sent.

    Of a parallel subscription: note that a message has failed. It comes again after `wait` milliseconds, unless the
    subscription says how long.
    """
    body = delivery.DeadLetter(ack_id, reason, attempts, status, wait)
    return call_of("subscriptions:deadLetter", NoneType, project, subscription, body=body, repeatable=True)


def time_to_offset(project: str, subscription: str, moment: datetime) -> Call[wire.OffsetAt]:
    """Ask for the first message published at `moment` (with a time zone) or later; `Conflict` when there is none."""
    return call_of("subscriptions:timeToOffset", wire.OffsetAt, project, subscription, query={"time": zulu(moment)})


def modify_offset(project: str, subscription: str, offset: int) -> Call[None]:
    """Move the subscription: back to replay, forward to skip."""
    return call_of("subscriptions:modifyOffset", NoneType, project, subscription, body=wire.NewOffset(offset))


def seek(
    project: str,
    subscription: str,
    *,
    offset: int | None = None,
    time: datetime | None = None,
    snapshot: str | None = None,
) -> Call[wire.Offsets]:
    """Move the subscription in one step: to `offset`, to the first message published at `time` or later, or, a parallel
    one, to where it stood when `snapshot` was made.

    Give one of them; a time has a time zone. One before the oldest kept message leads to that one, one after the
    last to the end.
    """
    body = wire.Seek(zulu(time) if time else None, offset, snapshot)
    return call_of("subscriptions:seek", wire.Offsets, project, subscription, body=body)


def pull(project: str, subscription: str, *, max_messages: int = 1, wait: bool = True) -> Call[Received]:
    """Ask for the next messages; with `wait`, the service answers only when there is one, or after a few seconds.

    Both values travel as text, as every known client sends them (clients.md, R3). A pull moves nothing: asked again,
    it returns the same messages.
    """
    body = PullBody(str(max_messages), "false" if wait else "true")
    return call_of("subscriptions:pull", Received, project, subscription, body=body, repeatable=True)


def acknowledge(project: str, subscription: str, ack_ids: Sequence[str]) -> Call[None]:
    """Say that everything up to the largest of these ids is done; saying it again changes nothing (M12, A1).

    Of a parallel subscription, each of the ids is, and no other.
    """
    body = AckBody(list(ack_ids))
    return call_of("subscriptions:acknowledge", NoneType, project, subscription, body=body, repeatable=True)


def nack(
    project: str, subscription: str, ack_ids: Sequence[str], *, delay: int | None = None, failed: bool = True
) -> Call[None]:
    """Give messages of a parallel subscription back, to come again after so many seconds, 0 to 600.

    Absent = as its retry policy says. It counts as a failure, unless they have not `failed`: then there is no delay.
    Asked again, the ids come too late.
    """
    body = wire.Nack(list(ack_ids), delay, None if failed else False)
    return call_of("subscriptions:nack", NoneType, project, subscription, body=body, repeatable=True)


def extend(project: str, subscription: str, ack_ids: Sequence[str], seconds: int) -> Call[None]:
    """Extend leases of a parallel subscription to end so many seconds from now, 0 to 600; 0 releases them."""
    body = wire.AckDeadline(seconds, list(ack_ids))
    return call_of("subscriptions:modifyAckDeadline", NoneType, project, subscription, body=body, repeatable=True)


def extend_leases(project: str, subscription: str, ack_ids: Sequence[str], seconds: int) -> Call[None]:
    """Do what `extend` does, for a worker that delivers."""
    body = wire.AckDeadline(seconds, list(ack_ids))
    return call_of("subscriptions:extendLeases", NoneType, project, subscription, body=body, repeatable=True)


def ack_id(project: str, subscription: str, offset: int) -> str:
    """Return the id that acknowledges the message at `offset` (contract 2)."""
    return f"projects/{project}/subscriptions/{subscription}:{offset}"


def zulu(moment: datetime) -> str:
    """Write a time in the format of timeToOffset: UTC, three digits of a second (contract 11.4)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lease_push(
    holder: str,
    held: Sequence[str],
    *,
    states: Mapping[str, delivery.WorkerState] | None = None,
    leaving: bool = False,
    version: str = "",
) -> Call[PushLease]:
    """Send a heartbeat with the ids of subscriptions that a process delivers; get the new list.

    `holder` is a name of its own (at most 64 letters, digits, `.`, `_`, `:` and `-`), another one at each start;
    `states` are how deliveries go, of which the first `MAX_STATES` are sent; `version` is that of the targets it has.
    """
    first = dict(islice((states or {}).items(), delivery.MAX_STATES))
    body = delivery.BeatBody(holder, list(held), first, leaving, version)
    return call_of("push:lease", PushLease, body=body)


def list_snapshots(project: str, *, page_size: int = 0, page_token: str = "") -> Call[wire.Snapshots]:
    """Ask for the snapshots of a project."""
    return call_of("snapshots:list", wire.Snapshots, project, query=page(page_size, page_token))


get_snapshot = partial(call_of, "snapshots:show", wire.Snapshot)
"""Ask for one snapshot; `NotFound` when it has expired."""


def create_snapshot(project: str, snapshot: str, subscription: str) -> Call[wire.Snapshot]:
    """Make a snapshot of a parallel subscription's position."""
    body = wire.NewSnapshot(check_name("subscription", subscription))
    return call_of("snapshots:create", wire.Snapshot, project, snapshot, body=body)


delete_snapshot = partial(call_of, "snapshots:delete", NoneType)
