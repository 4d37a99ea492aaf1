"""Schemas in the registry, and their revisions."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from ams.core.errors import AlreadyExists, InvalidInput, NotFound
from ams.core.names import ProjectId, SchemaId, SchemaName, new_uuid
from ams.core.quotas import REVISION_BYTES, SCHEMA_BYTES, SCHEMAS
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.database import first
from ams.storage.database.invalidation import SCHEMA, Invalidation
from ams.storage.registry.records import Schema, SchemaContent
from ams.storage.registry.statements import Records, is_named, record
from ams.storage.registry.tables import TAKEN, schema_revisions, schemas, topic_schemas, topics

MAX_REVISION = 2**31 - 1
NO_SCHEMA, NO_REVISION = "Schema doesn't exist", "Schema revision doesn't exist"


class SchemaRecords(Records):
    """Schemas by project and name, and their revisions by identity. Not cached: their texts are large."""

    async def find(self, project: ProjectId, name: SchemaName) -> Schema | None:
        """Return a schema at its newest revision, or None."""
        return await self._database.row(_NEWEST_SCHEMAS.where(is_named(schemas, project, name)), _schema)

    async def all(self, project: ProjectId) -> Sequence[Schema]:
        """Return a project's schemas at their newest revisions, oldest first."""
        query = _NEWEST_SCHEMAS.where(schemas.c.project_id == project).order_by(schemas.c.number)
        return await self._database.rows(query, _schema)

    async def revision(self, schema: SchemaId, revision: int) -> Schema | None:
        """Return a schema at a revision, or None."""
        query = _SCHEMAS.where((schemas.c.id == schema) & (schema_revisions.c.revision == revision))
        return await self._database.row(query, _schema)

    async def revisions(self, schema: SchemaId) -> Sequence[Schema]:
        """Return a schema at each of its revisions, newest first; empty if it does not exist."""
        query = _SCHEMAS.where(schemas.c.id == schema).order_by(schema_revisions.c.revision.desc())
        return await self._database.rows(query, _schema)

    async def numbers(self, schema: SchemaId, first: int | None, last: int | None, most: int) -> Sequence[int]:
        """Return the numbers of the newest revisions from `first` to `last` (None: unbounded), newest first."""
        number = schema_revisions.c.revision
        is_asked = (schema_revisions.c.schema_id == schema) & number.between(first or 1, last or MAX_REVISION)
        query = select(number).where(is_asked).order_by(number.desc()).limit(most)
        return await self._database.read(lambda connection: connection.scalars(query).all())

    async def page(self, project: ProjectId, after: str, most: int) -> Sequence[Schema]:
        """Return schemas of a project at their newest revisions, sorted by name, after the name `after`."""
        here = (schemas.c.project_id == project) & (schemas.c.name > after)
        query = _NEWEST_SCHEMAS.where(here).order_by(schemas.c.name).limit(most)
        return await self._database.rows(query, _schema)

    async def require_new(self, project: ProjectId, name: SchemaName, content: SchemaContent | None) -> None:
        """Raise what `create` would raise now, and `RegistryUnavailable` on a full disk. Call it before a long check.

        Without content only `AlreadyExists`. Concurrent calls may all pass; `create` decides.
        """

        def look(connection: Connection) -> None:
            if connection.scalar(select(schemas.c.id).where(is_named(schemas, project, name))) is not None:
                raise AlreadyExists(TAKEN["schemas_project_id_unique"])
            if content is not None:
                self._quotas.require(connection, project, *more, more=more)

        more = {SCHEMAS: 1, SCHEMA_BYTES: content.bytes + REVISION_BYTES if content is not None else 0}
        await self._database.read(look)
        if content is not None:
            await self._database.require_room()

    async def create(self, project: ProjectId, name: SchemaName, content: SchemaContent) -> Schema:
        """Create a schema. Raises `AlreadyExists`, `QuotaExceeded`, `NotFound` for the project."""
        now = self._clock.wall()
        made = Schema(SchemaId(new_uuid()), project, name, 1, content, now)
        row = insert(schemas).values(id=made.id, project_id=project, name=name, revision=1, created_on=now)

        def work(connection: Connection) -> None:
            connection.execute(row)
            _add_revision(connection, made)
            self._quotas.require(connection, project, SCHEMAS, SCHEMA_BYTES)

        await self._database.write(work)
        return made

    async def update(
        self,
        schema: Schema,
        *,
        name: SchemaName | None = None,
        content: SchemaContent | None = None,
        expected: Precondition = ANY_VERSION,
    ) -> Schema | None:
        """Rename a schema or add a revision; None if it changed meanwhile. Raises `AlreadyExists`, `QuotaExceeded`."""
        newest = (schemas.c.id == schema.id) & (schemas.c.revision == schema.revision)
        values: dict[str, Any] = {"name": name or schemas.c.name}
        if content:  # numbers of deleted revisions are not reused
            last = func.coalesce(schemas.c.last_revision, schemas.c.revision)
            values |= {"revision": last + 1, "last_revision": None}
        change = update(schemas).where(newest).values(values).returning(schemas.c.revision)
        now = self._clock.wall()

        def work(connection: Connection) -> Schema | None:
            expected.check(lambda: _find(connection, schema.id))
            revision = connection.scalar(change)
            if revision is None:
                return None
            if content:
                _add_revision(connection, replace(schema, revision=revision, content=content, created_on=now))
                self._quotas.require(connection, schema.project_id, SCHEMA_BYTES)
            return _find(connection, schema.id)

        return await self._database.write(work, Invalidation(SCHEMA, (schema.id,)))

    async def delete(self, schema: SchemaId, expected: Precondition = ANY_VERSION) -> bool:
        """Delete a schema and detach it from topics, which keep its encoding; return whether it existed."""
        uses = select(topic_schemas.c.topic_id).where(topic_schemas.c.schema_id == schema)
        encoding = select(topic_schemas.c.encoding).where(topic_schemas.c.topic_id == topics.c.id).scalar_subquery()
        note = update(topics).where(topics.c.id.in_(uses)).values(deleted_schema=encoding)
        removal = delete(schemas).where(schemas.c.id == schema)
        whole = select(schemas.c.id).where(schemas.c.id == schema).with_for_update()

        def work(connection: Connection) -> bool:
            connection.execute(whole)  # prevents new attachments
            expected.check(lambda: _find(connection, schema))
            connection.execute(note)
            return connection.execute(removal).rowcount > 0

        return await self._database.write(work, Invalidation(SCHEMA, (schema,)), grows=False)

    async def delete_revision(self, schema: SchemaId, revision: int) -> Schema:
        """Delete a revision, but not the last one; return the newest. Raises `NotFound`, `InvalidInput`."""
        of_schema = schema_revisions.c.schema_id == schema
        removal = delete(schema_revisions).where(of_schema, schema_revisions.c.revision == revision)
        numbers = select(schema_revisions.c.revision).where(of_schema)
        whole = select(schemas.c.revision, schemas.c.last_revision).where(schemas.c.id == schema).with_for_update()

        def work(connection: Connection) -> Schema:
            row = connection.execute(whole).first()
            if row is None:
                raise NotFound(NO_SCHEMA)
            left = set(connection.scalars(numbers)) - {revision}
            if not left:
                raise InvalidInput("The last revision of a schema cannot be deleted")
            if not connection.execute(removal).rowcount:
                raise NotFound(NO_REVISION)
            newest, last = max(left), row.last_revision or row.revision
            change = update(schemas).where(schemas.c.id == schema)
            connection.execute(change.values(revision=newest, last_revision=last if last > newest else None))
            return _schema(connection.execute(_NEWEST_SCHEMAS.where(schemas.c.id == schema)).one())

        return await self._database.write(work, Invalidation(SCHEMA, (schema,)), grows=False)


def _add_revision(connection: Connection, schema: Schema) -> None:
    content = {**asdict(schema.content), "bytes": schema.content.bytes}
    values = {"schema_id": schema.id, "revision": schema.revision, "created_on": schema.created_on, **content}
    connection.execute(insert(schema_revisions).values(**values))


_SCHEMAS: Select[Any] = select(
    schemas.c.id, schemas.c.project_id, schemas.c.name, schema_revisions.c.revision, schema_revisions.c.type,
    schema_revisions.c.payload, schema_revisions.c.attributes, schema_revisions.c.created_on,
).join(schema_revisions)  # fmt: skip
_NEWEST_SCHEMAS = _SCHEMAS.where(schema_revisions.c.revision == schemas.c.revision)


def _find(connection: Connection, schema: SchemaId) -> Schema | None:
    return first(connection, _NEWEST_SCHEMAS.where(schemas.c.id == schema), _schema)


def _schema(row: Row[Any]) -> Schema:
    return record(Schema, row, content=record(SchemaContent, row))
