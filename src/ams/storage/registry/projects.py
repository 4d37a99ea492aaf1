"""Projects in the registry."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, insert, select, update

from ams.core.clock import Clock, Milliseconds
from ams.core.names import ProjectId, ProjectName, SubscriptionId, TopicId, UserId, new_uuid, topic_id
from ams.core.quotas import changed_limits
from ams.core.versions import ANY_VERSION, Precondition
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

    async def update(
        self,
        project: ProjectId,
        name: ProjectName,
        description: str,
        expected: Precondition = ANY_VERSION,
        *,
        strict_data: bool | None = None,
    ) -> Project | None:
        """Change a project; what is empty or None stays as it is. None when it is gone.

        Raises `AlreadyExists` when the new name is another project's.
        """
        said = {"name": name, "description": description}
        values: dict[str, object] = {column: text for column, text in said.items() if text}
        if strict_data is not None:
            values["strict_data"] = strict_data
        change = update(projects).where(projects.c.id == project).values(modified_on=self._clock.wall(), **values)

        def work(connection: Connection) -> Project | None:
            expected.check(lambda: _one(connection, projects.c.id == project))
            connection.execute(change)
            return _one(connection, projects.c.id == project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)))

    async def set_retention(
        self, project: ProjectId, retention: Milliseconds | None, expected: Precondition = ANY_VERSION
    ) -> Project | None:
        """Change the age limit of a project's topics; return the project, None when it is gone."""
        change = update(projects).where(projects.c.id == project)
        change = change.values(retention=retention, modified_on=self._clock.wall())

        def work(connection: Connection) -> Project | None:
            expected.check(lambda: _one(connection, projects.c.id == project))
            connection.execute(change)
            return _one(connection, projects.c.id == project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)), grows=False)

    async def change_quotas(
        self, project: ProjectId, changes: Mapping[str, int | None], expected: Precondition = ANY_VERSION
    ) -> Project | None:
        """Change a project's own quotas, None: the default again; return the project, None when it is gone.

        Raises `InvalidInput` for a quota that does not exist and a limit that cannot be.
        """

        def work(connection: Connection) -> Project | None:
            there = projects.c.id == project
            row = connection.execute(select(projects.c.quotas).where(there).with_for_update()).first()
            if row is None:
                return None
            expected.check(lambda: _one(connection, there))
            after = changed_limits(row.quotas, changes)
            connection.execute(update(projects).where(there).values(quotas=after, modified_on=self._clock.wall()))
            return _one(connection, there)

        return await self._database.write(work, Invalidation(PROJECT, (project,)), grows=False)

    async def delete(self, project: ProjectId, expected: Precondition = ANY_VERSION) -> Owned | None:
        """Remove a project, its memberships, topics, subscriptions and access lists.

        Returns what it owned elsewhere, None when it is gone already: of many who delete it, one did.
        """

        def work(connection: Connection) -> Owned | None:
            expected.check(lambda: _one(connection, projects.c.id == project))
            logs = connection.scalars(select(topics.c.id).where(topics.c.project_id == project))
            cursors = connection.scalars(select(subscriptions.c.id).where(subscriptions.c.project_id == project))
            owned = Owned([topic_id(each) for each in logs], [SubscriptionId(each) for each in cursors])
            removed = connection.execute(delete(projects).where(projects.c.id == project)).rowcount
            return owned if removed else None

        return await self._database.write(work, Invalidation(PROJECT, (project,)), large=True, grows=False)

    def _forget(self, project: str) -> None:
        # Cached topics and subscriptions need no forgetting: they are found by the identity, which never comes back.
        self._by_name.forget_where(lambda _, known: known.id == project)


_PROJECTS = with_creator(projects).order_by(projects.c.number)


def _one(connection: Connection, condition: Any) -> Project | None:
    row = connection.execute(_PROJECTS.where(condition)).first()
    return _project(row) if row else None


def _project(row: Row[Any]) -> Project:
    return Project(
        row.id,
        row.name,
        row.description,
        row.created_on,
        row.modified_on,
        row.creator,
        row.retention,
        row.quotas,
        row.strict_data,
    )
