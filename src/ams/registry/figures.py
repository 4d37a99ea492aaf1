"""How many there are of what, for metrics: few statements whatever the numbers are (HTTP contract 14; 17.4, O11)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, func, select

from ams.clock import Milliseconds
from ams.names import ProjectId, TopicName, UserName
from ams.registry.database import Database
from ams.registry.tables import (
    memberships,
    subscription_access,
    subscriptions,
    topic_access,
    topics,
    users,
)

Listed = Sequence[tuple[UserName, int]]
"""Members and on how many access lists of a kind they are; those on none are left out."""


class ProjectFigures(NamedTuple):
    """What a project has."""

    topics: int
    subscriptions: int
    on_topics: Listed
    on_subscriptions: Listed


class Made(NamedTuple):
    """How many of a project's topics, subscriptions and members were created in a span of time."""

    topics: int = 0
    subscriptions: int = 0
    users: int = 0


class FigureRecords:
    """Counts over the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_project(self, project: ProjectId) -> ProjectFigures:
        """Return what a project has, and which members are on its access lists, oldest member first."""

        def work(connection: Connection) -> ProjectFigures:
            return ProjectFigures(
                _count(connection, topics, topics.c.project_id == project),
                _count(connection, subscriptions, subscriptions.c.project_id == project),
                _listed(connection, topics, topic_access, project),
                _listed(connection, subscriptions, subscription_access, project),
            )

        return await self._database.read(work)

    async def subscriptions_of(self, project: ProjectId, topic: TopicName) -> int:
        """Return how many subscriptions a topic has."""
        condition = (subscriptions.c.project_id == project) & (subscriptions.c.topic == topic)
        return await self._database.read(lambda connection: _count(connection, subscriptions, condition))

    async def made(self, first: Milliseconds, end: Milliseconds) -> Mapping[ProjectId, Made]:
        """Return what was created from one moment to another by project; no entry for nothing."""

        def work(connection: Connection) -> dict[ProjectId, Made]:
            found: dict[ProjectId, Made] = {}
            for name, query in _made(first, end).items():
                for project, count in connection.execute(query):
                    found[project] = found.get(project, Made())._replace(**{name: count})
            return found

        return await self._database.read(work)


def _count(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(condition)) or 0


def _listed(connection: Connection, resources: Table, access: Table, project: ProjectId) -> Listed:
    query = (
        select(users.c.name, func.count())
        .select_from(resources)
        .join(access, access.c.resource_id == resources.c.id)
        .join(users, users.c.id == access.c.user_id)
        .join(memberships, (memberships.c.user_id == users.c.id) & (memberships.c.project_id == project))
        .where(resources.c.project_id == project)
        .group_by(users.c.name, memberships.c.number)
        .order_by(memberships.c.number)
    )
    return [(name, count) for name, count in connection.execute(query)]


def _made(first: Milliseconds, end: Milliseconds) -> Mapping[str, Select[Any]]:
    def by_project(table: Table, created: ColumnElement[int]) -> Select[Any]:
        counted = select(table.c.project_id, func.count()).where(created >= first, created < end)
        return counted.group_by(table.c.project_id)

    members = by_project(memberships, users.c.created_on).join(users, users.c.id == memberships.c.user_id)
    return {
        "topics": by_project(topics, topics.c.created_on),
        "subscriptions": by_project(subscriptions, subscriptions.c.created_on),
        "users": members,
    }
