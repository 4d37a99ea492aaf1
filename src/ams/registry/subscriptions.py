"""Subscriptions in the registry."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from ams.clock import Clock
from ams.errors import NotFound
from ams.names import ProjectId, SubscriptionId, SubscriptionName, TopicName, UserId, UserName
from ams.registry import access_lists
from ams.registry.cache import Cache
from ams.registry.database import Database
from ams.registry.paging import Page, PageRequest, read_page
from ams.registry.records import NOBODY, Subscription
from ams.registry.tables import subscription_access, subscriptions


class SubscriptionRecords:
    """Subscriptions by project and name."""

    def __init__(self, database: Database, clock: Clock, cache_size: int) -> None:
        self._database = database
        self._clock = clock
        self._by_name: Cache[tuple[ProjectId, str], Subscription] = Cache(cache_size)

    async def find(self, project: ProjectId, name: SubscriptionName) -> Subscription | None:
        """Return a subscription with its access list, None when there is none; cached."""
        return await self._by_name.find(
            (project, name), lambda: self._database.read(lambda connection: _find(connection, project, name))
        )

    async def page(self, project: ProjectId, page: PageRequest, *, listed: UserId | None = None) -> Page[Subscription]:
        """Return a page of a project's subscriptions, newest first; with `listed`, those whose access list holds it.

        Raises `InvalidInput` "Invalid page token".
        """
        query = select(subscriptions).where(subscriptions.c.project_id == project)
        if listed is not None:
            on_lists = access_lists.holding(subscriptions, subscription_access, listed)
            query = query.where(subscriptions.c.number.in_(on_lists))
        rows = await self._database.read(lambda connection: read_page(connection, query, subscriptions.c.number, page))
        return rows.map(_subscription)

    async def of_topic(self, project: ProjectId, topic: TopicName) -> Sequence[SubscriptionName]:
        """Return the names of all subscriptions to a topic's name, oldest first."""
        query = (
            select(subscriptions.c.name)
            .where(subscriptions.c.project_id == project, subscriptions.c.topic == topic)
            .order_by(subscriptions.c.number)
        )
        return await self._database.read(lambda connection: connection.scalars(query).all())

    async def all(self) -> Sequence[Subscription]:
        """Return all subscriptions of all projects, oldest first, without access lists."""
        query = select(subscriptions).order_by(subscriptions.c.number)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [_subscription(row) for row in rows]

    async def ids(self) -> frozenset[SubscriptionId]:
        """Return the identities of all subscriptions."""
        query = select(subscriptions.c.id)
        return await self._database.read(lambda connection: frozenset(connection.scalars(query)))

    async def create(
        self,
        identity: SubscriptionId,
        project: ProjectId,
        name: SubscriptionName,
        topic: TopicName,
        ack_deadline_seconds: int,
    ) -> Subscription:
        """Register a subscription; raise `AlreadyExists` when the name is taken, `NotFound` when the project is gone.

        `ack_deadline_seconds` is in seconds.
        """
        now = self._clock.wall()
        row = insert(subscriptions).values(
            id=identity,
            project_id=project,
            name=name,
            topic=topic,
            ack_deadline_seconds=ack_deadline_seconds,
            created_on=now,
        )
        await self._database.write(lambda connection: connection.execute(row))
        return Subscription(identity, project, name, topic, ack_deadline_seconds, None, now)

    async def set_ack_deadline(self, project: ProjectId, name: SubscriptionName, seconds: int) -> bool:
        """Change the deadline; False when there is no such subscription."""
        change = update(subscriptions).where(_is(project, name)).values(ack_deadline_seconds=seconds)
        changed = await self._database.write(
            lambda connection: connection.execute(change).rowcount, lambda: self._by_name.forget((project, name))
        )
        return changed > 0

    async def delete(self, project: ProjectId, name: SubscriptionName) -> SubscriptionId | None:
        """Remove a subscription and its access list; return its identity, None when there was none."""
        removal = delete(subscriptions).where(_is(project, name)).returning(subscriptions.c.id)
        identity: SubscriptionId | None = await self._database.write(
            lambda connection: connection.scalar(removal), lambda: self._by_name.forget((project, name))
        )
        return identity

    async def access_list(self, project: ProjectId, name: SubscriptionName) -> Sequence[UserName]:
        """Return the names on a subscription's access list, in stored order."""
        return await self._database.read(
            lambda connection: access_lists.names(connection, subscription_access, _is(project, name))
        )

    async def set_access_list(self, project: ProjectId, name: SubscriptionName, users: Sequence[str]) -> None:
        """Replace an access list; raise `NotFound` for users who are no members, then for the subscription."""

        def work(connection: Connection) -> None:
            listed = access_lists.members(connection, project, users)
            identity = connection.scalar(select(subscriptions.c.id).where(_is(project, name)))
            if identity is None:
                raise NotFound("Subscription doesn't exist")
            access_lists.replace(connection, subscription_access, identity, listed)

        await self._database.write(work, lambda: self._by_name.forget((project, name)))


def _is(project: ProjectId, name: SubscriptionName) -> ColumnElement[bool]:
    return (subscriptions.c.project_id == project) & (subscriptions.c.name == name)


def _find(connection: Connection, project: ProjectId, name: SubscriptionName) -> Subscription | None:
    row = connection.execute(select(subscriptions).where(_is(project, name))).first()
    return _subscription(row, access_lists.authorized(connection, subscription_access, row.id)) if row else None


def _subscription(row: Row[Any], authorized: frozenset[UserId] = NOBODY) -> Subscription:
    return Subscription(
        row.id, row.project_id, row.name, row.topic, row.ack_deadline_seconds, row.push, row.created_on, authorized
    )
