"""Parallel subscriptions in the registry: options and snapshots."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, Damaged
from ams.core.names import Offset, ProjectId, SnapshotName, TopicId, topic_id, topic_id_text
from ams.core.offsets import decode_bitmap, encode_bitmap
from ams.storage.database.database import first
from ams.storage.registry.records import Page, PageRequest, Snapshot
from ams.storage.registry.statements import Records, is_named, record
from ams.storage.registry.tables import snapshots, subscriptions, topics

MAX_SNAPSHOTS = 5000  # of one project


IS_ATTACHED: sa.ColumnElement[bool] = sa.or_(
    subscriptions.c.parallel.is_(None), ~sa.type_coerce(subscriptions.c.parallel, sa.Text).contains('"detached":true')
)
"""Condition: the subscription is not detached. The text cannot occur in a JSON string, as its quotes are escaped."""


class SnapshotRecords(Records):
    """Snapshots by project and name. Expired snapshots are invisible, even before they are deleted."""

    async def create(self, made: Snapshot) -> bool:
        """Create a snapshot, replacing an expired one of its name; return False if its topic is deleted.

        Raises `AlreadyExists`, `NotFound` for the project, `Conflict` if it has `MAX_SNAPSHOTS`.
        """
        topic = topic_id_text(made.topic_id)
        row = sa.insert(snapshots).values(
            project_id=made.project_id, name=made.name, topic_id=topic, floor=made.floor, done=encode_bitmap(made.done),
            created_on=made.created_on, expires_on=made.expires_on, labels=made.labels,
        )  # fmt: skip
        has_expired = snapshots.c.expires_on <= self._retention_clock.wall()
        expired = sa.delete(snapshots).where(is_named(snapshots, made.project_id, made.name), has_expired)
        of_project = snapshots.c.project_id == made.project_id
        count = self._there(sa.select(sa.func.count()).select_from(snapshots)).where(of_project)

        def work(connection: sa.Connection) -> bool:
            if connection.scalar(sa.select(topics.c.id).where(topics.c.id == topic)) is None:
                return False
            connection.execute(expired)
            if (connection.scalar(count) or 0) >= MAX_SNAPSHOTS:
                raise Conflict(f"A project has at most {MAX_SNAPSHOTS} snapshots")
            connection.execute(row)
            return True

        return await self._database.write(work)

    async def find(self, project: ProjectId, name: SnapshotName) -> Snapshot | None:
        """Return a snapshot, or None. Raises `Damaged`."""
        query = self._there(_LISTED.add_columns(snapshots.c.done)).where(is_named(snapshots, project, name))
        return await self._database.row(query, lambda row: _snapshot(row, done_of(row)))

    async def page(self, project: ProjectId, page: PageRequest) -> Page[Snapshot]:
        """Return a page of a project's snapshots, newest first. Raises `InvalidInput` "Invalid page token"."""
        query = self._there(_LISTED).where(snapshots.c.project_id == project)
        return await self._page(query, snapshots.c.number, page, _snapshot)

    async def of_topic(self, topic: TopicId, page: PageRequest) -> Page[SnapshotName]:
        """Return a page of the names of a topic's snapshots, newest first. Raises `InvalidInput`."""
        query = self._there(_LISTED).where(snapshots.c.topic_id == topic_id_text(topic))
        return await self._page(query, snapshots.c.number, page, lambda row: row.name)

    async def update(self, project: ProjectId, name: SnapshotName, **values: object) -> Snapshot | None:
        """Change the columns `labels` or `expires_on` of a snapshot; return it without `done`, or None."""
        change = self._there(sa.update(snapshots)).where(is_named(snapshots, project, name)).values(**values)

        def work(connection: sa.Connection) -> Snapshot | None:
            if not connection.execute(change).rowcount:
                return None
            return first(connection, _LISTED.where(is_named(snapshots, project, name)), _snapshot)

        return await self._database.write(work)

    async def delete(self, project: ProjectId, name: SnapshotName) -> bool:
        """Delete a snapshot; return whether it existed."""
        removal = self._there(sa.delete(snapshots)).where(is_named(snapshots, project, name))
        return await self._database.change(removal, grows=False) > 0

    async def floors(self) -> Sequence[tuple[TopicId, Offset]]:
        """Return topic and first unacknowledged offset of each snapshot."""
        query = self._there(sa.select(snapshots.c.topic_id, snapshots.c.floor))
        return await self._database.rows(query, lambda row: (topic_id(row.topic_id), Offset(row.floor)))

    async def delete_expired(self, now: Milliseconds) -> int:
        """Delete the snapshots that expired until `now`; return their number."""
        removal = sa.delete(snapshots).where(snapshots.c.expires_on <= now)
        return await self._database.change(removal, grows=False)

    def _there(self, statement: Any) -> Any:
        return statement.where(snapshots.c.expires_on > self._retention_clock.wall())


_LISTED: sa.Select[Any] = sa.select(
    snapshots.c.number, snapshots.c.project_id, snapshots.c.name, snapshots.c.topic_id, topics.c.name.label("topic"),
    snapshots.c.floor, snapshots.c.created_on, snapshots.c.expires_on, snapshots.c.labels,
).join(topics)  # fmt: skip


def done_of(row: sa.Row[Any]) -> BitMap64:
    """Return the acknowledged offsets of a snapshot. Raises `Damaged`."""
    try:
        return decode_bitmap(row.done)
    except ValueError as error:
        raise Damaged(f"snapshot {row.name} of project {row.project_id}: {error}") from None


def _snapshot(row: sa.Row[Any], done: BitMap64 | None = None) -> Snapshot:
    return record(Snapshot, row, topic_id=topic_id(row.topic_id), done=done or BitMap64())
