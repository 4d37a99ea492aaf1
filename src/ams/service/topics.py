"""Administration of topics (HTTP contract 8)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ams.access.admission import Caller
from ams.access.permissions import PUBLISHER
from ams.core import iam
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, AmsError, InvalidInput, NotFound, TopicGone, Unavailable, refuse_if
from ams.core.names import SchemaName, SubscriptionName, TopicName, UserName, new_topic_id, schema_reference
from ams.core.quotas import TOPICS
from ams.service.leftovers import drop_or_leave, finish_or_leave
from ams.service.lookup import find_topic, require_found, without_access_list
from ams.service.retention import Retention
from ams.service.tallies import Counting
from ams.storage.log.base import Log
from ams.storage.registry.records import ANY_USE, NO_LABELS, Page, PageRequest, SchemaUse, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.schemas import NO_REVISION, NO_SCHEMA
from ams.wire.projects import Acl

ENCODINGS = ("JSON", "BINARY")


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of the caller's project."""

    registry: Registry
    log: Log
    counting: Counting
    retention: Retention
    changed: Callable[[], Awaitable[None]] | None = None  # updates a push server when a topic is created or deleted

    async def list(self, caller: Caller, page: PageRequest) -> Page[Topic]:
        """Return a page of topics, newest first, of a publisher's access lists (contract 3.5); raise `InvalidInput`."""
        return await self.registry.topics.page(caller.here.id, page, listed=caller.filters_by(PUBLISHER))

    async def show(self, caller: Caller, name: TopicName) -> Topic:
        """Return a topic; raise `NotFound` when there is none."""
        return await find_topic(self.registry, caller, name)

    async def create(
        self, caller: Caller, name: TopicName, schema: str = "", use: SchemaUse = ANY_USE, *,
        labels: Mapping[str, str] = NO_LABELS, retention: Milliseconds | None = None,
    ) -> Topic:  # fmt: skip
        """Create a topic: first the log, so that a registered topic can always be published to.

        `schema` is a reference, empty for none; without `retention` it follows its project. Raises as `attach_schema`,
        `AlreadyExists`, `QuotaExceeded`.
        """
        attached = await self._schema(caller, schema, use) if schema else None
        if await self.registry.topics.find(caller.here.id, name) is not None:
            raise AlreadyExists("Topic already exists")
        await self.registry.quotas.require_room(caller.here.id, {TOPICS: 1})
        identity = new_topic_id()
        await self.log.create(identity, retention or caller.here.retention, label=f"{caller.here.name}.{name}")
        made = Topic(identity, caller.here.id, name, None, retention, self.registry.shared.clock.wall(), labels=labels)
        try:
            topic = await self.registry.topics.create(made, attached, use)
        except Unavailable:
            raise  # It may be registered. If it is not, the sweep at the next start removes its log.
        except AmsError:
            await self.log.drop(identity)
            raise
        if retention is None:
            await self.retention.of_new_topic(caller, identity)
        await finish_or_leave(self._tell(caller, name), "push")
        return topic

    async def delete(self, caller: Caller, name: TopicName) -> None:
        """Delete a topic and its messages; subscriptions and the project's counters stay. Raises `NotFound`."""
        topic = await self.show(caller, name)
        await self.registry.idempotency.delete_old_claims([topic.id])
        async with self.counting.last_days(topic) as days:
            expected = caller.expected.seen_by(without_access_list)
            require_found(await self.registry.topics.delete(topic, days, expected), TopicGone)
            # In the block: a publish that waits for its end must not find the log of a topic that is gone.
            await drop_or_leave(self.log.drop, topic.id)
        await finish_or_leave(self._tell(caller, name), "push")

    async def subscriptions_of(self, caller: Caller, name: TopicName) -> Sequence[SubscriptionName]:
        """Return the subscriptions of a topic, oldest first; raise `NotFound`."""
        await self.show(caller, name)
        return await self.registry.subscriptions.of_topic(caller.here.id, name)

    async def attached_subscriptions(
        self, caller: Caller, name: TopicName, page: PageRequest
    ) -> Page[SubscriptionName]:
        """Return a page of the topic's subscriptions that are not detached, newest first; raise `NotFound`."""
        await self.show(caller, name)
        return await self.registry.subscriptions.page_of_topic(caller.here.id, name, page)

    async def set_labels(self, caller: Caller, name: TopicName, labels: Mapping[str, str]) -> Topic:
        """Replace the labels; return the topic as it is then. Raises `NotFound`."""
        return require_found(await self.registry.topics.set_labels(caller.here.id, name, labels), TopicGone)

    async def access_list(self, caller: Caller, name: TopicName) -> Acl:
        """Return the access list, and IAM bindings of Google's clients that have no effect. Raises `NotFound`."""
        await self.show(caller, name)
        listed = await self.registry.topics.access_list(caller.here.id, name)
        return Acl(listed, iam.lines(await self.registry.policies.find("topics", caller.here.id, name)))

    async def change_access_list(
        self, caller: Caller, name: TopicName, add: Sequence[str], remove: Collection[str] | None = None
    ) -> Sequence[UserName]:
        """Add users and remove others, None: all others; return the list. Raises `NotFound`, first for a non-member."""
        return await self.registry.topics.change_access_list(caller.here.id, name, add, remove, caller.expected)

    async def attach_schema(self, caller: Caller, name: TopicName, schema: str, use: SchemaUse = ANY_USE) -> Topic:
        """Check messages by a schema from the next publish on; an empty reference detaches. Returns the topic.

        Raises, in this order: `NotFound` for the topic, `InvalidInput` for the reference and the encoding, `NotFound`
        for the schema and the revisions, `InvalidInput` for a first one after the last.
        """
        await self.show(caller, name)
        attached = await self._schema(caller, schema, use) if schema else None
        expected = caller.expected.seen_by(without_access_list)
        return await self.registry.topics.set_schema(caller.here.id, name, attached, use, expected)

    async def _tell(self, caller: Caller, name: TopicName) -> None:
        if self.changed is not None and await self.registry.subscriptions.of_topic(caller.here.id, name):
            await self.changed()

    async def _schema(self, caller: Caller, reference: str, use: SchemaUse) -> SchemaName:
        name = schema_reference(caller.here.name, reference)
        encoding, first, last = use
        refuse_if(encoding and encoding not in ENCODINGS, f"The encoding of a schema is one of {', '.join(ENCODINGS)}")
        schema = require_found(await self.registry.schemas.find(caller.here.id, name), NotFound(NO_SCHEMA))
        refuse_if(encoding == "BINARY" and schema.content.type == "json", "A schema of type json has the encoding JSON")
        for number in (first, last):
            if number is not None:
                require_found(await self.registry.schemas.revision(schema.id, number), NotFound(NO_REVISION))
        if first is not None and last is not None and first > last:
            raise InvalidInput("The first revision of a schema is newer than the last")
        return name
