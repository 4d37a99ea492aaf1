"""Topics and subscriptions in the registry."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, true, update

from ams.core.clock import Milliseconds
from ams.core.errors import NotFound, SubscriptionGone, TopicGone
from ams.core.names import (
    ProjectId,
    ProjectName,
    SchemaName,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
    UserId,
    topic_id,
    topic_id_text,
)
from ams.core.parallel_options import OptionsChange
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.core.quotas import SUBSCRIPTIONS, TOPICS
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.database import first
from ams.storage.database.invalidation import SCHEMA, SUBSCRIPTION, TOPIC
from ams.storage.registry import push, records, snapshots, tables
from ams.storage.registry.counts import TallyStep, add_to_project
from ams.storage.registry.policies import ResourceRecords
from ams.storage.registry.records import ANY_USE, NO_USERS, AttachedSchema, SchemaUse, Subscription, Topic
from ams.storage.registry.statements import RegistryContext, is_named, record
from ams.storage.registry.tables import memberships, projects, schemas, subscriptions, topic_schemas, topics
from ams.storage.registry.users import add_memberships

PushChange = Callable[[PushConfig | None], PushConfig | None]  # of the current one; if it raises, nothing changes


TOPICS_WITH_SCHEMA = (
    select(
        topics, schemas.c.id.label("schema_id"), schemas.c.name.label("schema_name"), schemas.c.revision,
        topic_schemas.c.encoding, topic_schemas.c.first_revision, topic_schemas.c.last_revision,
    )
    .outerjoin(topic_schemas, topic_schemas.c.topic_id == topics.c.id)
    .outerjoin(schemas, schemas.c.id == topic_schemas.c.schema_id)
)  # fmt: skip


class TopicRecords(ResourceRecords[Topic, TopicName]):
    """Topics by project and name."""

    _kind, _gone, _table, _access = TOPIC, TopicGone, topics, tables.topic_access
    _query = TOPICS_WITH_SCHEMA

    def __init__(self, shared: RegistryContext) -> None:
        super().__init__(shared)

        def forget_schema(schema: str) -> None:
            self._by_name.forget_where(lambda _, topic: topic.schema is not None and topic.schema.id == schema)

        shared.database.invalidations.on(SCHEMA, forget_schema)

    async def exists(self, topic: TopicId) -> bool:
        """Return whether a topic exists now. Not cached."""
        query = select(topics.c.number).where(topics.c.id == topic_id_text(topic))
        return await self._database.value(query) is not None

    async def ids(self) -> frozenset[TopicId]:
        """Return the identities of all topics."""
        return frozenset(await self._ids(true()))

    async def of_project(self, project: ProjectId) -> Sequence[TopicId]:
        """Return the identities of a project's topics."""
        return await self._ids(topics.c.project_id == project)

    async def owners(self) -> Mapping[TopicId, ProjectId]:
        """Return the project of every topic."""
        query = select(topics.c.id, topics.c.project_id)
        return dict(await self._database.rows(query, lambda row: (topic_id(row.id), row.project_id)))

    async def create(self, made: Topic, schema: SchemaName | None = None, use: SchemaUse = ANY_USE) -> Topic:
        """Register a topic; return it with its schema. Raises `AlreadyExists`, `QuotaExceeded`, `NotFound`."""
        text = topic_id_text(made.id)
        row = insert(topics).values(
            id=text, project_id=made.project_id, name=made.name, created_on=made.created_on, labels=made.labels,
            retention=made.retention,
        )  # fmt: skip

        def work(connection: Connection) -> Topic:
            connection.execute(row)
            self._quotas.require(connection, made.project_id, TOPICS)
            attached = _attach(connection, made.project_id, text, schema, use) if schema else None
            return replace(made, schema=attached)

        return await self._database.write(work)

    async def set_schema(
        self,
        project: ProjectId,
        name: TopicName,
        schema: SchemaName | None,
        use: SchemaUse = ANY_USE,
        expected: Precondition = ANY_VERSION,
    ) -> Topic:
        """Attach or detach a schema; return the topic. Raises `NotFound` for the topic, then the schema."""

        def work(connection: Connection) -> Topic:
            identity = connection.scalar(select(topics.c.id).where(self._is(project, name)))
            if identity is None:
                raise TopicGone
            expected.check(lambda: self._find(connection, project, name))
            connection.execute(delete(topic_schemas).where(topic_schemas.c.topic_id == identity))
            connection.execute(update(topics).where(topics.c.id == identity).values(deleted_schema=None))
            if schema:
                _attach(connection, project, identity, schema, use)
            changed = self._find(connection, project, name)
            assert changed is not None  # its row was changed just now
            return changed

        return await self._database.write(work, self._forget(project, name))

    async def set_retention(
        self, project: ProjectId, name: TopicName, retention: Milliseconds | None, expected: Precondition = ANY_VERSION
    ) -> Topic | None:
        """Change a topic's own age limit; return the topic, or None."""
        return await self._change(project, name, expected, retention=retention)

    async def without_retention(self, project: ProjectId) -> Sequence[TopicId]:
        """Return the topics of a project without their own age limit."""
        return await self._ids((topics.c.project_id == project) & topics.c.retention.is_(None))

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        """Return the age limit of a topic: its own, else its project's, else None; also None for a deleted topic."""
        query = _RETENTIONS.where(topics.c.id == topic_id_text(topic))
        return await self._database.row(query, lambda row: row.retention)

    async def retentions(self) -> Mapping[TopicId, Milliseconds | None]:
        """Return the age limit of every topic: its own, else its project's, else None."""
        return dict(await self._database.rows(_RETENTIONS, lambda row: (topic_id(row.id), row.retention)))

    async def delete(self, topic: Topic, last: Sequence[TallyStep] = (), expected: Precondition = ANY_VERSION) -> bool:
        """Delete a topic, and add its uncounted `last` messages to its project's days; return whether it existed."""
        removal = delete(topics).where(topics.c.id == topic_id_text(topic.id)).returning(topics.c.id)

        def work(connection: Connection) -> bool:
            expected.check(lambda: self._find(connection, topic.project_id, topic.name))
            add_to_project(connection, last)
            return connection.scalar(removal) is not None

        return await self._database.write(work, self._forget(topic.project_id, topic.name), large=True, grows=False)

    async def _ids(self, condition: ColumnElement[bool]) -> Sequence[TopicId]:
        return await self._database.rows(select(topics.c.id).where(condition), lambda row: topic_id(row.id))

    def _record(self, row: Row[Any], authorized: frozenset[UserId] = NO_USERS) -> Topic:
        schema = None
        if row.schema_id:
            use = SchemaUse(row.encoding or "", row.first_revision, row.last_revision)
            schema = AttachedSchema(row.schema_id, row.schema_name, row.revision, *use)
        return Topic(
            topic_id(row.id), row.project_id, row.name, schema, row.retention, row.created_on, authorized, row.labels,
            row.deleted_schema or "",
        )  # fmt: skip


def _attach(connection: Connection, project: ProjectId, topic: str, name: SchemaName, use: SchemaUse) -> AttachedSchema:
    row = connection.execute(select(schemas).where(is_named(schemas, project, name))).first()
    if row is None:
        raise NotFound("Schema doesn't exist")
    columns = use._asdict() | {"encoding": use.encoding or None}
    connection.execute(insert(topic_schemas).values(topic_id=topic, schema_id=row.id, **columns))
    return AttachedSchema(row.id, row.name, row.revision, *use)


_RETENTION = func.coalesce(topics.c.retention, projects.c.retention).label("retention")
_RETENTIONS: Select[Any] = select(topics.c.id, _RETENTION).join(projects)


class Title(NamedTuple):
    """Project and name of a subscription."""

    project: ProjectName
    name: SubscriptionName


class Expiring(NamedTuple):
    """A subscription that is deleted if it is unused for a time."""

    id: SubscriptionId
    title: Title
    ttl: Milliseconds
    noted: Milliseconds  # uses until then are stored
    used: Milliseconds  # last stored use, or creation


# Subscriptions that may expire.
PARALLEL = (
    select(
        subscriptions.c.id, projects.c.name.label("project"), subscriptions.c.name, subscriptions.c.parallel,
        subscriptions.c.created_on, subscriptions.c.used_on, tables.subscription_tallies.c.last_pull,
    )
    .join(projects)
    .outerjoin(tables.subscription_tallies)
    .where(subscriptions.c.parallel.is_not(None))
    .order_by(subscriptions.c.number)
)  # fmt: skip


class SubscriptionRecords(ResourceRecords[Subscription, SubscriptionName]):
    """Subscriptions by project and name."""

    _kind, _gone, _table, _access = SUBSCRIPTION, SubscriptionGone, subscriptions, tables.subscription_access
    _query = select(subscriptions)

    async def of_topic(self, project: ProjectId, topic: TopicName) -> Sequence[SubscriptionName]:
        """Return the names of all subscriptions to a topic's name, oldest first."""
        is_asked = (subscriptions.c.project_id == project) & (subscriptions.c.topic == topic)
        query = select(subscriptions.c.name).where(is_asked).order_by(subscriptions.c.number)
        return await self._database.rows(query, lambda row: row.name)

    async def page_of_topic(
        self, project: ProjectId, topic: TopicName, page: records.PageRequest
    ) -> records.Page[SubscriptionName]:
        """Return a page of the names of a topic's subscriptions, newest first, without detached ones."""
        is_asked = (subscriptions.c.project_id == project) & (subscriptions.c.topic == topic)
        query = select(subscriptions.c.number, subscriptions.c.name).where(is_asked & snapshots.IS_ATTACHED)
        return await self._page(query, subscriptions.c.number, page, lambda row: row.name)

    async def all(self) -> Sequence[Subscription]:
        """Return all subscriptions of all projects, oldest first, without access lists."""
        return await self._database.rows(select(subscriptions).order_by(subscriptions.c.number), self._record)

    async def ids(self, *, attached: bool = False) -> frozenset[SubscriptionId]:
        """Return the identities of all subscriptions; with `attached` without detached ones, which have no cursor."""
        query = select(subscriptions.c.id).where(snapshots.IS_ATTACHED if attached else true())
        return frozenset(await self._database.rows(query, lambda row: row.id))

    async def expiring(self) -> Sequence[Expiring]:
        """Return all subscriptions that expire when unused."""
        rows = await self._database.read(lambda connection: connection.execute(PARALLEL).all())
        return [
            Expiring(
                row.id, Title(row.project, row.name), row.parallel.expiration_ttl, row.used_on or row.created_on,
                max(row.created_on, row.used_on or 0, row.last_pull or 0),
            )
            for row in rows
            if row.parallel.expiration_ttl is not None
        ]  # fmt: skip

    async def note_uses(self, uses: Mapping[SubscriptionId, Milliseconds]) -> None:
        """Store the last uses of subscriptions; the latest of all nodes wins. Skips deleted subscriptions."""

        def work(connection: Connection) -> None:
            for identity, moment in uses.items():
                is_older = func.coalesce(subscriptions.c.used_on, 0) < moment
                change = update(subscriptions).where((subscriptions.c.id == identity) & is_older)
                connection.execute(change.values(used_on=moment))

        if uses:
            await self._database.write(work, grows=False)

    async def delete_unused(self, identity: SubscriptionId, since: Milliseconds) -> Subscription | None:
        """Delete a subscription if no use since `since` is stored; return its last state."""
        last = func.coalesce(subscriptions.c.used_on, subscriptions.c.created_on)
        found = await self._database.row(select(subscriptions).where(subscriptions.c.id == identity), self._record)
        if found is None:
            return None
        is_unused = (subscriptions.c.id == identity) & (last < since)
        removal = delete(subscriptions).where(is_unused).returning(*subscriptions.c)

        return await self._database.write(
            lambda connection: first(connection, removal, self._record),
            self._forget(found.project_id, found.name), grows=False,
        )  # fmt: skip

    async def titles(self, identities: Collection[SubscriptionId]) -> Mapping[SubscriptionId, Title]:
        """Return project and name of the subscriptions that exist."""
        query = select(subscriptions.c.id, projects.c.name.label("project"), subscriptions.c.name).join(projects)
        query = query.where(subscriptions.c.id.in_(identities))
        return dict(await self._database.rows(query, lambda row: (row.id, Title(row.project, row.name))))

    async def create(self, made: Subscription, worker: UserId | None = None) -> None:
        """Register a subscription; if its push configuration is verified, `worker` gets onto its access list.

        Raises `AlreadyExists`, `QuotaExceeded`, `NotFound` for the project.
        """
        row = insert(subscriptions).values(
            id=made.id, project_id=made.project_id, name=made.name, topic=made.topic, push=made.push,
            ack_deadline_seconds=made.ack_deadline_seconds, created_on=made.created_on, parallel=made.parallel,
            labels=made.labels,
        )  # fmt: skip

        def work(connection: Connection) -> None:
            connection.execute(row)
            self._quotas.require(connection, made.project_id, SUBSCRIPTIONS)
            if made.push is not None and made.push.verified:
                _place_worker(connection, made.project_id, made.id, worker, delivered=True)

        await self._database.write(work)

    async def set_ack_deadline(
        self, project: ProjectId, name: SubscriptionName, seconds: int, expected: Precondition = ANY_VERSION
    ) -> Subscription | None:
        """Change the deadline; return the subscription, or None."""
        return await self._change(project, name, expected, ack_deadline_seconds=seconds)

    async def change(
        self,
        project: ProjectId,
        name: SubscriptionName,
        expected: Precondition = ANY_VERSION,
        *,
        options: OptionsChange | None = None,
        config: PushChange | None = None,
        worker: UserId | None = None,
    ) -> Subscription:
        """Replace the options, or the push configuration with its secrets and the worker's access, atomically.

        Returns the subscription. Raises `SubscriptionGone`, then as the changes; then nothing has changed.
        """
        known = self._is(project, name)

        def work(connection: Connection) -> Subscription:
            row = connection.execute(select(subscriptions).where(known).with_for_update()).first()
            if row is None:
                raise SubscriptionGone
            expected.check(lambda: self._find(connection, project, name))
            values: dict[str, object] = {}
            if config is not None:
                values["push"] = after = config(row.push)
                _follow_push(connection, row, after, worker)
            if options is not None:
                values["parallel"] = options(row.parallel)
            connection.execute(update(subscriptions).where(known).values(values))
            changed = self._find(connection, project, name)
            assert changed is not None  # its row is locked
            return changed

        return await self._database.write(work, self._forget(project, name))

    async def place_worker(self, worker: UserId) -> None:
        """Add the worker to all access lists where it delivers. Call at the start, before anything is cached."""
        query = select(subscriptions).where(subscriptions.c.push.is_not(None))

        def work(connection: Connection) -> None:
            for row in connection.execute(query).all():
                if row.push.verified:
                    _place_worker(connection, row.project_id, row.id, worker, delivered=True)

        await self._database.write(work, grows=False)

    async def delete(
        self, project: ProjectId, name: SubscriptionName, expected: Precondition = ANY_VERSION
    ) -> Subscription | None:
        """Delete a subscription and its access list; return its last state, or None."""
        removal = delete(subscriptions).where(self._is(project, name)).returning(*subscriptions.c)

        def work(connection: Connection) -> Subscription | None:
            expected.check(lambda: self._find(connection, project, name))
            return first(connection, removal, self._record)

        return await self._database.write(work, self._forget(project, name), grows=False)

    def _record(self, row: Row[Any], authorized: frozenset[UserId] = NO_USERS) -> Subscription:
        return record(Subscription, row, authorized=authorized)


def _follow_push(connection: Connection, row: Row[Any], after: PushConfig | None, worker: UserId | None) -> None:
    if after is None or after.type != HTTP_ENDPOINT:
        push.forget_secrets(connection, row.id)
    is_delivered = after is not None and after.verified
    if is_delivered or (row.push and row.push.verified):
        _place_worker(connection, row.project_id, row.id, worker, delivered=is_delivered)


def _place_worker(
    connection: Connection, project: ProjectId, subscription: SubscriptionId, worker: UserId | None, *, delivered: bool
) -> None:
    """Add the worker to the access list, or remove it; without a worker do nothing (17.3, U2).

    The worker also needs a membership (HTTP contract 13.5); an existing member keeps its roles (17.3, U14).
    """
    if worker is None:
        return
    access = tables.subscription_access
    own = (access.c.resource_id == subscription) & (access.c.user_id == worker)
    if not delivered:
        connection.execute(delete(access).where(own))
        return
    known = select(memberships.c.number).where(memberships.c.user_id == worker, memberships.c.project_id == project)
    if connection.scalar(known) is None:
        add_memberships(connection, worker, {project: ()})
    if connection.scalar(select(access.c.user_id).where(own)) is None:
        last = connection.scalar(select(func.max(access.c.position)).where(access.c.resource_id == subscription))
        position = 0 if last is None else last + 1
        connection.execute(insert(access).values(resource_id=subscription, position=position, user_id=worker))
