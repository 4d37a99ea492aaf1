"""The service Subscriber, but for streams: subscriptions, snapshots, seeking, and single calls of consumers.

`Leases` finds the subscription of a consumer's call and settles ack ids, for streams too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from ams.access.permissions import CONSUMER
from ams.access.rates import QuotaSlots
from ams.core.ack_ids import AckId, AckIds, NeverGiven, ack_ids_of, exclude_ids, read_hand_out
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SnapshotName, SubscriptionName, TopicName
from ams.core.parallel_options import DeadLetterPolicy
from ams.core.push_config import AskedPush
from ams.pubsub import fields, messages, resources
from ams.pubsub import protos as pb
from ams.pubsub.calls import PubsubCall
from ams.pubsub.errors import PERMANENT, UNORDERED, FailedAckIds, Missing, name_missing
from ams.pubsub.fields import SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName
from ams.pubsub.messages import MAX_RESPONSE_BYTES
from ams.pubsub.protos import Message
from ams.pubsub.requests import AGENT, Scope
from ams.pubsub.resources import ORDERED, read_push, require_account
from ams.service.delivery import Deliverer
from ams.service.lookup import find_subscription, require_found
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.pulls import LeaseBatch
from ams.service.parallel.settlement import LateIds, holder_of
from ams.service.push.configurations import Pushing
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.service.subscriptions import Subscriptions
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

NAME = "google.pubsub.v1.Subscriber"
MAX_ID_BYTES = 524_288
ORDERED_SUBSCRIPTION = (
    "This subscription is an ordered one of AMS: it has one position for all its consumers and no leases of messages."
    " Use the AMS API for it, or a subscription of type parallel."
)
BAD_ID = "You have passed an invalid ack ID to the service (it is none that a message was given with)."


class Leases:
    """Finds the subscription of a consumer's call, and settles ack ids."""

    def __init__(self, deliverer: Deliverer, working: ParallelSubscriptions) -> None:
        self.deliverer, self.working = deliverer, working

    async def subscription(self, call: PubsubCall) -> Subscription:
        """Return a parallel subscription that the caller may consume. Raises `NotFound`, `Conflict`, `NotAllowed`."""
        found = await find_subscription(self.deliverer.registry, call.caller, SubscriptionName(call.name.leaf))
        if found.is_detached:
            raise Conflict(f"Subscription {call.name.path} is detached.")
        if found.push is not None:
            raise Conflict("This method is not supported for this subscription type.")
        found = await self.deliverer.to_acknowledge(call.caller, found.name)
        if found.parallel is None:
            raise Conflict(ORDERED_SUBSCRIPTION)
        return found

    async def acknowledge(self, call: PubsubCall, subscription: Subscription, ids: Sequence[str]) -> None:
        """Acknowledge messages. Late ids are ignored; with exactly-once delivery they raise `FailedAckIds`."""
        settle = partial(self.working.settler.acknowledge, subscription)
        await self._settle(call, subscription, ids, settle)

    async def extend(self, call: PubsubCall, subscription: Subscription, ids: Sequence[str], seconds: int) -> None:
        """Let leases end in so many `seconds`; 0 is a nack. Late ids as for `acknowledge`."""
        holder = holder_of(call.caller)
        settle = partial(self.working.settler.extend, subscription, seconds=seconds, holder=holder)
        await self._settle(call, subscription, ids, settle)

    async def _settle(
        self,
        call: PubsubCall,
        subscription: Subscription,
        ids: Sequence[str],
        settle: Callable[[AckIds], Awaitable[None]],
    ) -> None:
        """Settle each id independently. Raises `InvalidInput` for an unreadable id, before anything is done."""
        left = _read_ids(ids)
        failed: list[AckId] = []
        out_of_order: AbstractSet[AckId] = frozenset()
        while left:
            try:
                await settle(left)
                break
            except LateIds as late:  # the others are done
                failed += late.ids
                out_of_order = late.out_of_order
                break
            except NeverGiven as error:  # nothing is done
                failed += error.ids
                left = exclude_ids(left, error.ids)
        options = subscription.parallel
        if failed and options is not None and options.enable_exactly_once_delivery:
            reasons = {
                f"{each.offset}-{each.hand_out}": UNORDERED if each in out_of_order else PERMANENT for each in failed
            }
            raise FailedAckIds(reasons, ids, names_all=takes_long_errors(call.scope))


def _read_ids(ids: Sequence[str]) -> AckIds:
    if any(each.startswith("0") and not each.startswith("0-") for each in ids):  # another spelling of an id
        raise InvalidInput(BAD_ID)
    try:
        found = ack_ids_of("", ids)
        for hand_out in found:
            read_hand_out(hand_out)
    except InvalidInput:
        raise InvalidInput(BAD_ID) from None
    return found


def takes_long_errors(scope: Scope) -> bool:
    """Return whether a client accepts an error that names very many ids.

    Google's libraries accept it over TLS; without TLS most accept 8 KiB. The library for Java needs all ids in any
    case: it takes ids that an error does not name for settled.
    """
    is_java = any(b"grpc-java" in value for name, value in scope["headers"] if name in (b"user-agent", AGENT))
    return is_java or scope["scheme"] == "https"


def check_ids(request: Message, ids: Sequence[str]) -> None:
    """Raise `InvalidInput` without ids, and for a request that is too large."""
    if not ids:
        raise InvalidInput("You have not specified an ack ID in the request.")
    check_size(request)


def check_size(request: Message) -> None:
    """Raise `InvalidInput` for a request with too many ids."""
    if request.ByteSize() > MAX_ID_BYTES:
        raise InvalidInput(f"The request is too large: at most {MAX_ID_BYTES} bytes of ack IDs are allowed.")


@dataclass(frozen=True, slots=True)
class SubscriberRpcs:
    """Methods of the service Subscriber with one answer."""

    _registry: Registry
    _subscriptions: Subscriptions
    _snapshots: Snapshots
    _seeker: Seeker
    _pushing: Pushing
    _leases: Leases
    _waiting: QuotaSlots

    async def create_subscription(self, call: PubsubCall, asked: Message) -> Message:
        """Make a parallel subscription at the present end of a topic."""
        fields.check_new_name(call.name)
        fields.refuse(asked, resources.SUBSCRIPTION_REFUSED)
        (seconds, options), labels = resources.read_subscription(call.project, asked), fields.labels(asked.labels)
        push = read_push(asked.push_config, exactly_once=asked.enable_exactly_once_delivery)
        if push is not None:
            require_account(call.caller, call.project, push)
        topic = fields.name_in(asked.topic, call.project, TOPICS)
        found = await self._require_topic(call, topic)
        await self._require_letters(call, options.dead_letter_policy)
        name, path = SubscriptionName(call.name.leaf), PubsubName(call.project, TOPICS, topic).path
        made = await self._subscriptions.create(
            call.caller, name, path, seconds, push=push, options=options, labels=labels, takes_own=True
        )
        return resources.subscription_message(call.project, made, found)

    async def get_subscription(self, call: PubsubCall, request: Message) -> Message:
        return await self._show(call, await self._find(call))

    async def update_subscription(self, call: PubsubCall, request: Message) -> Message:
        changed = fields.mask(request, "Subscription", resources.SUBSCRIPTION_CHANGES)
        fields.refuse(request.subscription, resources.SUBSCRIPTION_REFUSED)
        before = await self._find(call)
        topic = await self._topic_of(before)
        shown = resources.subscription_message(call.project, before, topic)
        wanted = fields.merge(shown, request.subscription, request.update_mask)
        (seconds, options), labels = resources.read_subscription(call.project, wanted), fields.labels(wanted.labels)
        if before.parallel is None and not set(changed) <= {"labels", "ack_deadline_seconds"}:
            raise InvalidInput("An ordered subscription has labels and an ack deadline only.")
        push = None
        if not {"push_config", "enable_exactly_once_delivery"}.isdisjoint(changed):
            push = read_push(wanted.push_config, exactly_once=wanted.enable_exactly_once_delivery)
        if "ack_deadline_seconds" in changed:
            await call.may("subscriptions:modifyAckDeadline")
            call.caller.require_listed(before.authorized, CONSUMER)  # before anything is written
        if "push_config" in changed:
            await call.may("subscriptions:modifyPushConfig")
            await self._check_push(call, before, push)
        changes = resources.changed_options(options, changed)
        if "dead_letter_policy" in changes:
            await self._require_letters(call, options.dead_letter_policy)
        after, name = before, before.name
        if changes:
            after = await self._subscriptions.change(call.caller, name, changes, takes_own=True)
        if "ack_deadline_seconds" in changed:
            after = await self._subscriptions.modify_ack_deadline(call.caller, name, seconds)
        if "labels" in changed:
            after = await self._subscriptions.set_labels(call.caller, name, labels)
        if "push_config" in changed:
            after = await self._pushing.modify(call.caller, name, push)
        return resources.subscription_message(call.project, after, topic)

    async def modify_push_config(self, call: PubsubCall, request: Message) -> Message:
        """Deliver a subscription to another endpoint; an empty configuration makes it a pull subscription."""
        subscription = await self._find(call)
        options = subscription.parallel
        exactly_once = options is not None and options.enable_exactly_once_delivery
        push = read_push(request.push_config, exactly_once=exactly_once)
        await self._check_push(call, subscription, push)
        await self._pushing.modify(call.caller, subscription.name, push)
        return pb.Empty()

    async def list_subscriptions(self, call: PubsubCall, request: Message) -> Message:
        page = await self._subscriptions.list(call.caller, fields.page_request(request))
        shown = [await self._show(call, each) for each in page.items]
        return pb.ListSubscriptionsResponse(subscriptions=shown, next_page_token=page.next_token)

    async def delete_subscription(self, call: PubsubCall, request: Message) -> Message:
        await self._subscriptions.delete(call.caller, SubscriptionName(call.name.leaf))
        return pb.Empty()

    async def create_snapshot(self, call: PubsubCall, request: Message) -> Message:
        fields.check_new_name(call.name)
        subscription = fields.name_in(request.subscription, call.project, SUBSCRIPTIONS)
        with name_missing(subscription):
            await self._subscriptions.show(call.caller, SubscriptionName(subscription))
        made = await self._snapshots.create(
            call.caller, SnapshotName(call.name.leaf), subscription, labels=fields.labels(request.labels)
        )
        return resources.snapshot_message(call.project, made)

    async def get_snapshot(self, call: PubsubCall, request: Message) -> Message:
        found, _ = await self._snapshots.show(call.caller, SnapshotName(call.name.leaf))
        return resources.snapshot_message(call.project, found)

    async def update_snapshot(self, call: PubsubCall, request: Message) -> Message:
        changed = fields.mask(request, "Snapshot", ("labels", "expire_time"))
        wanted = fields.merge(pb.Snapshot(), request.snapshot, request.update_mask)
        labels, name = fields.labels(wanted.labels), SnapshotName(call.name.leaf)
        if "expire_time" in changed:
            after = await self._snapshots.set_expiry(call.caller, name, fields.moment(wanted.expire_time))
        if "labels" in changed:
            after = await self._snapshots.set_labels(call.caller, name, labels)
        return resources.snapshot_message(call.project, after)

    async def list_snapshots(self, call: PubsubCall, request: Message) -> Message:
        page = await self._snapshots.list(call.caller, fields.page_request(request))
        shown = [resources.snapshot_message(call.project, each) for each in page.items]
        return pb.ListSnapshotsResponse(snapshots=shown, next_page_token=page.next_token)

    async def delete_snapshot(self, call: PubsubCall, request: Message) -> Message:
        await self._snapshots.delete(call.caller, SnapshotName(call.name.leaf))
        return pb.Empty()

    async def seek(self, call: PubsubCall, request: Message) -> Message:
        name, target = SubscriptionName(call.name.leaf), request.WhichOneof("target")
        if target == "time":
            await self._seeker.seek_time(call.caller, name, fields.moment(request.time))
        elif target == "snapshot":
            await self._seeker.require(call.caller, name)
            snapshot = fields.name_in(request.snapshot, call.project, SNAPSHOTS)
            with name_missing(snapshot):
                await self._seeker.seek_snapshot(call.caller, name, SnapshotName(snapshot))
        else:
            raise InvalidInput("You have passed an invalid argument to the service (argument=target).")
        return pb.SeekResponse()

    async def pull(self, call: PubsubCall, request: Message) -> Message:
        if request.max_messages <= 0:
            raise InvalidInput("You have passed an invalid argument to the service (argument=max_messages).")
        subscription = await self._leases.subscription(call)
        working, deliverer = self._leases.working, self._leases.deliverer
        most, holder = min(request.max_messages, 1000), holder_of(call.caller)
        until = asyncio.get_running_loop().time() + deliverer.wait_seconds
        waits = not request.return_immediately

        def lease() -> Awaitable[Sequence[LeaseBatch]]:
            return working.puller.pull(
                subscription, most, holder=holder, held_for=call.project, wait=waits,
                max_bytes=MAX_RESPONSE_BYTES,
            )  # fmt: skip

        lots = await lease()
        if waits and not lots:
            with self._waiting.hold(call.caller.here):
                while not lots and await working.puller.wait(subscription, holder, until):
                    subscription = await self._leases.subscription(call._replace(caller=await call.again()))
                    lots = await lease()
        options = subscription.parallel
        counts = options is not None and options.dead_letter_policy is not None
        return pb.PullResponse(received_messages=messages.received_messages(lots, with_attempt=counts))

    async def acknowledge(self, call: PubsubCall, request: Message) -> Message:
        check_ids(request, request.ack_ids)
        subscription = await self._leases.subscription(call)
        await self._leases.acknowledge(call, subscription, request.ack_ids)
        return pb.Empty()

    async def modify_ack_deadline(self, call: PubsubCall, request: Message) -> Message:
        fields.check_ack_deadline(request.ack_deadline_seconds, 0)
        check_ids(request, request.ack_ids)
        subscription = await self._leases.subscription(call)
        await self._leases.extend(call, subscription, request.ack_ids, request.ack_deadline_seconds)
        return pb.Empty()

    async def _find(self, call: PubsubCall) -> Subscription:
        return await self._subscriptions.show(call.caller, SubscriptionName(call.name.leaf))

    async def _check_push(self, call: PubsubCall, subscription: Subscription, push: AskedPush | None) -> None:
        if subscription.parallel is None:
            raise Conflict(ORDERED)
        if push is None:
            return
        if subscription.is_detached:
            raise Conflict(f"Subscription {call.name.path} is detached.")
        require_account(call.caller, call.project, push, subscription.push)
        await self._pushing.for_creation(call.caller, subscription.topic, push, parallel=True)

    async def _show(self, call: PubsubCall, subscription: Subscription) -> Message:
        return resources.subscription_message(call.project, subscription, await self._topic_of(subscription))

    async def _topic_of(self, subscription: Subscription) -> Topic | None:
        return await self._registry.topics.find(subscription.project_id, subscription.topic)

    async def _require_topic(self, call: PubsubCall, topic: str) -> Topic:
        return require_found(await self._registry.topics.find(call.caller.here.id, TopicName(topic)), Missing(topic))

    async def _require_letters(self, call: PubsubCall, policy: DeadLetterPolicy | None) -> None:
        if policy is not None:
            await self._require_topic(call, policy.topic)
