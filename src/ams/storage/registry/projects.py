"""Projects in the registry, and its quotas, which are checked in the transaction that adds records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import sqlalchemy as sa

from ams.core import quotas
from ams.core.clock import Milliseconds
from ams.core.names import ProjectId, ProjectName, SubscriptionId, TopicId, UserId, new_uuid, topic_id
from ams.core.quotas import NO_LIMITS, REGISTRY_QUOTAS, Limits, Quotas
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.database import Database, first
from ams.storage.database.invalidation import PROJECT, Cache, Invalidation
from ams.storage.registry.records import Project
from ams.storage.registry.statements import Records, RegistryContext, existing, record, with_creator
from ams.storage.registry.tables import memberships, projects, schema_revisions, schemas, subscriptions, topics, users


class Owned(NamedTuple):
    """Logs and cursors of a deleted project, to be deleted outside the registry."""

    topics: Sequence[TopicId]
    subscriptions: Sequence[SubscriptionId]


class ProjectRecords(Records):
    """Projects by name and identity."""

    def __init__(self, shared: RegistryContext) -> None:
        super().__init__(shared)
        self._by_name: Cache[str, Project] = shared.database.invalidations.new_cache()
        self.known = self._by_name.find_cached  # by name, cache only; on None ask `find`
        shared.database.invalidations.on(PROJECT, self._forget)

    async def find(self, name: str) -> Project | None:
        """Return a project, or None. Cached."""
        query = _PROJECTS.where(projects.c.name == name)
        return await self._by_name.find(name, lambda: self._database.row(query, _project))

    async def all(self) -> Sequence[Project]:
        """Return all projects, oldest first."""
        return await self._database.rows(_PROJECTS, _project)

    async def create(self, name: ProjectName, description: str, created_by: UserId | None) -> Project:
        """Create a project. Raises `AlreadyExists` for a taken name."""
        identity, now = ProjectId(new_uuid()), self._clock.wall()
        row = sa.insert(projects).values(
            id=identity, name=name, description=description, created_on=now, modified_on=now,
            created_by=existing(created_by),
        )  # fmt: skip

        def work(connection: sa.Connection) -> Project:
            connection.execute(row)
            return _project(connection.execute(_PROJECTS.where(projects.c.id == identity)).one())

        return await self._database.write(work)

    async def update(
        self,
        project: ProjectId,
        name: ProjectName,
        description: str,
        expected: Precondition = ANY_VERSION,
        *,
        strict_data: bool | None = None,
    ) -> Project | None:
        """Change the given fields (not empty, not None); return the project, or None. Raises `AlreadyExists`."""
        values = {"name": name or None, "description": description or None, "strict_data": strict_data}
        given = {column: value for column, value in values.items() if value is not None}
        return await self._change(project, expected, given)

    async def set_retention(
        self, project: ProjectId, retention: Milliseconds | None, expected: Precondition = ANY_VERSION
    ) -> Project | None:
        """Change the age limit of a project's topics; return the project, or None."""
        return await self._change(project, expected, {"retention": retention}, grows=False)

    async def change_quotas(
        self, project: ProjectId, changes: Mapping[str, int | None], expected: Precondition = ANY_VERSION
    ) -> Project | None:
        """Change a project's own quotas (None: default); return the project. Raises `InvalidInput`."""

        def work(connection: sa.Connection) -> Project | None:
            there = projects.c.id == project
            row = connection.execute(sa.select(projects.c.quotas).where(there).with_for_update()).first()
            if row is None:
                return None
            expected.check(lambda: _find(connection, project))
            after = quotas.changed_limits(row.quotas, changes)
            connection.execute(sa.update(projects).where(there).values(quotas=after, modified_on=self._clock.wall()))
            return _find(connection, project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)), grows=False)

    async def delete(self, project: ProjectId, expected: Precondition = ANY_VERSION) -> Owned | None:
        """Delete a project with its contents; return its logs and cursors. Only one of concurrent calls gets them."""

        def work(connection: sa.Connection) -> Owned | None:
            expected.check(lambda: _find(connection, project))
            logs = connection.scalars(sa.select(topics.c.id).where(topics.c.project_id == project))
            cursors = connection.scalars(sa.select(subscriptions.c.id).where(subscriptions.c.project_id == project))
            owned = Owned([topic_id(each) for each in logs], [SubscriptionId(each) for each in cursors])
            removed = connection.execute(sa.delete(projects).where(projects.c.id == project)).rowcount
            return owned if removed else None

        return await self._database.write(work, Invalidation(PROJECT, (project,)), large=True, grows=False)

    async def _change(
        self, project: ProjectId, expected: Precondition, values: Mapping[str, object], *, grows: bool = True
    ) -> Project | None:
        change = sa.update(projects).where(projects.c.id == project).values(modified_on=self._clock.wall(), **values)

        def work(connection: sa.Connection) -> Project | None:
            expected.check(lambda: _find(connection, project))
            connection.execute(change)
            return _find(connection, project)

        return await self._database.write(work, Invalidation(PROJECT, (project,)), grows=grows)

    def _forget(self, project: str) -> None:
        # Cached topics and subscriptions may stay: they are keyed by the identity, which is never used again.
        self._by_name.forget_where(lambda _, known: known.id == project)


_PROJECTS = with_creator(projects).order_by(projects.c.number)


def _find(connection: sa.Connection, project: ProjectId) -> Project | None:
    return first(connection, _PROJECTS.where(projects.c.id == project), _project)


def _project(row: sa.Row[Any]) -> Project:
    return record(Project, row, created_by=row.creator)


class QuotaRecords:
    """Quotas of projects, and the use of those that the registry counts."""

    def __init__(self, database: Database, quotas: Quotas) -> None:
        self._database, self.rules = database, quotas

    def require(self, connection: sa.Connection, project: str, *names: str, more: Limits = NO_LIMITS) -> None:
        """Raise `QuotaExceeded` if a project is over a quota. Call it after the addition, in its transaction.

        So a taken name is reported first. Writes are serializable, so concurrent additions cannot both pass. `more` is
        a planned addition by quota.
        """
        own = connection.scalar(_QUOTAS_OF_ONE, {"project": project}) or NO_LIMITS
        for name in names:
            if self.rules.limit(own, name):
                self.rules.check(own, name, _use(connection, name, project) + more.get(name, 0))

    async def require_room(self, project: ProjectId, more: Mapping[str, int]) -> None:
        """Raise `QuotaExceeded` for `more`, or `RegistryUnavailable` on a full disk; concurrent calls may all pass."""
        await self._database.read(lambda connection: self.require(connection, project, *more, more=more))
        await self._database.require_room()

    async def quota_usage(self, project: ProjectId) -> Limits:
        """Return a project's use of each quota that the registry counts."""
        return await self._database.read(
            lambda connection: {name: _use(connection, name, project) for name in REGISTRY_QUOTAS}
        )

    async def all_used(self) -> Mapping[ProjectId, Limits]:
        """Return each project's use of each quota that the registry counts."""

        def count(connection: sa.Connection) -> Mapping[ProjectId, Limits]:
            found = defaultdict[ProjectId, dict[str, int]](lambda: dict.fromkeys(REGISTRY_QUOTAS, 0))
            for name in REGISTRY_QUOTAS:
                for project, used in chain.from_iterable(connection.execute(query) for _, query in _USES[name]):
                    found[project][name] += used
            return dict(found)

        return await self._database.read(count)


def _use(connection: sa.Connection, name: str, project: str) -> int:
    return sum(connection.scalar(of_one, {"project": project}) or 0 for of_one, _ in _USES[name])


def _uses(
    owner: sa.Column[Any], use: sa.ColumnElement[int], tables: sa.FromClause, *conditions: sa.ColumnElement[bool]
) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return the statements for the use of one project, and for those of all."""
    used = sa.select(use).select_from(tables).where(*conditions)
    by_project = used.with_only_columns(owner, use).where(owner.is_not(None)).group_by(owner)
    return used.where(owner == sa.bindparam("project")), by_project


_NUMBER = sa.func.count()
_USES = {  # built once; several entries are added
    quotas.TOPICS: [_uses(topics.c.project_id, _NUMBER, topics)],
    quotas.SUBSCRIPTIONS: [_uses(subscriptions.c.project_id, _NUMBER, subscriptions)],
    quotas.SCHEMAS: [_uses(schemas.c.project_id, _NUMBER, schemas)],
    quotas.SCHEMA_BYTES: [
        _uses(
            schemas.c.project_id,
            sa.func.sum(schema_revisions.c.bytes + quotas.REVISION_BYTES),
            schema_revisions.join(schemas),
        )
    ],
    quotas.MEMBERS: [
        _uses(memberships.c.project_id, _NUMBER, memberships),
        # Also removed members that were created here: else a project_admin could fill the registry with users.
        _uses(users.c.made_in, _NUMBER, users, ~sa.exists().where(memberships.c.user_id == users.c.id)),
    ],
}
_QUOTAS_OF_ONE = sa.select(projects.c.quotas).where(projects.c.id == sa.bindparam("project"))
