"""IAM policies of topics, subscriptions, snapshots and schemas: the access list, and what has no effect here."""

from typing import NamedTuple

import sqlalchemy as sa

from ams.core import iam
from ams.core.iam import Bindings, Policy
from ams.core.names import ProjectId
from ams.core.versions import Precondition
from ams.storage.database.invalidation import SUBSCRIPTION, TOPIC, Invalidation
from ams.storage.registry.statements import Records
from ams.storage.registry.tables import (
    memberships,
    schemas,
    snapshots,
    subscription_access,
    subscriptions,
    topic_access,
    topics,
    users,
)


class _Kind(NamedTuple):
    table: sa.Table
    access: sa.Table | None = None  # None: it has no access list
    cached_as: str = ""


_KINDS = {
    "topics": _Kind(topics, topic_access, TOPIC),
    "subscriptions": _Kind(subscriptions, subscription_access, SUBSCRIPTION),
    "snapshots": _Kind(snapshots),
    "schemas": _Kind(schemas),
}


class PolicyRecords(Records):
    """Policies by kind, project and name."""

    async def find(self, kind: str, project: ProjectId, name: str) -> Policy | None:
        """Return a policy; None when the resource is not there."""
        return await self._database.read(lambda connection: _read(connection, _KINDS[kind], project, name))

    async def set(
        self, kind: str, project: ProjectId, name: str, role: str, bindings: Bindings, expected: Precondition
    ) -> Policy | None:
        """Replace a policy, whose access list is for `role`; return it, None when the resource is not there.

        Raises `ChangedMeanwhile` when the one that is there is not the expected one.
        """
        table, access, cached_as = _KINDS[kind]
        of_project = sa.select(users.c.name, users.c.id).join(memberships, memberships.c.user_id == users.c.id)
        members = of_project.where(memberships.c.project_id == project)

        def work(connection: sa.Connection) -> Policy | None:
            before = _read(connection, _KINDS[kind], project, name)
            if before is None:
                return None
            expected.check(lambda: before)
            known = {row.name: row.id for row in connection.execute(members)} if access is not None else {}
            after = iam.split(bindings, role, known)
            connection.execute(sa.update(table).where(_is(table, project, name)).values(iam=after.others))
            if access is not None:
                identity = connection.scalar(sa.select(table.c.id).where(_is(table, project, name)))
                connection.execute(sa.delete(access).where(access.c.resource_id == identity))
                rows = [
                    {"resource_id": identity, "position": place, "user_id": known[user]}
                    for place, user in enumerate(after.users)
                ]
                if rows:
                    connection.execute(sa.insert(access), rows)
            return after

        forgets = [Invalidation(cached_as, (project, name))] if cached_as else []
        return await self._database.write(work, *forgets)


def _is(table: sa.Table, project: ProjectId, name: str) -> sa.ColumnElement[bool]:
    return (table.c.project_id == project) & (table.c.name == name)


def _read(connection: sa.Connection, kind: _Kind, project: ProjectId, name: str) -> Policy | None:
    table, access, _ = kind
    row = connection.execute(sa.select(table.c.iam).where(_is(table, project, name))).first()
    if row is None:
        return None
    listed: list[str] = []
    if access is not None:
        query = sa.select(users.c.name).join(access, access.c.user_id == users.c.id)
        query = query.join(table, table.c.id == access.c.resource_id).where(_is(table, project, name))
        listed = [*connection.scalars(query.order_by(access.c.position))]
    return Policy(listed, row.iam)
