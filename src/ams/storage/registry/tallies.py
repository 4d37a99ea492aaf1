"""Counters in the registry: what was published by topic, project and day, and what subscriptions handed out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, select

from ams.core.clock import Milliseconds
from ams.core.names import ProjectId, ProjectName, SubscriptionId, TopicId, TopicName, topic_id, topic_id_text
from ams.storage.database.database import Database
from ams.storage.registry.given import ByRows, among
from ams.storage.registry.tables import (
    daily_messages,
    project_days,
    projects,
    subscription_tallies,
    topic_tallies,
    topics,
)

Days = Mapping[str, int]
"""Messages by day, `YYYY-MM-DD`."""


class Rate(NamedTuple):
    """What a rate is made of: messages of the last request, and when it and the one before were."""

    messages: int = 0
    last: Milliseconds | None = None
    before: Milliseconds | None = None


class Tally(NamedTuple):
    """What was counted so far."""

    messages: int = 0
    bytes: int = 0
    rate: Rate = Rate()


class TopicTally(NamedTuple):
    """A topic and what is counted of it."""

    id: TopicId
    project_id: ProjectId
    project: ProjectName
    name: TopicName
    created_on: Milliseconds
    tally: Tally


class DayCount(NamedTuple):
    """What was published on one day."""

    day: str
    """`YYYY-MM-DD`, UTC."""
    messages: int
    bytes: int


class Advance(NamedTuple):
    """How a topic's tally moves on."""

    topic: TopicId
    base: int
    """Messages counted when this was worked out; when others were counted meanwhile, nothing moves."""
    tally: Tally
    days: Sequence[DayCount]


class TallyRecords:
    """Counters of topics and subscriptions; they go with what they are of, but for a project's days."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, identities: Iterable[TopicId]) -> Sequence[TopicTally]:
        """Return the topics among these that exist, with their tallies."""
        texts = [topic_id_text(each) for each in identities]

        def work(connection: Connection) -> Sequence[TopicTally]:
            rows = connection.execute(_TALLIES.where(topics.c.id.in_(among(connection, texts))))
            return [_topic_tally(row) for row in rows]

        return await self._database.read(work)

    async def all(self) -> Sequence[TopicTally]:
        """Return all topics with their tallies."""
        return await self._database.read(lambda connection: [_topic_tally(row) for row in connection.execute(_TALLIES)])

    async def topic(self, topic: TopicId, newest: int) -> tuple[TopicTally | None, Days]:
        """Return a topic with its tally, None when it is gone, and the newest days on which it was published to."""
        identity = topic_id_text(topic)
        query = select(daily_messages.c.day, daily_messages.c.messages).where(daily_messages.c.topic_id == identity)

        def work(connection: Connection) -> tuple[TopicTally | None, Days]:
            row = connection.execute(_TALLIES.where(topics.c.id == identity)).first()
            days = connection.execute(query.order_by(daily_messages.c.day.desc()).limit(newest))
            return _topic_tally(row) if row else None, {each.day: each.messages for each in days}

        return await self._database.read(work)

    async def project_days(self, project: ProjectId, newest: int) -> Days:
        """Return the newest days on which something was published in a project, also to topics that are gone."""
        query = select(project_days.c.day, project_days.c.messages).where(project_days.c.project_id == project)
        days = query.order_by(project_days.c.day.desc()).limit(newest)
        return await self._database.read(lambda connection: {row.day: row.messages for row in connection.execute(days)})

    async def pulled(self, subscription: SubscriptionId) -> Tally:
        """Return what was handed out of a subscription."""
        query = select(subscription_tallies).where(subscription_tallies.c.subscription_id == subscription)
        row = await self._database.read(lambda connection: connection.execute(query).first())
        if row is None:
            return Tally()
        return Tally(row.messages, row.bytes, Rate(row.last_messages, row.last_pull, row.previous_pull))

    async def store(self, advances: Sequence[Advance], pulled: Mapping[SubscriptionId, Tally]) -> frozenset[TopicId]:
        """Move tallies of topics on, and add what was `pulled` since to those of subscriptions; all or nothing.

        In a rate that is added, no time of the pull before means that it is the one stored. What is of a topic or
        subscription that is gone is left out, and of a topic that another node counted meanwhile: returns which topics'
        tallies moved.
        """

        def work(connection: Connection) -> frozenset[TopicId]:
            if pulled:
                _ADD_PULLED.run(connection, _pull_rows(pulled))
            if not advances:
                return frozenset()
            days = _day_rows(advances)
            _ADD_PROJECT_DAYS.run(connection, days)
            _ADD_DAYS.run(connection, days)
            return frozenset(map(topic_id, _MOVE.run(connection, _tally_rows(advances)).scalars()))

        return await self._database.write(work)

    async def restart(self, identities: Iterable[TopicId]) -> None:
        """Forget what was counted of topics that lost their logs; their projects' days stay."""
        texts = [topic_id_text(each) for each in identities]

        def work(connection: Connection) -> None:
            for table in (topic_tallies, daily_messages):
                connection.execute(delete(table).where(table.c.topic_id.in_(among(connection, texts))))

        await self._database.write(work)


def add_to_project(connection: Connection, last: Sequence[Advance]) -> None:
    """Add to a project's days what was published to a topic that is about to go, unless that was counted meanwhile."""
    if last:
        _ADD_PROJECT_DAYS.run(connection, _day_rows(last))


_TALLIES: Select[Any] = (
    select(
        topics.c.id,
        topics.c.project_id,
        projects.c.name.label("project"),
        topics.c.name,
        topics.c.created_on,
        topic_tallies.c.messages,
        topic_tallies.c.bytes,
        topic_tallies.c.last_messages,
        topic_tallies.c.last_publish,
        topic_tallies.c.previous_publish,
    )
    .join(projects, projects.c.id == topics.c.project_id)
    .outerjoin(topic_tallies, topic_tallies.c.topic_id == topics.c.id)
)

_OF_TOPICS = """
    FROM {given}
    JOIN topics ON topics.id = text(0)
    LEFT JOIN topic_tallies AS known ON known.topic_id = topics.id
    WHERE coalesce(known.messages, 0) = number(1)
"""
"""Rows of a topic, the messages counted of it when they were made, and more; those out of date are left out."""

_ADD_DAYS = ByRows(
    """
    INSERT INTO daily_messages (topic_id, day, messages, bytes)
    SELECT topics.id, text(2), number(3), number(4)
    """
    + _OF_TOPICS
    + """
    ON CONFLICT (topic_id, day) DO UPDATE SET
        messages = daily_messages.messages + excluded.messages, bytes = daily_messages.bytes + excluded.bytes
    """
)
_ADD_PROJECT_DAYS = ByRows(
    """
    INSERT INTO project_days (project_id, day, messages, bytes)
    SELECT topics.project_id, text(2), sum(number(3)), sum(number(4))
    """
    + _OF_TOPICS
    + """
    GROUP BY topics.project_id, text(2)
    ON CONFLICT (project_id, day) DO UPDATE SET
        messages = project_days.messages + excluded.messages, bytes = project_days.bytes + excluded.bytes
    """
)
_MOVE = ByRows(
    """
    INSERT INTO topic_tallies (topic_id, messages, bytes, last_messages, last_publish, previous_publish)
    SELECT topics.id, number(2), number(3), number(4), number(5), number(6)
    """
    + _OF_TOPICS
    + """
    ON CONFLICT (topic_id) DO UPDATE SET
        messages = excluded.messages, bytes = excluded.bytes, last_messages = excluded.last_messages,
        last_publish = excluded.last_publish, previous_publish = excluded.previous_publish
    RETURNING topic_id
    """
)
_ADD_PULLED = ByRows(
    """
    INSERT INTO subscription_tallies (subscription_id, messages, bytes, last_messages, last_pull, previous_pull)
    SELECT subscriptions.id, number(1), number(2), number(3), number(4), number(5)
    FROM {given} JOIN subscriptions ON subscriptions.id = text(0)
    WHERE true
    ON CONFLICT (subscription_id) DO UPDATE SET
        messages = subscription_tallies.messages + excluded.messages,
        bytes = subscription_tallies.bytes + excluded.bytes,
        last_messages = excluded.last_messages, last_pull = excluded.last_pull,
        previous_pull = coalesce(excluded.previous_pull, subscription_tallies.last_pull)
    """
)


def _day_rows(advances: Sequence[Advance]) -> list[tuple[object, ...]]:
    return [(topic_id_text(each.topic), each.base, *day) for each in advances for day in each.days]


def _tally_rows(advances: Sequence[Advance]) -> list[tuple[object, ...]]:
    return [
        (topic_id_text(each.topic), each.base, each.tally.messages, each.tally.bytes, *each.tally.rate)
        for each in advances
    ]


def _pull_rows(pulled: Mapping[SubscriptionId, Tally]) -> list[tuple[object, ...]]:
    return [(subscription, tally.messages, tally.bytes, *tally.rate) for subscription, tally in pulled.items()]


def _topic_tally(row: Row[Any]) -> TopicTally:
    rate = Rate(row.last_messages or 0, row.last_publish, row.previous_publish)
    tally = Tally(row.messages or 0, row.bytes or 0, rate)
    return TopicTally(topic_id(row.id), row.project_id, row.project, row.name, row.created_on, tally)
