"""Quotas of what the registry stores, checked in the transaction that adds to it, and how much each project uses."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, exists, func, select

from ams.core import quotas
from ams.core.names import ProjectId
from ams.core.quotas import COUNTED, MEMBERS, NO_LIMITS, SCHEMA_BYTES, SCHEMAS, SUBSCRIPTIONS, TOPICS, Quotas
from ams.storage.database.database import Database
from ams.storage.registry.tables import memberships, projects, schema_revisions, schemas, subscriptions, topics, users

_TABLES: Mapping[str, Table] = {TOPICS: topics, SUBSCRIPTIONS: subscriptions, SCHEMAS: schemas, MEMBERS: memberships}
_SIZE = func.coalesce(func.sum(schema_revisions.c.bytes), 0)


class QuotaRecords:
    """The quotas of every project, and what is used of those that the registry counts."""

    def __init__(self, database: Database, quotas: Quotas) -> None:
        self._database = database
        self.rules = quotas

    def require(self, connection: Connection, project: str, *names: str) -> None:
        """Raise `QuotaExceeded` when a project has more of something than it may; to be called when it was added.

        Not before: a name that is taken is said first. Writes run as if one after the other, so two at once cannot
        pass together.
        """
        for name in names:
            self._require(connection, project, name)

    async def require_room(self, project: ProjectId, name: str) -> None:
        """Raise `QuotaExceeded`, or `RegistryUnavailable` on a full disk, when one more would be refused.

        For who makes something elsewhere first, which would be left behind. What comes at the same time passes too:
        `require` decides.
        """
        await self._database.read(lambda connection: self._require(connection, project, name, 1))
        await self._database.require_room()

    async def used(self, project: ProjectId) -> quotas.Limits:
        """Return how much a project uses of each quota that the registry counts."""
        return await self._database.read(
            lambda connection: {name: connection.scalar(_query(name, project)) or 0 for name in COUNTED}
        )

    def _require(self, connection: Connection, project: str, name: str, more: int = 0) -> None:
        own = connection.scalar(select(projects.c.quotas).where(projects.c.id == project)) or NO_LIMITS
        if self.rules.limit(own, name):
            self.rules.check(own, name, (connection.scalar(_query(name, project)) or 0) + more)


def _query(name: str, project: str) -> Any:
    if name == SCHEMA_BYTES:
        joined = schema_revisions.join(schemas, schemas.c.id == schema_revisions.c.schema_id)
        return select(_SIZE).select_from(joined).where(schemas.c.project_id == project)
    table = _TABLES[name]
    is_own: ColumnElement[bool] = table.c.project_id == project
    counted = select(func.count()).select_from(table).where(is_own)
    if name != MEMBERS:
        return counted
    # Also users who were made here and removed: without them a project_admin could fill the registry with users.
    is_left: ColumnElement[bool] = ~exists().where(memberships.c.user_id == users.c.id)
    left = select(func.count()).select_from(users).where(users.c.made_in == project, is_left)
    return select(counted.scalar_subquery() + left.scalar_subquery())
