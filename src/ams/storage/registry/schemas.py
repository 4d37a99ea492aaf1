"""Schemas in the registry, with all their revisions: what was checked against stays known."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.names import ProjectId, SchemaId, SchemaName, new_uuid
from ams.storage.database.database import Database
from ams.storage.database.invalidation import SCHEMA, Forget
from ams.storage.registry.records import Schema, SchemaContent
from ams.storage.registry.tables import schema_revisions, schemas


class SchemaRecords:
    """Schemas by project and name, and their revisions by identity.

    Nothing is kept of them: their texts are large, and what publishing needs of them is kept compiled.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def find(self, project: ProjectId, name: SchemaName) -> Schema | None:
        """Return a schema at its newest revision, None when there is none."""
        condition = (schemas.c.project_id == project) & (schemas.c.name == name)
        return await self._database.read(lambda connection: _one(connection, _NEWEST.where(condition)))

    async def all(self, project: ProjectId) -> Sequence[Schema]:
        """Return a project's schemas at their newest revisions, oldest first."""
        query = _NEWEST.where(schemas.c.project_id == project).order_by(schemas.c.number)
        return await self._database.read(lambda connection: [_schema(row) for row in connection.execute(query)])

    async def revision(self, schema: SchemaId, revision: int) -> Schema | None:
        """Return a schema at any of its revisions, None when there is none, as when the schema is gone."""
        query = _SELECT.where((schemas.c.id == schema) & (schema_revisions.c.revision == revision))
        return await self._database.read(lambda connection: _one(connection, query))

    async def create(self, project: ProjectId, name: SchemaName, content: SchemaContent) -> Schema:
        """Make a schema; raise `AlreadyExists` when the name is taken, `NotFound` when the project is gone."""
        made, now = Schema(SchemaId(new_uuid()), project, name, 1, content), self._clock.wall()
        row = insert(schemas).values(id=made.id, project_id=project, name=name, revision=1, created_on=now)

        def work(connection: Connection) -> None:
            connection.execute(row)
            self._add(connection, made.id, 1, content)

        await self._database.write(work)
        return made

    async def update(
        self, schema: Schema, *, name: SchemaName | None = None, content: SchemaContent | None = None
    ) -> Schema | None:
        """Rename a schema, or add a revision to it, or both; return it as it is then.

        None when it is gone, or when its newest revision is not that of `schema` any more. Raises `AlreadyExists` when
        the name is another's.
        """
        newest = (schemas.c.id == schema.id) & (schemas.c.revision == schema.revision)
        revision = schema.revision + 1 if content else schema.revision
        change = update(schemas).where(newest).values(revision=revision, **({"name": name} if name else {}))

        def work(connection: Connection) -> Schema | None:
            if not connection.execute(change).rowcount:
                return None
            if content:
                self._add(connection, schema.id, revision, content)
            return _one(connection, _NEWEST.where(schemas.c.id == schema.id))

        return await self._database.write(work, Forget(SCHEMA, (schema.id,)))

    async def delete(self, schema: SchemaId) -> bool:
        """Remove a schema and its revisions, and detach it from all topics; return whether it was there."""
        removal = delete(schemas).where(schemas.c.id == schema)
        return await self._database.write(
            lambda connection: connection.execute(removal).rowcount > 0, Forget(SCHEMA, (schema,))
        )

    def _add(self, connection: Connection, schema: SchemaId, revision: int, content: SchemaContent) -> None:
        said = {"type": content.type, "payload": content.payload, "attributes": content.attributes}
        row = insert(schema_revisions).values(
            schema_id=schema, revision=revision, created_on=self._clock.wall(), **said
        )
        connection.execute(row)


_SELECT: Select[Any] = select(
    schemas.c.id, schemas.c.project_id, schemas.c.name, schema_revisions.c.revision, schema_revisions.c.type,
    schema_revisions.c.payload, schema_revisions.c.attributes,
).join(schema_revisions, schema_revisions.c.schema_id == schemas.c.id)  # fmt: skip
_NEWEST = _SELECT.where(schema_revisions.c.revision == schemas.c.revision)


def _one(connection: Connection, query: Select[Any]) -> Schema | None:
    row = connection.execute(query).first()
    return _schema(row) if row else None


def _schema(row: Row[Any]) -> Schema:
    content = SchemaContent(row.type, row.payload, row.attributes)
    return Schema(row.id, row.project_id, row.name, row.revision, content)
