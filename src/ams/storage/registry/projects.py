"""Projects in the registry."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, insert, select, update

from ams.core.clock import Clock, Milliseconds
from ams.core.names import ProjectId, ProjectName, SubscriptionId, TopicId, UserId, new_uuid, topic_id
from ams.storage.database.database import Database
from ams.storage.database.invalidation import PROJECT, Cache, Invalidation
from ams.storage.registry.records import Project
from ams.storage.registry.statements import existing, with_creator
from ams.storage.registry.tables import projects, subscriptions, topics


class Owned(NamedTuple):
    """What a deleted project leaves outside the registry: logs and cursors."""

    topics: Sequence[TopicId]
    subscriptions: Sequence[SubscriptionId]


class ProjectRecords:
    """Projects by name and identity."""

    def __init__(self, database: Database, clock: Clock, cache_size: int) -> None:
        self._database = database
        self._clock = clock
        self._by_name: Cache[str, Project] = database.invalidations.new_cache(cache_size)
        self.known = self._by_name.known
        """Return a project, by name, that is in memory; None says nothing: `find` does."""
        database.invalidations.on(PROJECT, self._forget)

    async def find(self, name: str) -> Project | None:
        """Return a project, None when there is none; cached."""
        return await self._by_name.find(
            name, lambda: self._database.read(lambda connection: _one(connection, projects.c.name == name))
        )

    async def all(self) -> Sequence[Project]:
        """Return all projects, oldest first."""
        return await self._database.read(lambda connection: [_project(row) for row in connection.execute(_PROJECTS)])

    async def create(self, name: ProjectName, description: str, created_by: UserId | None) -> Project:
        """Make a project; raise `AlreadyExists` when the name is taken."""
        identity, now = ProjectId(new_uuid()), self._clock.wall()
        row = insert(projects).values(
            id=identity, name=name, description=description, created_on=now, modified_on=now,
            created_by=existing(created_by),
        )  # fmt: skip

        def work(connection: Connection) -> Project | None:
            connection.execute(row)
            return _one(connection, projects.c.id == identity)

        project = await self._database.write(work)
        assert project is not None
        return project

    async def update(self, project: ProjectId, name: ProjectName, description: str) -> Project | None:
        """Rename or describe a project; what is empty stays as it is. None when it is gone.

        Raises `AlreadyExists` when the new name is another project's.
        """
        said = {"name": name, "description": description}
        values = {column: text for column, text in said.items() if text}
        change = update(projects).where(projects.c.id == project).values(modified_on=self._clock.wall(), **values)

        def work(connection: Connection) -> Project | None:
            connection.execute(change)
            return _one(connection, projects.c.id == project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)))

    async def set_retention(self, project: ProjectId, retention: Milliseconds | None) -> Project | None:
        """Change the age limit of a project's topics; return the project, None when it is gone."""
        change = update(projects).where(projects.c.id == project)
        change = change.values(retention=retention, modified_on=self._clock.wall())

        def work(connection: Connection) -> Project | None:
            connection.execute(change)
            return _one(connection, projects.c.id == project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)))

    async def delete(self, project: ProjectId) -> Owned | None:
        """Remove a project, its memberships, topics, subscriptions and access lists.

        Returns what it owned elsewhere, None when it is gone already: of many who delete it, one did.
        """

        def work(connection: Connection) -> Owned | None:
            logs = connection.scalars(select(topics.c.id).where(topics.c.project_id == project))
            cursors = connection.scalars(select(subscriptions.c.id).where(subscriptions.c.project_id == project))
            owned = Owned([topic_id(each) for each in logs], [SubscriptionId(each) for each in cursors])
            removed = connection.execute(delete(projects).where(projects.c.id == project)).rowcount
            return owned if removed else None

        return await self._database.write(work, Invalidation(PROJECT, (project,)), large=True)

    def _forget(self, project: str) -> None:
        # Cached topics and subscriptions need no forgetting: they are found by the identity, which never comes back.
        self._by_name.forget_where(lambda _, known: known.id == project)


_PROJECTS = with_creator(projects).order_by(projects.c.number)


def _one(connection: Connection, condition: Any) -> Project | None:
    row = connection.execute(_PROJECTS.where(condition)).first()
    return _project(row) if row else None


def _project(row: Row[Any]) -> Project:
    return Project(row.id, row.name, row.description, row.created_on, row.modified_on, row.creator, row.retention)
