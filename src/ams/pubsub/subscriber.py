"""The service Subscriber, but for streams: subscriptions, snapshots, seeking, and single calls of consumers."""

import asyncio
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from ams.access.permissions import CONSUMER
from ams.access.rates import QuotaSlots
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SnapshotName, SubscriptionName, TopicName
from ams.core.parallel_options import DeadLetterPolicy
from ams.core.push_config import AskedPush
from ams.pubsub import fields, messages, resources
from ams.pubsub import protos as pb
from ams.pubsub.calls import PubsubCall, Rpc, bind_change, bind_rpc
from ams.pubsub.errors import Missing, name_missing
from ams.pubsub.fields import SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName
from ams.pubsub.leases import MAX_RESPONSE_BYTES, Leases, check_ids, check_seconds
from ams.pubsub.protos import Message
from ams.pubsub.resources import ORDERED, read_push, require_account
from ams.service.lookup import require_found
from ams.service.parallel.pulls import LeaseBatch
from ams.service.parallel.settlement import holder_of
from ams.service.push.configurations import Pushing
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.service.subscriptions import Subscriptions
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

NAME = "google.pubsub.v1.Subscriber"
_PUSH = "subscriptions:modifyPushConfig"
_MAX_PULLED_MESSAGES = 1000


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

    def rpcs(self) -> list[Rpc]:
        return [
            bind_change("CreateSubscription", "subscriptions:create", self.create, _new),
            bind_rpc("GetSubscription", "subscriptions:show", self.get),
            bind_change("UpdateSubscription", "subscriptions:update", self.update),
            bind_change("ModifyPushConfig", _PUSH, self.modify_push),
            bind_rpc("ListSubscriptions", "subscriptions:list", self.list),
            bind_change("DeleteSubscription", "subscriptions:delete", self.delete),
            bind_change("CreateSnapshot", "snapshots:create", self.create_snapshot, _new_snapshot),
            bind_rpc("GetSnapshot", "snapshots:show", self.get_snapshot),
            bind_change("UpdateSnapshot", "snapshots:create", self.update_snapshot),
            bind_rpc("ListSnapshots", "snapshots:list", self.list_snapshots),
            bind_change("DeleteSnapshot", "snapshots:delete", self.delete_snapshot),
            bind_change("Seek", "subscriptions:seek", self.seek),
            bind_rpc("Pull", "subscriptions:pull", self.pull),
            bind_rpc("Acknowledge", "subscriptions:acknowledge", self.acknowledge),
            bind_rpc("ModifyAckDeadline", "subscriptions:acknowledge", self.modify_deadline),
        ]

    async def create(self, call: PubsubCall, asked: Message) -> Message:
        """Make a parallel subscription at the present end of a topic."""
        fields.check_new_name(call.name)
        fields.refuse(asked, resources.SUBSCRIPTION_REFUSED)
        wanted, labels = resources.read_subscription(call.project, asked), fields.labels(asked.labels)
        push = read_push(asked.push_config, exactly_once=asked.enable_exactly_once_delivery)
        if push is not None:
            require_account(call.caller, call.project, push)
        topic = fields.name_in(asked.topic, call.project, TOPICS)
        found = await self._require_topic(call, topic)
        await self._require_letters(call, wanted.options.dead_letter_policy)
        made = await self._subscriptions.create(
            call.caller,
            SubscriptionName(call.name.leaf),
            PubsubName(call.project, TOPICS, topic).path,
            wanted.ack_deadline_seconds,
            push=push,
            options=wanted.options,
            labels=labels,
            takes_own=True,
        )
        return resources.subscription_message(call.project, made, found)

    async def get(self, call: PubsubCall, request: Message) -> Message:
        return await self._show(call, await self._find(call))

    async def update(self, call: PubsubCall, request: Message) -> Message:
        changed = fields.mask(request, "Subscription", resources.SUBSCRIPTION_CHANGES)
        fields.refuse(request.subscription, resources.SUBSCRIPTION_REFUSED)
        before = await self._find(call)
        topic = await self._topic_of(before)
        shown = resources.subscription_message(call.project, before, topic)
        wanted = fields.merge(shown, request.subscription, request.update_mask)
        asked, labels = resources.read_subscription(call.project, wanted), fields.labels(wanted.labels)
        if before.parallel is None and not set(changed) <= {"labels", "ack_deadline_seconds"}:
            raise InvalidInput("An ordered subscription has labels and an ack deadline only.")
        push = None
        if not {"push_config", "enable_exactly_once_delivery"}.isdisjoint(changed):
            push = read_push(wanted.push_config, exactly_once=wanted.enable_exactly_once_delivery)
        if "ack_deadline_seconds" in changed:
            await call.may("subscriptions:modifyAckDeadline")
            call.caller.require_listed(before.authorized, CONSUMER)  # before anything is written
        if "push_config" in changed:
            await call.may(_PUSH)
            await self._check_push(call, before, push)
        changes = asked.changes(changed)
        if "dead_letter_policy" in changes:
            await self._require_letters(call, asked.options.dead_letter_policy)
        after, name = before, before.name
        if changes:
            after = await self._subscriptions.change(call.caller, name, changes, takes_own=True)
        if "ack_deadline_seconds" in changed:
            after = await self._subscriptions.modify_ack_deadline(call.caller, name, asked.ack_deadline_seconds)
        if "labels" in changed:
            after = await self._subscriptions.set_labels(call.caller, name, labels)
        if "push_config" in changed:
            after = await self._pushing.modify(call.caller, name, push)
        return resources.subscription_message(call.project, after, topic)

    async def modify_push(self, call: PubsubCall, request: Message) -> Message:
        """Deliver a subscription to another endpoint; an empty configuration makes it a pull subscription."""
        subscription = await self._find(call)
        options = subscription.parallel
        exactly_once = options is not None and options.enable_exactly_once_delivery
        push = read_push(request.push_config, exactly_once=exactly_once)
        await self._check_push(call, subscription, push)
        await self._pushing.modify(call.caller, subscription.name, push)
        return pb.Empty()

    async def list(self, call: PubsubCall, request: Message) -> Message:
        page = await self._subscriptions.list(call.caller, fields.page_request(request))
        shown = [await self._show(call, each) for each in page.items]
        return pb.ListSubscriptionsResponse(subscriptions=shown, next_page_token=page.next_token)

    async def delete(self, call: PubsubCall, request: Message) -> Message:
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
        most, holder = min(request.max_messages, _MAX_PULLED_MESSAGES), holder_of(call.caller)
        until = asyncio.get_running_loop().time() + deliverer.wait_seconds
        waits = not request.return_immediately

        def lease() -> Awaitable[Sequence[LeaseBatch]]:
            return working.puller.pull(
                subscription, most, holder=holder, held_for=call.project, wait=waits,
                max_bytes=MAX_RESPONSE_BYTES,
            )  # fmt: skip

        lots = await lease()
        if waits and not lots:
            with self._waiting.hold_slot(call.caller.here):
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

    async def modify_deadline(self, call: PubsubCall, request: Message) -> Message:
        check_seconds(request.ack_deadline_seconds)
        check_ids(request, request.ack_ids)
        subscription = await self._leases.subscription(call)
        await self._leases.extend(call, subscription, request.ack_ids, request.ack_deadline_seconds)
        return pb.Empty()

    async def _find(self, call: PubsubCall) -> Subscription:
        return await self._subscriptions.show(call.caller, SubscriptionName(call.name.leaf))

    async def _check_push(self, call: PubsubCall, subscription: Subscription, push: AskedPush | None) -> None:
        """Raise the errors of a change of the push configuration, before anything is changed."""
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


def _new(asked: Message) -> PubsubName:
    """Return the name of a new subscription; a random one if the request has none."""
    if asked.name:
        return fields.read_name(asked.name, SUBSCRIPTIONS)
    return fields.read_name(asked.topic, TOPICS)._replace(kind=SUBSCRIPTIONS, leaf=f"sub-{secrets.token_hex(8)}")


def _new_snapshot(request: Message) -> PubsubName:
    if request.name:
        return fields.read_name(request.name, SNAPSHOTS)
    subscription = fields.read_name(request.subscription, SUBSCRIPTIONS)
    return subscription._replace(kind=SNAPSHOTS, leaf=f"snap-{secrets.token_hex(8)}")
