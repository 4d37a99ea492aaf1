"""How many there are of what, for metrics: few statements whatever the numbers are (HTTP contract 14; 17.4, O11)."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Table,
    bindparam,
    cast,
    exists,
    func,
    literal,
    select,
    union_all,
)

from ams.core.clock import DAY, day_number
from ams.core.names import ProjectId, TopicName, UserName
from ams.storage.database.database import Database
from ams.storage.registry.given import among
from ams.storage.registry.tables import (
    memberships,
    project_days,
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


class Activity(NamedTuple):
    """What happened in a project in a window of days."""

    messages: int = 0
    """Published."""
    topics: int = 0
    """Created, and still there."""
    subscriptions: int = 0
    users: int = 0
    """Members who were created."""


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

    async def activity(self, first: date, last: date) -> Mapping[ProjectId, Activity]:
        """Return by project what happened from one day to another, both included; no entry for nothing."""
        window = {"first": day_number(first) * DAY, "end": (day_number(last) + 1) * DAY}
        days = {"first_day": first.isoformat(), "last_day": last.isoformat()}

        def work(connection: Connection) -> dict[ProjectId, Activity]:
            found: dict[ProjectId, Activity] = {}
            for kind, project, count in connection.execute(_ACTIVITY, window | days):
                found[project] = found.get(project, Activity())._replace(**{kind: count})
            return found

        return await self._database.read(work)


def _count(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(condition)) or 0


def _listed(connection: Connection, resources: Table, access: Table, project: ProjectId) -> Listed:
    """Count a project's entries on access lists by user: from the lists, which are short where resources are many."""
    of_project = exists().where(resources.c.id == access.c.resource_id, resources.c.project_id == project)
    counted = select(access.c.user_id, func.count().label("lists")).where(of_project).group_by(access.c.user_id)
    counts = {row.user_id: row.lists for row in connection.execute(counted)}
    if not counts:
        return []
    names = (
        select(users.c.id, users.c.name)
        .join(memberships, memberships.c.user_id == users.c.id)
        .where(memberships.c.project_id == project, users.c.id.in_(among(connection, counts)))
        .order_by(memberships.c.number)
    )
    return [(name, counts[user]) for user, name in connection.execute(names)]


def _activity() -> CompoundSelect[Any]:
    """Return field of `Activity`, project and count, in one statement: each costs more than what it counts."""
    first, end = bindparam("first", type_=BigInteger), bindparam("end", type_=BigInteger)

    def created(table: Table) -> Select[Any]:
        counted = select(literal(table.name), table.c.project_id, func.count()).group_by(table.c.project_id)
        return counted.where(table.c.created_on >= first, table.c.created_on < end)

    # Those outside a window are few as a rule: far fewer look-ups than one for each member.
    outside = select(users.c.id).where((users.c.created_on < first) | (users.c.created_on >= end))
    members = select(literal("users"), memberships.c.project_id, func.count()).group_by(memberships.c.project_id)
    messages = select(literal("messages"), project_days.c.project_id, _sum(project_days.c.messages))
    days = project_days.c.day.between(bindparam("first_day"), bindparam("last_day"))
    return union_all(
        created(topics),
        created(subscriptions),
        members.where(memberships.c.user_id.not_in(outside)),
        messages.where(days).group_by(project_days.c.project_id),
    )


def _sum(numbers: Column[int]) -> ColumnElement[int]:
    """Return the sum as a whole number: PostgreSQL makes a decimal one of it."""
    return cast(func.sum(numbers), BigInteger)


_ACTIVITY = _activity()
