"""Counters in the registry: published messages by topic, project and day, and messages delivered by subscriptions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import sqlalchemy as sa

from ams.core.clock import DAY, Milliseconds, day_number
from ams.core.names import ProjectId, ProjectName, SubscriptionId, TopicId, TopicName, UserName, topic_id, topic_id_text
from ams.storage.database.database import first
from ams.storage.export_format import Day
from ams.storage.registry import tables
from ams.storage.registry.statements import Records, Statement, among
from ams.storage.registry.tables import memberships, project_days, projects, subscriptions, topic_tallies, topics, users

Days = Mapping[str, int]  # messages by day, `YYYY-MM-DD`


class Rate(NamedTuple):
    """Messages and time of the last request, and time of the one before."""

    messages: int = 0
    last: Milliseconds | None = None
    before: Milliseconds | None = None


class Tally(NamedTuple):
    """Counts so far."""

    messages: int = 0
    bytes: int = 0
    rate: Rate = Rate()


class TopicTally(NamedTuple):
    """A topic and its counts."""

    id: TopicId
    project_id: ProjectId
    project: ProjectName
    name: TopicName
    created_on: Milliseconds
    tally: Tally


class TallyStep(NamedTuple):
    """Increment of a topic's tally."""

    topic: TopicId
    base: int  # expected messages of the tally; if it differs, nothing is added
    tally: Tally
    days: Sequence[Day]


class TallyRecords(Records):
    """Counts of topics and subscriptions, deleted with them, except a project's days."""

    async def of(self, identities: Iterable[TopicId]) -> Sequence[TopicTally]:
        """Return the existing ones of these topics with their tallies."""
        texts = [topic_id_text(each) for each in identities]

        def work(connection: sa.Connection) -> Sequence[TopicTally]:
            rows = connection.execute(_TALLIES.where(topics.c.id.in_(among(connection, texts))))
            return [_topic_tally(row) for row in rows]

        return await self._database.read(work)

    async def all(self) -> Sequence[TopicTally]:
        """Return all topics with their tallies."""
        return await self._database.rows(_TALLIES, _topic_tally)

    async def topic(self, topic: TopicId, newest: int) -> tuple[TopicTally | None, Days]:
        """Return a topic with its tally, or None, and its newest days with messages."""
        identity, daily = topic_id_text(topic), tables.daily_messages
        query = sa.select(daily.c.day, daily.c.messages).where(daily.c.topic_id == identity)

        def work(connection: sa.Connection) -> tuple[TopicTally | None, Days]:
            tally = first(connection, _TALLIES.where(topics.c.id == identity), _topic_tally)
            days = connection.execute(query.order_by(daily.c.day.desc()).limit(newest))
            return tally, {each.day: each.messages for each in days}

        return await self._database.read(work)

    async def project_days(self, project: ProjectId, newest: int) -> Days:
        """Return the newest days with messages of a project, including deleted topics."""
        query = sa.select(project_days.c.day, project_days.c.messages).where(project_days.c.project_id == project)
        query = query.order_by(project_days.c.day.desc()).limit(newest)
        return dict(await self._database.rows(query, lambda row: (row.day, row.messages)))

    async def delivery_tally(self, subscription: SubscriptionId) -> Tally:
        """Return the counts of messages delivered by a subscription."""
        tallies = tables.subscription_tallies
        query = sa.select(tallies).where(tallies.c.subscription_id == subscription)

        def tally(row: sa.Row[Any]) -> Tally:
            return Tally(row.messages, row.bytes, Rate(row.last_messages, row.last_pull, row.previous_pull))

        return await self._database.row(query, tally) or Tally()

    async def all_pulled(self) -> Mapping[SubscriptionId, int]:
        """Return the number of delivered messages by subscription, including redeliveries, without zeros."""
        tallies = tables.subscription_tallies
        query = sa.select(tallies.c.subscription_id, tallies.c.messages)
        return dict(await self._database.rows(query, lambda row: (row.subscription_id, row.messages)))

    async def store(self, advances: Sequence[TallyStep], pulled: Mapping[SubscriptionId, Tally]) -> frozenset[TopicId]:
        """Add to the tallies of topics and of subscriptions (`pulled`); return the topics that were updated.

        Skips topics that are deleted or counted by another node. A rate without previous time keeps the stored one.
        """

        def work(connection: sa.Connection) -> frozenset[TopicId]:
            if pulled:
                rows = [(each, tally.messages, tally.bytes, *tally.rate) for each, tally in pulled.items()]
                _ADD_PULLED.run(connection, rows)
            if not advances:
                return frozenset()
            days = _day_rows(advances)
            _ADD_PROJECT_DAYS.run(connection, days)
            _ADD_DAYS.run(connection, days)
            tallies = [
                (topic_id_text(each.topic), each.base, each.tally.messages, each.tally.bytes, *each.tally.rate)
                for each in advances
            ]
            return frozenset(map(topic_id, _UPDATE_TALLIES.run(connection, tallies).scalars()))

        return await self._database.write(work, grows=False)

    async def restart(self, identities: Iterable[TopicId]) -> None:
        """Reset the counts of topics whose logs were lost; the days of their projects stay."""
        texts = [topic_id_text(each) for each in identities]

        def work(connection: sa.Connection) -> None:
            for table in (topic_tallies, tables.daily_messages):
                connection.execute(sa.delete(table).where(table.c.topic_id.in_(among(connection, texts))))

        await self._database.write(work, grows=False)


def add_to_project(connection: sa.Connection, last: Sequence[TallyStep]) -> None:
    """Add the last uncounted messages of a deleted topic to the days of its project."""
    if last:
        _ADD_PROJECT_DAYS.run(connection, _day_rows(last))


_TALLIES: sa.Select[Any] = (
    sa.select(topics.c.id, topics.c.project_id, projects.c.name.label("project"), topics.c.name, topics.c.created_on)
    .add_columns(*(each for each in topic_tallies.c if each.name != "topic_id"))
    .join(projects)
    .outerjoin(topic_tallies)
)

_OF_TOPICS = """
    FROM {given}
    JOIN topics ON topics.id = text(0)
    LEFT JOIN topic_tallies AS known ON known.topic_id = topics.id
    WHERE coalesce(known.messages, 0) = number(1)
"""
"""Rows of topics: id, expected messages, and more; outdated ones are skipped."""

_ADD_DAYS = Statement(f"""
    INSERT INTO daily_messages (topic_id, day, messages, bytes)
    SELECT topics.id, text(2), number(3), number(4) {_OF_TOPICS}
    ON CONFLICT (topic_id, day) DO UPDATE SET
        messages = daily_messages.messages + excluded.messages, bytes = daily_messages.bytes + excluded.bytes
    """)
_ADD_PROJECT_DAYS = Statement(f"""
    INSERT INTO project_days (project_id, day, messages, bytes)
    SELECT topics.project_id, text(2), sum(number(3)), sum(number(4)) {_OF_TOPICS}
    GROUP BY topics.project_id, text(2)
    ON CONFLICT (project_id, day) DO UPDATE SET
        messages = project_days.messages + excluded.messages, bytes = project_days.bytes + excluded.bytes
    """)
_UPDATE_TALLIES = Statement(f"""
    INSERT INTO topic_tallies (topic_id, messages, bytes, last_messages, last_publish, previous_publish)
    SELECT topics.id, number(2), number(3), number(4), number(5), number(6) {_OF_TOPICS}
    ON CONFLICT (topic_id) DO UPDATE SET
        messages = excluded.messages, bytes = excluded.bytes, last_messages = excluded.last_messages,
        last_publish = excluded.last_publish, previous_publish = excluded.previous_publish
    RETURNING topic_id
    """)
_ADD_PULLED = Statement("""
    INSERT INTO subscription_tallies (subscription_id, messages, bytes, last_messages, last_pull, previous_pull)
    SELECT subscriptions.id, number(1), number(2), number(3), number(4), number(5)
    FROM {given} JOIN subscriptions ON subscriptions.id = text(0)
    WHERE true
    ON CONFLICT (subscription_id) DO UPDATE SET
        messages = subscription_tallies.messages + excluded.messages,
        bytes = subscription_tallies.bytes + excluded.bytes,
        last_messages = excluded.last_messages, last_pull = excluded.last_pull,
        previous_pull = coalesce(excluded.previous_pull, subscription_tallies.last_pull)
    """)


def _day_rows(advances: Sequence[TallyStep]) -> list[tuple[object, ...]]:
    return [(topic_id_text(each.topic), each.base, *day) for each in advances for day in each.days]


def _topic_tally(row: sa.Row[Any]) -> TopicTally:
    rate = Rate(row.last_messages or 0, row.last_publish, row.previous_publish)
    tally = Tally(row.messages or 0, row.bytes or 0, rate)
    return TopicTally(topic_id(row.id), row.project_id, row.project, row.name, row.created_on, tally)


Listed = Sequence[tuple[UserName, int]]  # members, and the number of access lists with them, if any


class ProjectFigures(NamedTuple):
    """Figures of a project."""

    topics: int
    subscriptions: int
    on_topics: Listed
    on_subscriptions: Listed


class Activity(NamedTuple):
    """Activity in a project in a window of days."""

    messages: int = 0
    topics: int = 0  # created and not deleted
    subscriptions: int = 0
    users: int = 0  # created members


class FigureRecords(Records):
    """Counts of rows for metrics."""

    async def of_project(self, project: ProjectId) -> ProjectFigures:
        """Return figures of a project, and members on its access lists, oldest member first."""

        def work(connection: sa.Connection) -> ProjectFigures:
            return ProjectFigures(
                _count(connection, topics, topics.c.project_id == project),
                _count(connection, subscriptions, subscriptions.c.project_id == project),
                _count_entries(connection, topics, tables.topic_access, project),
                _count_entries(connection, subscriptions, tables.subscription_access, project),
            )

        return await self._database.read(work)

    async def subscriptions_of(self, project: ProjectId, topic: TopicName) -> int:
        """Return how many subscriptions a topic has."""
        condition = (subscriptions.c.project_id == project) & (subscriptions.c.topic == topic)
        return await self._database.read(lambda connection: _count(connection, subscriptions, condition))

    async def activity(self, first: date, last: date) -> Mapping[ProjectId, Activity]:
        """Return activity by project from `first` to `last`, inclusive; projects without activity are omitted."""
        window = {"first": day_number(first) * DAY, "end": (day_number(last) + 1) * DAY}
        days = {"first_day": first.isoformat(), "last_day": last.isoformat()}

        def work(connection: sa.Connection) -> dict[ProjectId, Activity]:
            found: dict[ProjectId, Activity] = {}
            for kind, project, count in connection.execute(_ACTIVITY, window | days):
                found[project] = found.get(project, Activity())._replace(**{kind: count})
            return found

        return await self._database.read(work)


def _count(connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(condition)) or 0


def _count_entries(connection: sa.Connection, resources: sa.Table, access: sa.Table, project: ProjectId) -> Listed:
    """Count a project's access list entries by user, starting from the lists, which are short."""
    of_project = sa.exists().where(resources.c.id == access.c.resource_id, resources.c.project_id == project)
    counted = sa.select(access.c.user_id, sa.func.count().label("lists")).where(of_project).group_by(access.c.user_id)
    counts = {row.user_id: row.lists for row in connection.execute(counted)}
    if not counts:
        return []
    is_listed = users.c.id.in_(among(connection, counts))
    names = sa.select(users.c.id, users.c.name).join(memberships).where(memberships.c.project_id == project, is_listed)
    return [(name, counts[user]) for user, name in connection.execute(names.order_by(memberships.c.number))]


def _activity() -> sa.CompoundSelect[Any]:
    """Return a query for field of `Activity`, project and count; one statement, as round trips dominate the cost."""
    first, end = sa.bindparam("first", type_=sa.BigInteger), sa.bindparam("end", type_=sa.BigInteger)

    def created_in_window(table: sa.Table) -> sa.Select[Any]:
        counted = sa.select(sa.literal(table.name), table.c.project_id, sa.func.count()).group_by(table.c.project_id)
        return counted.where(table.c.created_on >= first, table.c.created_on < end)

    # Few users are outside a window, so this needs fewer lookups than one per member.
    outside = sa.select(users.c.id).where((users.c.created_on < first) | (users.c.created_on >= end))
    of = memberships.c.project_id
    members = sa.select(sa.literal("users"), of, sa.func.count()).group_by(of)
    total = sa.cast(sa.func.sum(project_days.c.messages), sa.BigInteger)  # PostgreSQL sums to numeric
    messages = sa.select(sa.literal("messages"), project_days.c.project_id, total)
    days = project_days.c.day.between(sa.bindparam("first_day"), sa.bindparam("last_day"))
    return sa.union_all(
        created_in_window(topics),
        created_in_window(subscriptions),
        members.where(memberships.c.user_id.not_in(outside)),
        messages.where(days).group_by(project_days.c.project_id),
    )


_ACTIVITY = _activity()
