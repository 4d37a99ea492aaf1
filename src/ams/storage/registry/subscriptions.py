"""Subscriptions in the registry."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.errors import SubscriptionGone
from ams.core.names import ProjectId, ProjectName, SubscriptionId, SubscriptionName, TopicName, UserId, UserName
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.database.invalidation import SUBSCRIPTION, Forget
from ams.storage.registry import access_lists, push, push_secrets
from ams.storage.registry.paging import Page, PageRequest, read_page
from ams.storage.registry.records import NOBODY, Subscription
from ams.storage.registry.tables import projects, subscription_access, subscriptions

PushChange = Callable[[PushConfig | None], PushConfig | None]
"""Makes a new push configuration of the present one; what it raises leaves everything as it was."""


class Title(NamedTuple):
    """What a subscription is called, and where."""

    project: ProjectName
    name: SubscriptionName


class SubscriptionRecords:
    """Subscriptions by project and name."""

    def __init__(self, database: Database, clock: Clock, cache_size: int) -> None:
        self._database = database
        self._clock = clock
        self._by_name: Cache[tuple[str, str], Subscription] = database.invalidations.new_cache(cache_size)
        self._pushed = push.PushedRecords(database)
        database.invalidations.on(SUBSCRIPTION, lambda project, name: self._by_name.forget((project, name)))

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
        return await self._database.read(
            lambda connection: read_page(connection, query, subscriptions.c.number, page).map(_subscription)
        )

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

    async def titles(self, identities: Collection[SubscriptionId]) -> Mapping[SubscriptionId, Title]:
        """Return what those of a few subscriptions are called that exist."""
        query = (
            select(subscriptions.c.id, projects.c.name.label("project"), subscriptions.c.name)
            .join(projects, projects.c.id == subscriptions.c.project_id)
            .where(subscriptions.c.id.in_(identities))
        )
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return {row.id: Title(row.project, row.name) for row in rows}

    async def pushed(self) -> Sequence[push.Pushed]:
        """Return all subscriptions that shall be delivered, oldest first; the same object when nothing has changed."""
        return await self._pushed.all()

    async def create(
        self,
        identity: SubscriptionId,
        project: ProjectId,
        name: SubscriptionName,
        topic: TopicName,
        ack_deadline_seconds: int,
        config: PushConfig | None = None,
        worker: UserId | None = None,
    ) -> Subscription:
        """Register a subscription; raise `AlreadyExists` when the name is taken, `NotFound` when the project is gone.

        `ack_deadline_seconds` is in seconds; `worker` is who delivers, if `config` is to be delivered from now on.
        """
        now = self._clock.wall()
        row = insert(subscriptions).values(
            id=identity,
            project_id=project,
            name=name,
            topic=topic,
            ack_deadline_seconds=ack_deadline_seconds,
            push=push.stored(config),
            created_on=now,
        )

        def work(connection: Connection) -> None:
            connection.execute(row)
            if config is not None and config.verified:
                push.place_worker(connection, project, identity, worker, delivered=True)

        await self._database.write(work)
        return Subscription(identity, project, name, topic, ack_deadline_seconds, config, now)

    async def set_ack_deadline(self, project: ProjectId, name: SubscriptionName, seconds: int) -> bool:
        """Change the deadline; False when there is no such subscription."""
        change = update(subscriptions).where(_is(project, name)).values(ack_deadline_seconds=seconds)
        changed = await self._database.write(
            lambda connection: connection.execute(change).rowcount, _forget(project, name)
        )
        return changed > 0

    async def change_push(
        self, project: ProjectId, name: SubscriptionName, change: PushChange, worker: UserId | None
    ) -> None:
        """Replace the push configuration in one step, and put the worker where it has to deliver now.

        What is not delivered to an endpoint any more loses the secrets its deliveries were signed with.

        Raises `SubscriptionGone`, then whatever `change` raises.
        """

        def work(connection: Connection) -> None:
            row = connection.execute(select(subscriptions).where(_is(project, name)).with_for_update()).first()
            if row is None:
                raise SubscriptionGone
            before = push.read(row.push)
            after = change(before)
            connection.execute(update(subscriptions).where(_is(project, name)).values(push=push.stored(after)))
            if after is None or after.type != HTTP_ENDPOINT:
                push_secrets.forget(connection, row.id)
            if (before and before.verified) or (after and after.verified):
                delivered = after is not None and after.verified
                push.place_worker(connection, project, row.id, worker, delivered=delivered)

        await self._database.write(work, _forget(project, name))

    async def place_worker(self, worker: UserId) -> None:
        """Put the worker where it has to deliver, wherever it is missing. For the start, before anything is cached."""
        query = select(subscriptions).where(subscriptions.c.push.is_not(None))

        def work(connection: Connection) -> None:
            for row in connection.execute(query).all():
                config = push.read(row.push)
                if config is not None and config.verified:
                    push.place_worker(connection, row.project_id, row.id, worker, delivered=True)

        await self._database.write(work)

    async def delete(self, project: ProjectId, name: SubscriptionName) -> Subscription | None:
        """Remove a subscription and its access list; return what it was, None when there was none."""
        removal = delete(subscriptions).where(_is(project, name)).returning(*subscriptions.c)

        def work(connection: Connection) -> Subscription | None:
            row = connection.execute(removal).first()
            return _subscription(row) if row else None

        return await self._database.write(work, _forget(project, name))

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
                raise SubscriptionGone
            access_lists.replace(connection, subscription_access, identity, listed)

        await self._database.write(work, _forget(project, name))


def _forget(project: ProjectId, name: SubscriptionName) -> Forget:
    return Forget(SUBSCRIPTION, (project, name))


def _is(project: ProjectId, name: SubscriptionName) -> ColumnElement[bool]:
    return (subscriptions.c.project_id == project) & (subscriptions.c.name == name)


def _find(connection: Connection, project: ProjectId, name: SubscriptionName) -> Subscription | None:
    row = connection.execute(select(subscriptions).where(_is(project, name))).first()
    return _subscription(row, access_lists.authorized(connection, subscription_access, row.id)) if row else None


def _subscription(row: Row[Any], authorized: frozenset[UserId] = NOBODY) -> Subscription:
    config = push.read(row.push)
    return Subscription(
        row.id, row.project_id, row.name, row.topic, row.ack_deadline_seconds, config, row.created_on, authorized
    )
