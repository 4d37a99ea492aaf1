"""Parallel subscriptions in the registry: their options, and snapshots of where they stood."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, Damaged
from ams.core.names import Offset, ProjectId, SnapshotName, TopicId, topic_id, topic_id_text
from ams.core.offsets import packed, unpacked
from ams.storage.database.database import first
from ams.storage.registry.records import Page, PageRequest, Snapshot
from ams.storage.registry.statements import Records, page_of, record
from ams.storage.registry.tables import snapshots, subscriptions, topics

MOST_SNAPSHOTS = 5000  # of one project


IS_ATTACHED: sa.ColumnElement[bool] = sa.or_(
    subscriptions.c.parallel.is_(None), ~sa.type_coerce(subscriptions.c.parallel, sa.Text).contains('"detached":true')
)
"""In a query: the subscription is not detached. Only a field is written so: in texts, quotes are escaped."""


class SnapshotRecords(Records):
    """Snapshots by project and name; one that has expired is not there, whether it was deleted already or not."""

    async def create(self, made: Snapshot) -> bool:
        """Make a snapshot, in place of an expired one of its name; False, and nothing made, when its topic is gone.

        Raises `AlreadyExists`, `NotFound` when the project is gone, `Conflict` when it has very many.
        """
        topic = topic_id_text(made.topic_id)
        row = sa.insert(snapshots).values(
            project_id=made.project_id, name=made.name, topic_id=topic, floor=made.floor, done=packed(made.done),
            created_on=made.created_on, expires_on=made.expires_on, labels=made.labels,
        )  # fmt: skip
        has_expired = snapshots.c.expires_on <= self._retention_clock.wall()
        expired = sa.delete(snapshots).where(_is(made.project_id, made.name), has_expired)
        of_project = snapshots.c.project_id == made.project_id
        count = self._there(sa.select(sa.func.count()).select_from(snapshots)).where(of_project)

        def work(connection: sa.Connection) -> bool:
            if connection.scalar(sa.select(topics.c.id).where(topics.c.id == topic)) is None:
                return False
            connection.execute(expired)
            if (connection.scalar(count) or 0) >= MOST_SNAPSHOTS:
                raise Conflict(f"A project has at most {MOST_SNAPSHOTS} snapshots")
            connection.execute(row)
            return True

        return await self._database.write(work)

    async def find(self, project: ProjectId, name: SnapshotName) -> Snapshot | None:
        """Return a snapshot, None when there is none; raise `Damaged` when what is stored of it cannot be read."""
        query = self._there(_LISTED.add_columns(snapshots.c.done)).where(_is(project, name))
        return await self._database.row(query, lambda row: _snapshot(row, done_of(row)))

    async def page(self, project: ProjectId, page: PageRequest) -> Page[Snapshot]:
        """Return a page of the snapshots of a project, newest first; raise `InvalidInput` "Invalid page token"."""
        query = self._there(_LISTED).where(snapshots.c.project_id == project)
        return await page_of(self._database, query, snapshots.c.number, page, _snapshot)

    async def of_topic(self, topic: TopicId, page: PageRequest) -> Page[SnapshotName]:
        """Return a page of the names of the snapshots of a topic, newest first; raise `InvalidInput`."""
        query = self._there(_LISTED).where(snapshots.c.topic_id == topic_id_text(topic))
        return await page_of(self._database, query, snapshots.c.number, page, lambda row: row.name)

    async def set_labels(self, project: ProjectId, name: SnapshotName, labels: Mapping[str, str]) -> Snapshot | None:
        """Replace the labels of a snapshot; return it without what was done, None when there is none."""
        return await self._change(project, name, labels=labels)

    async def set_expiry(self, project: ProjectId, name: SnapshotName, moment: Milliseconds) -> Snapshot | None:
        """Change when a snapshot ends; return it likewise."""
        return await self._change(project, name, expires_on=moment)

    async def delete(self, project: ProjectId, name: SnapshotName) -> bool:
        """Remove a snapshot; return whether there was one."""
        removal = self._there(sa.delete(snapshots)).where(_is(project, name))
        return await self._database.change(removal, grows=False) > 0

    async def floors(self) -> Sequence[tuple[TopicId, Offset]]:
        """Return for each snapshot the first offset of its topic that was not done."""
        query = self._there(sa.select(snapshots.c.topic_id, snapshots.c.floor))
        return await self._database.rows(query, lambda row: (topic_id(row.topic_id), Offset(row.floor)))

    async def delete_expired(self, now: Milliseconds) -> int:
        """Remove those that expired by a moment; return how many."""
        removal = sa.delete(snapshots).where(snapshots.c.expires_on <= now)
        return await self._database.change(removal, grows=False)

    async def _change(self, project: ProjectId, name: SnapshotName, **values: object) -> Snapshot | None:
        change = self._there(sa.update(snapshots)).where(_is(project, name)).values(**values)

        def work(connection: sa.Connection) -> Snapshot | None:
            if not connection.execute(change).rowcount:
                return None
            return first(connection, _LISTED.where(_is(project, name)), _snapshot)

        return await self._database.write(work)

    def _there(self, statement: Any) -> Any:
        return statement.where(snapshots.c.expires_on > self._retention_clock.wall())


_LISTED: sa.Select[Any] = sa.select(
    snapshots.c.number, snapshots.c.project_id, snapshots.c.name, snapshots.c.topic_id, topics.c.name.label("topic"),
    snapshots.c.floor, snapshots.c.created_on, snapshots.c.expires_on, snapshots.c.labels,
).join(topics, topics.c.id == snapshots.c.topic_id)  # fmt: skip


def _is(project: ProjectId, name: SnapshotName) -> sa.ColumnElement[bool]:
    return (snapshots.c.project_id == project) & (snapshots.c.name == name)


def done_of(row: sa.Row[Any]) -> BitMap64:
    """Return what was done of a snapshot; raise `Damaged`."""
    try:
        return unpacked(row.done)
    except ValueError as error:
        raise Damaged(f"snapshot {row.name} of project {row.project_id}: {error}") from None


def _snapshot(row: sa.Row[Any], done: BitMap64 | None = None) -> Snapshot:
    return record(Snapshot, row, topic_id=topic_id(row.topic_id), done=done or BitMap64())
