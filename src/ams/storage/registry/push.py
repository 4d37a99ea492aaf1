"""Push configurations in the registry, and the places of the worker that delivers.

Where a subscription is delivered, the worker is on its access list and a member of its project: that is how it finds
what to deliver (HTTP contract 13.5). Both change with the configuration, in one transaction.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, insert, select, text

from ams.core.names import ProjectId, ProjectName, SubscriptionId, SubscriptionName, TopicName, UserId
from ams.core.push_config import PushConfig
from ams.storage.database.database import Database
from ams.storage.registry import access_lists
from ams.storage.registry.tables import memberships, projects, subscription_access, subscriptions, topics

_decoder = msgspec.json.Decoder(PushConfig)


class Pushed(NamedTuple):
    """A subscription that shall be delivered."""

    id: SubscriptionId
    project: ProjectName
    name: SubscriptionName
    topic: TopicName
    topic_id: str
    """As text; empty when the topic is gone."""
    ack_deadline_seconds: int
    config: PushConfig


def stored(config: PushConfig | None) -> str | None:
    """Return a configuration as the table holds it."""
    return None if config is None else msgspec.json.encode(config).decode()


def read(text: str | None) -> PushConfig | None:
    """Read what the table holds."""
    return None if text is None else _decoder.decode(text)


class PushedRecords:
    """All that shall be delivered. It is asked for all the time and changes seldom: so it is read when it changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[str | None, Sequence[Pushed]] = None, ()

    async def all(self) -> Sequence[Pushed]:
        """Return them, oldest first; the same object as before when nothing has changed."""
        self._known = await self._database.read(self._read)
        return self._known[1]

    def _read(self, connection: Connection) -> tuple[str | None, Sequence[Pushed]]:
        stamp, known = connection.scalar(_STAMP[connection.dialect.name]), self._known
        if stamp == known[0]:
            return known
        rows = connection.execute(_PUSHED).all()
        found = [Pushed(*row[:4], row[4] or "", row[5], _decoder.decode(row[6])) for row in rows]
        return stamp, [each for each in found if each.config.verified]


_PUSHED = (
    select(
        subscriptions.c.id,
        projects.c.name,
        subscriptions.c.name,
        subscriptions.c.topic,
        topics.c.id,
        subscriptions.c.ack_deadline_seconds,
        subscriptions.c.push,
    )
    .join(projects, projects.c.id == subscriptions.c.project_id)
    .outerjoin(topics, (topics.c.project_id == subscriptions.c.project_id) & (topics.c.name == subscriptions.c.topic))
    .where(subscriptions.c.push.is_not(None))
    .order_by(subscriptions.c.number)
)
_GATHERED = {"sqlite": "group_concat({each}, ' ')", "postgresql": "md5(string_agg({each}, ' '))"}
_EACH = (
    "subscriptions.id || projects.name || ' ' || subscriptions.name || ' ' || subscriptions.topic || ' '"
    " || COALESCE(topics.id, '') || CAST(subscriptions.ack_deadline_seconds AS TEXT) || subscriptions.push"
)
_STAMP = {
    dialect: text(
        f"""
        SELECT {gathered.format(each=_EACH)} FROM subscriptions
        JOIN projects ON projects.id = subscriptions.project_id
        LEFT JOIN topics ON topics.project_id = subscriptions.project_id AND topics.name = subscriptions.topic
        WHERE subscriptions.push IS NOT NULL
        """  # noqa: S608 - nothing but constants is joined
    )
    for dialect, gathered in _GATHERED.items()
}
"""A text that is another one when anything of it has changed: reading the rows takes five times as long."""


def place_worker(
    connection: Connection,
    project: ProjectId,
    subscription: SubscriptionId,
    worker: UserId | None,
    *,
    delivered: bool,
) -> None:
    """Put the worker where the subscription is, or take it off its list; without a worker nobody moves (17.3, U2)."""
    if worker is None:
        return
    if not delivered:
        access_lists.remove(connection, subscription_access, subscription, worker)
        return
    _link(connection, project, worker)
    access_lists.add(connection, subscription_access, subscription, worker)


def _link(connection: Connection, project: ProjectId, worker: UserId) -> None:
    """Make the worker a member, without roles; one that is a member already stays as it is (17.3, U14)."""
    known = select(memberships.c.number).where(memberships.c.user_id == worker, memberships.c.project_id == project)
    if connection.scalar(known) is None:
        row = insert(memberships).values(user_id=worker, project_id=project, roles=json.dumps(()))
        connection.execute(row)
