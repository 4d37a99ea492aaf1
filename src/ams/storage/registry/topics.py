"""Topics in the registry."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, update

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import NotFound, TopicGone
from ams.core.names import ProjectId, SchemaName, TopicId, TopicName, UserId, UserName, topic_id, topic_id_text
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.database.invalidation import SCHEMA, TOPIC, Forget
from ams.storage.registry import access_lists
from ams.storage.registry.paging import Page, PageRequest, read_page
from ams.storage.registry.records import NOBODY, AttachedSchema, Topic
from ams.storage.registry.tables import projects, schemas, topic_access, topic_schemas, topics
from ams.storage.registry.tallies import Advance, add_to_project


class TopicRecords:
    """Topics by project and name."""

    def __init__(self, database: Database, clock: Clock, cache_size: int) -> None:
        self._database = database
        self._clock = clock
        self._by_name: Cache[tuple[str, str], Topic] = database.invalidations.new_cache(cache_size)
        self.known = self._by_name.known
        """Return a topic, by project and name, that is in memory; None says nothing: `find` does."""
        database.invalidations.on(TOPIC, lambda project, name: self._by_name.forget((project, name)))
        database.invalidations.on(SCHEMA, self._forget_schema)

    async def find(self, project: ProjectId, name: TopicName) -> Topic | None:
        """Return a topic with its access list, None when there is none; cached."""
        return await self._by_name.find(
            (project, name), lambda: self._database.read(lambda connection: _find(connection, project, name))
        )

    async def page(self, project: ProjectId, page: PageRequest, *, listed: UserId | None = None) -> Page[Topic]:
        """Return a page of a project's topics, newest first; with `listed`, those whose access list holds the user.

        Raises `InvalidInput` "Invalid page token".
        """
        query = _SELECT.where(topics.c.project_id == project)
        if listed is not None:
            query = query.where(topics.c.number.in_(access_lists.holding(topics, topic_access, listed)))
        return await self._database.read(
            lambda connection: read_page(connection, query, topics.c.number, page).map(_topic)
        )

    async def exists(self, topic: TopicId) -> bool:
        """Whether a topic is there now; never answered from what was read before."""
        query = select(topics.c.number).where(topics.c.id == topic_id_text(topic))
        return await self._database.read(lambda connection: connection.scalar(query)) is not None

    async def ids(self) -> frozenset[TopicId]:
        """Return the identities of all topics."""
        query = select(topics.c.id)
        return await self._database.read(
            lambda connection: frozenset(topic_id(text) for text in connection.scalars(query))
        )

    async def of_project(self, project: ProjectId) -> Sequence[TopicId]:
        """Return the identities of a project's topics."""
        query = select(topics.c.id).where(topics.c.project_id == project)
        texts = await self._database.read(lambda connection: connection.scalars(query).all())
        return [topic_id(text) for text in texts]

    async def create(
        self, identity: TopicId, project: ProjectId, name: TopicName, schema: SchemaName | None = None
    ) -> Topic:
        """Register a topic, with a schema attached if one is named.

        Raises `AlreadyExists` when the name is taken, `NotFound` when the project or the schema is gone.
        """
        now = self._clock.wall()
        row = insert(topics).values(id=topic_id_text(identity), project_id=project, name=name, created_on=now)

        def work(connection: Connection) -> Topic:
            connection.execute(row)
            attached = _attach(connection, project, topic_id_text(identity), schema) if schema else None
            return Topic(identity, project, name, attached, None, now)

        return await self._database.write(work)

    async def set_schema(self, project: ProjectId, name: TopicName, schema: SchemaName | None) -> None:
        """Attach a schema instead of the one there was, or none; raise `NotFound` for the topic, then the schema."""

        def work(connection: Connection) -> None:
            identity = connection.scalar(select(topics.c.id).where(_is(project, name)))
            if identity is None:
                raise TopicGone
            connection.execute(delete(topic_schemas).where(topic_schemas.c.topic_id == identity))
            if schema:
                _attach(connection, project, identity, schema)

        await self._database.write(work, _forget(project, name))

    async def set_retention(self, project: ProjectId, name: TopicName, retention: Milliseconds | None) -> Topic | None:
        """Change a topic's own age limit; return the topic, None when there is none."""
        change = update(topics).where(_is(project, name)).values(retention=retention)

        def work(connection: Connection) -> Topic | None:
            connection.execute(change)
            return _find(connection, project, name)

        return await self._database.write(work, _forget(project, name))

    async def without_retention(self, project: ProjectId) -> Sequence[TopicId]:
        """Return the topics of a project that have no age limit of their own."""
        query = select(topics.c.id).where(topics.c.project_id == project, topics.c.retention.is_(None))
        texts = await self._database.read(lambda connection: connection.scalars(query).all())
        return [topic_id(text) for text in texts]

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        """Return the age limit of a topic: its own, else its project's; None where neither has one, or it is gone."""
        query = _RETENTIONS.where(topics.c.id == topic_id_text(topic))
        row = await self._database.read(lambda connection: connection.execute(query).first())
        return row.retention if row else None

    async def retentions(self) -> Mapping[TopicId, Milliseconds | None]:
        """Return the age limit of every topic: its own, else its project's; None where neither has one."""
        rows = await self._database.read(lambda connection: connection.execute(_RETENTIONS).all())
        return {topic_id(identity): limit for identity, limit in rows}

    async def delete(self, topic: Topic, last: Sequence[Advance] = ()) -> bool:
        """Remove a topic and its access list, and add its `last` messages to its project's days; False if it is gone.

        Messages that another node has counted since `last` was worked out are not added again.

        A topic that was made again under its name is another one and stays.
        """
        removal = delete(topics).where(topics.c.id == topic_id_text(topic.id)).returning(topics.c.id)

        def work(connection: Connection) -> bool:
            add_to_project(connection, last)
            return connection.scalar(removal) is not None

        return await self._database.write(work, _forget(topic.project_id, topic.name), large=True)

    async def access_list(self, project: ProjectId, name: TopicName) -> Sequence[UserName]:
        """Return the names on a topic's access list, in stored order."""
        return await self._database.read(
            lambda connection: access_lists.names(connection, topic_access, _is(project, name))
        )

    async def set_access_list(self, project: ProjectId, name: TopicName, users: Sequence[str]) -> None:
        """Replace a topic's access list; raise `NotFound` for users who are no members, then for the topic."""

        def work(connection: Connection) -> None:
            listed = access_lists.members(connection, project, users)
            identity = connection.scalar(select(topics.c.id).where(_is(project, name)))
            if identity is None:
                raise TopicGone
            access_lists.replace(connection, topic_access, identity, listed)

        await self._database.write(work, _forget(project, name))

    def _forget_schema(self, schema: str) -> None:
        self._by_name.forget_where(lambda _, topic: topic.schema is not None and topic.schema.id == schema)


def _forget(project: ProjectId, name: str) -> Forget:
    return Forget(TOPIC, (project, name))


def _is(project: ProjectId, name: TopicName) -> ColumnElement[bool]:
    return (topics.c.project_id == project) & (topics.c.name == name)


def _attach(connection: Connection, project: ProjectId, topic: str, name: SchemaName) -> AttachedSchema:
    """Attach a schema of the project to a topic that has none; raise `NotFound`."""
    known = select(schemas).where((schemas.c.project_id == project) & (schemas.c.name == name))
    row = connection.execute(known).first()
    if row is None:
        raise NotFound("Schema doesn't exist")
    connection.execute(insert(topic_schemas).values(topic_id=topic, schema_id=row.id))
    return AttachedSchema(row.id, row.name, row.revision)


_RETENTIONS: Select[Any] = select(
    topics.c.id, func.coalesce(topics.c.retention, projects.c.retention).label("retention")
).join(projects, projects.c.id == topics.c.project_id)
_SELECT: Select[Any] = (
    select(topics, schemas.c.id.label("schema_id"), schemas.c.name.label("schema_name"), schemas.c.revision)
    .outerjoin(topic_schemas, topic_schemas.c.topic_id == topics.c.id)
    .outerjoin(schemas, schemas.c.id == topic_schemas.c.schema_id)
)


def _find(connection: Connection, project: ProjectId, name: TopicName) -> Topic | None:
    row = connection.execute(_SELECT.where(_is(project, name))).first()
    return _topic(row, access_lists.authorized(connection, topic_access, row.id)) if row else None


def _topic(row: Row[Any], authorized: frozenset[UserId] = NOBODY) -> Topic:
    schema = AttachedSchema(row.schema_id, row.schema_name, row.revision) if row.schema_id else None
    return Topic(topic_id(row.id), row.project_id, row.name, schema, row.retention, row.created_on, authorized)
