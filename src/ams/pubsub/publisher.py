"""The service Publisher: topics, and publishing."""

from dataclasses import dataclass

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import SchemaName, SubscriptionName, TopicName
from ams.pubsub import fields, messages, resources
from ams.pubsub import protos as pb
from ams.pubsub.calls import PubsubCall
from ams.pubsub.errors import name_missing
from ams.pubsub.fields import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, PubsubName
from ams.pubsub.protos import Message
from ams.pubsub.schemas import ENCODINGS
from ams.service.publishing import Publisher
from ams.service.retention import Retention
from ams.service.schemas import Schemas
from ams.service.subscription_offsets import Snapshots
from ams.service.subscriptions import Subscriptions
from ams.service.topics import Topics
from ams.storage.registry.records import ANY_USE, SchemaUse

NAME = "google.pubsub.v1.Publisher"


@dataclass(frozen=True, slots=True)
class PublisherRpcs:
    """Methods of the service Publisher."""

    _topics: Topics
    _publisher: Publisher
    _retention: Retention
    _subscriptions: Subscriptions
    _snapshots: Snapshots
    _schemas: Schemas
    _most_bytes: int  # of a publish request, and so of one message

    async def create_topic(self, call: PubsubCall, topic: Message) -> Message:
        """Make a topic."""
        fields.check_new_name(call.name)
        fields.refuse(topic, resources.TOPIC_REFUSED)
        labels, retention = fields.labels(topic.labels), resources.read_retention(topic)
        name = TopicName(call.name.leaf)
        schema, use = await self._asked_schema(call, topic)
        if retention is not None:
            await call.may("topics:modifyRetention")
        kept = None if retention is None else Milliseconds(retention // 1000 * 1000)
        made = await self._topics.create(call.caller, name, schema, use, labels=labels, retention=kept)
        return resources.topic_message(call.project, made)

    async def update_topic(self, call: PubsubCall, request: Message) -> Message:
        changed = fields.mask(request, "Topic", resources.TOPIC_CHANGES)
        fields.refuse(request.topic, resources.TOPIC_REFUSED)
        name = TopicName(call.name.leaf)
        topic = await self._topics.show(call.caller, name)
        wanted = fields.merge(resources.topic_message(call.project, topic), request.topic, request.update_mask)
        labels, retention = fields.labels(wanted.labels), resources.read_retention(wanted)
        if "schema_settings" in changed:
            schema, use = await self._asked_schema(call, wanted)
            await call.may("topics:attachSchema" if schema else "topics:detachSchema")
            topic = await self._topics.attach_schema(call.caller, name, schema, use)
        if "labels" in changed:
            topic = await self._topics.set_labels(call.caller, name, labels)
        if "message_retention_duration" in changed:
            topic = await self._retention.of_topic(call.caller, name, (retention or 0) // 1000)
        return resources.topic_message(call.project, topic)

    async def get_topic(self, call: PubsubCall, request: Message) -> Message:
        topic = await self._topics.show(call.caller, TopicName(call.name.leaf))
        return resources.topic_message(call.project, topic)

    async def _asked_schema(self, call: PubsubCall, topic: Message) -> tuple[str, SchemaUse]:
        """Return the schema a request wants for a topic, and its use; raise `InvalidInput`, `Missing`."""
        settings = topic.schema_settings
        if not topic.HasField("schema_settings") or not settings.ByteSize():
            return "", ANY_USE
        leaf = fields.name_in(settings.schema, call.project, SCHEMAS)
        encoding = ENCODINGS.get(settings.encoding, "")
        if not encoding:
            raise InvalidInput("The encoding of the schema must be JSON or BINARY (argument=schema_settings.encoding).")
        with name_missing(leaf):
            await self._schemas.show(call.caller, SchemaName(leaf))
            ids = (settings.first_revision_id, settings.last_revision_id)
            first, last = [
                (await self._schemas.revision_by_id(call.caller, SchemaName(leaf), each)).revision if each else None
                for each in ids
            ]
        return settings.schema, SchemaUse(encoding, first, last)

    async def list_topics(self, call: PubsubCall, request: Message) -> Message:
        page = await self._topics.list(call.caller, fields.page_request(request))
        shown = [resources.topic_message(call.project, each) for each in page.items]
        return pb.ListTopicsResponse(topics=shown, next_page_token=page.next_token)

    async def list_topic_subscriptions(self, call: PubsubCall, request: Message) -> Message:
        topic, wanted = TopicName(call.name.leaf), fields.page_request(request)
        page = await self._topics.attached_subscriptions(call.caller, topic, wanted)
        shown = [PubsubName(call.project, SUBSCRIPTIONS, each).path for each in page.items]
        return pb.ListTopicSubscriptionsResponse(subscriptions=shown, next_page_token=page.next_token)

    async def list_topic_snapshots(self, call: PubsubCall, request: Message) -> Message:
        page = await self._snapshots.of_topic(call.caller, TopicName(call.name.leaf), fields.page_request(request))
        shown = [PubsubName(call.project, SNAPSHOTS, each).path for each in page.items]
        return pb.ListTopicSnapshotsResponse(snapshots=shown, next_page_token=page.next_token)

    async def delete_topic(self, call: PubsubCall, request: Message) -> Message:
        await self._topics.delete(call.caller, TopicName(call.name.leaf))
        return pb.Empty()

    async def detach_subscription(self, call: PubsubCall, request: Message) -> Message:
        await self._subscriptions.detach(call.caller, SubscriptionName(call.name.leaf))
        return pb.DetachSubscriptionResponse()

    async def publish(self, call: PubsubCall, request: Message) -> Message:
        topic = await self._publisher.topic(call.caller, TopicName(call.name.leaf))
        appended = await self._publisher.publish(
            topic, messages.messages_to_publish(request, self._most_bytes), project=call.project, is_measured=True
        )
        ids = [str(each) for each in range(appended.first, appended.first + appended.count)]
        return pb.PublishResponse(message_ids=ids)
