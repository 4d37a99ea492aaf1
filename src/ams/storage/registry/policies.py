"""Access lists of topics and subscriptions (contract 3.5), and IAM policies with further bindings without effect."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from ams.core import iam
from ams.core.errors import NoMembers, SubscriptionGone, TopicGone
from ams.core.iam import Bindings, Policy
from ams.core.names import ProjectId, UserId, UserName
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.invalidation import SUBSCRIPTION, TOPIC, Cache, Invalidation
from ams.storage.registry import tables
from ams.storage.registry.records import NO_USERS, Page, PageRequest, Subscription, Topic
from ams.storage.registry.statements import Records, RegistryContext, is_named
from ams.storage.registry.tables import memberships, users

R = TypeVar("R", Topic, Subscription)
N = TypeVar("N", bound=str)


# Tables of resources and of their access lists, and kinds of invalidation.
_KINDS: Mapping[str, tuple[sa.Table, sa.Table | None, str | None]] = {
    "topics": (tables.topics, tables.topic_access, TOPIC),
    "subscriptions": (tables.subscriptions, tables.subscription_access, SUBSCRIPTION),
    "snapshots": (tables.snapshots, None, None),
    "schemas": (tables.schemas, None, None),
}


class PolicyRecords(Records):
    """Policies by kind, project and name."""

    async def find(self, kind: str, project: ProjectId, name: str) -> Policy | None:
        """Return a policy; None if the resource does not exist."""
        return await self._database.read(lambda connection: _read_policy(connection, kind, project, name))

    async def set(
        self, kind: str, project: ProjectId, name: str, role: str, bindings: Bindings, expected: Precondition
    ) -> Policy | None:
        """Replace a policy, and the access list for `role`; return it, or None. Raises `ChangedMeanwhile`."""
        table, access, cached_as = _KINDS[kind]

        def work(connection: sa.Connection) -> Policy | None:
            before = _read_policy(connection, kind, project, name)
            if before is None:
                return None
            expected.check(lambda: before)
            known = _members(connection, project) if access is not None else {}
            after = iam.split(bindings, role, known)
            connection.execute(sa.update(table).where(is_named(table, project, name)).values(iam=after.others))
            if access is not None:
                identity = connection.scalar(sa.select(table.c.id).where(is_named(table, project, name)))
                _replace_list(connection, access, identity, [known[user] for user in after.users])
            return after

        forgets = [Invalidation(cached_as, (project, name))] if cached_as else []
        return await self._database.write(work, *forgets)


def _read_policy(connection: sa.Connection, kind: str, project: ProjectId, name: str) -> Policy | None:
    table, access, _ = _KINDS[kind]
    row = connection.execute(sa.select(table.c.iam).where(is_named(table, project, name))).first()
    if row is None:
        return None
    listed = [] if access is None else [*_listed_users(connection, table, access, project, name)]
    return Policy(listed, row.iam)


def _listed_users(
    connection: sa.Connection, table: sa.Table, access: sa.Table, project: ProjectId, name: str
) -> Mapping[UserName, UserId]:
    query = (
        sa.select(users.c.name, users.c.id)
        .join(access, access.c.user_id == users.c.id)
        .join(table, table.c.id == access.c.resource_id)
        .where(is_named(table, project, name))
        .order_by(access.c.position)
    )
    return {row.name: row.id for row in connection.execute(query)}


def _members(connection: sa.Connection, project: ProjectId) -> Mapping[str, UserId]:
    query = sa.select(users.c.name, users.c.id).join(memberships)
    return {row.name: row.id for row in connection.execute(query.where(memberships.c.project_id == project))}


def _replace_list(connection: sa.Connection, access: sa.Table, identity: str | None, listed: Iterable[UserId]) -> None:
    connection.execute(sa.delete(access).where(access.c.resource_id == identity))
    rows = [{"resource_id": identity, "position": place, "user_id": user} for place, user in enumerate(listed)]
    if rows:
        connection.execute(sa.insert(access), rows)


class ResourceRecords(Records, Generic[R, N]):
    """Base class for topics and subscriptions: lookup by name, cache, pages, access lists."""

    _kind: str  # kind of invalidation (`ams.storage.database.invalidation`)
    _gone: type[TopicGone | SubscriptionGone]
    _table: sa.Table
    _access: sa.Table
    _query: sa.Select[Any]

    def __init__(self, shared: RegistryContext) -> None:
        super().__init__(shared)
        invalidations = shared.database.invalidations
        self._by_name: Cache[tuple[str, str], R] = invalidations.new_cache()
        # By project and name, cache only; on None ask `find`.
        self.known: Callable[[tuple[str, str]], R | None] = self._by_name.find_cached
        invalidations.on(self._kind, lambda project, name: self._by_name.forget((project, name)))

    async def find(self, project: ProjectId, name: N) -> R | None:
        """Return a topic or subscription with its access list, or None. Cached."""
        read = partial(self._find, project=project, name=name)
        return await self._by_name.find((project, name), lambda: self._database.read(read))

    async def page(self, project: ProjectId, page: PageRequest, *, listed: UserId | None = None) -> Page[R]:
        """Return a page of a project's resources, newest first; with `listed` those with this user on their list."""
        number = self._table.c.number
        query = self._query.where(self._table.c.project_id == project)
        if listed is not None:
            # Few of many: this starts from the access lists instead of scanning the project.
            resources = self._table.alias("listed")
            numbers = sa.select(resources.c.number).join(self._access, self._access.c.resource_id == resources.c.id)
            query = query.where(number.in_(numbers.where(self._access.c.user_id == listed)))
        return await self._page(query, number, page, self._record)

    async def access_list(self, project: ProjectId, name: N) -> Sequence[UserName]:
        """Return the names on an access list, in stored order."""
        return await self._database.read(lambda connection: [*self._listed(connection, project, name)])

    async def change_access_list(
        self,
        project: ProjectId,
        name: N,
        add: Sequence[str],
        remove: Collection[str] | None = None,
        expected: Precondition = ANY_VERSION,
    ) -> Sequence[UserName]:
        """Change an access list and return its names. A user in both lists stays; None removes all others.

        Raises `NotFound` for users who are not members, then for the resource.
        """

        def work(connection: sa.Connection) -> Sequence[UserName]:
            members: Mapping[str, UserId] = _members(connection, project)
            if missing := [user for user in dict.fromkeys(add) if user not in members]:
                raise NoMembers(f"User(s): {', '.join(missing)} do not exist")
            identity: str | None = connection.scalar(sa.select(self._table.c.id).where(self._is(project, name)))
            if identity is None:
                raise self._gone
            present: Mapping[UserName, UserId] = self._listed(connection, project, name)
            expected.check(lambda: [*present])
            kept: list[UserId] = [user for each, user in present.items() if remove is not None and each not in remove]
            _replace_list(connection, self._access, identity, dict.fromkeys([*kept, *(members[user] for user in add)]))
            return [*self._listed(connection, project, name)]

        return await self._database.write(work, self._forget(project, name))

    async def set_labels(self, project: ProjectId, name: N, labels: Mapping[str, str]) -> R | None:
        """Replace the labels; return the topic or subscription, or None."""
        return await self._change(project, name, ANY_VERSION, grows=True, labels=labels)

    async def _change(
        self, project: ProjectId, name: N, expected: Precondition, *, grows: bool = False, **values: object
    ) -> R | None:
        change = sa.update(self._table).where(self._is(project, name)).values(**values)

        def work(connection: sa.Connection) -> R | None:
            expected.check(lambda: self._find(connection, project, name))
            connection.execute(change)
            return self._find(connection, project, name)

        return await self._database.write(work, self._forget(project, name), grows=grows)

    def _find(self, connection: sa.Connection, project: ProjectId, name: N) -> R | None:
        row = connection.execute(self._query.where(self._is(project, name))).first()
        if row is None:
            return None
        listed = sa.select(self._access.c.user_id).where(self._access.c.resource_id == row.id)
        return self._record(row, frozenset(connection.scalars(listed)))

    def _listed(self, connection: sa.Connection, project: ProjectId, name: N) -> Mapping[UserName, UserId]:
        return _listed_users(connection, self._table, self._access, project, name)

    def _is(self, project: ProjectId, name: N) -> sa.ColumnElement[bool]:
        return is_named(self._table, project, name)

    def _forget(self, project: ProjectId, name: N) -> Invalidation:
        return Invalidation(self._kind, (project, name))

    def _record(self, row: sa.Row[Any], authorized: frozenset[UserId] = NO_USERS) -> R:
        raise NotImplementedError
