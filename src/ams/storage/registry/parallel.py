"""Parallel subscriptions in the registry: their options, and snapshots of where they stood."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyroaring import BitMap64
from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, update

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Conflict, Damaged
from ams.core.names import Offset, ProjectId, SnapshotName, TopicId, topic_id, topic_id_text
from ams.core.offsets import packed, unpacked
from ams.core.parallel_options import ParallelOptions
from ams.storage.database.database import Database
from ams.storage.registry.records import Page, PageRequest, Snapshot
from ams.storage.registry.statements import read_page
from ams.storage.registry.tables import snapshots, subscriptions, topics

MOST_SNAPSHOTS = 5000
"""Of one project."""
_options = msgspec.json.Decoder(ParallelOptions)


def stored(options: ParallelOptions | None) -> str | None:
    """Return options as the table holds them."""
    return None if options is None else msgspec.json.encode(options).decode()


def read(text: str | None) -> ParallelOptions | None:
    """Read what the table holds."""
    return None if text is None else _options.decode(text)


def is_detached(text: str | None) -> bool:
    """Say of what the table holds whether the subscription is detached."""
    options = read(text)
    return options is not None and options.detached


IS_ATTACHED: ColumnElement[bool] = or_(
    subscriptions.c.parallel.is_(None), ~subscriptions.c.parallel.contains('"detached":true')
)
"""Whether a subscription is not detached, in a query. Only a field is written so: in texts, quotes are escaped."""


class SnapshotRecords:
    """Snapshots by project and name; one that has expired is not there, whether it was deleted already or not."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, made: Snapshot) -> bool:
        """Make a snapshot, and remove all that have expired; False, and nothing made, when its topic is gone.

        Raises `AlreadyExists` when the name is taken, `NotFound` when the project is gone, `Conflict` when it has very
        many.
        """
        topic = topic_id_text(made.topic_id)
        row = insert(snapshots).values(
            project_id=made.project_id, name=made.name, topic_id=topic, floor=made.floor, done=packed(made.done),
            created_on=made.created_on, expires_on=made.expires_on, labels=made.labels,
        )  # fmt: skip
        expired = delete(snapshots).where(snapshots.c.expires_on <= self._clock.wall())

        count = select(func.count()).select_from(snapshots).where(snapshots.c.project_id == made.project_id)

        def work(connection: Connection) -> bool:
            if connection.scalar(select(topics.c.id).where(topics.c.id == topic)) is None:
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
        row = await self._database.read(lambda connection: connection.execute(query).first())
        return _snapshot(row, done_of(row)) if row else None

    async def page(self, project: ProjectId, page: PageRequest) -> Page[Snapshot]:
        """Return a page of the snapshots of a project, newest first; raise `InvalidInput` "Invalid page token"."""
        query = self._there(_LISTED).where(snapshots.c.project_id == project)
        return await self._database.read(
            lambda connection: read_page(connection, query, snapshots.c.number, page).map(_snapshot)
        )

    async def of_topic(self, topic: TopicId, page: PageRequest) -> Page[SnapshotName]:
        """Return a page of the names of the snapshots of a topic, newest first; raise `InvalidInput`."""
        query = self._there(_LISTED).where(snapshots.c.topic_id == topic_id_text(topic))
        found = await self._database.read(lambda connection: read_page(connection, query, snapshots.c.number, page))
        return found.map(lambda row: row.name)

    async def set_labels(self, project: ProjectId, name: SnapshotName, labels: Mapping[str, str]) -> bool:
        """Replace the labels of a snapshot; return whether there is one."""
        return await self._change(project, name, labels=labels)

    async def set_expiry(self, project: ProjectId, name: SnapshotName, moment: Milliseconds) -> bool:
        """Change when a snapshot ends; return whether there is one."""
        return await self._change(project, name, expires_on=moment)

    async def delete(self, project: ProjectId, name: SnapshotName) -> bool:
        """Remove a snapshot; return whether there was one."""
        removal = self._there(delete(snapshots)).where(_is(project, name))
        return await self._database.write(lambda connection: connection.execute(removal).rowcount > 0, grows=False)

    async def floors(self) -> Sequence[tuple[TopicId, Offset]]:
        """Return for each snapshot the first offset of its topic that was not done."""
        query = self._there(select(snapshots.c.topic_id, snapshots.c.floor))
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [(topic_id(row.topic_id), Offset(row.floor)) for row in rows]

    async def delete_expired(self) -> int:
        """Remove those that have expired; return how many."""
        removal = delete(snapshots).where(snapshots.c.expires_on <= self._clock.wall())
        return await self._database.write(lambda connection: connection.execute(removal).rowcount, grows=False)

    async def _change(self, project: ProjectId, name: SnapshotName, **values: object) -> bool:
        change = self._there(update(snapshots)).where(_is(project, name)).values(**values)
        return await self._database.write(lambda connection: connection.execute(change).rowcount > 0)

    def _there(self, statement: Any) -> Any:
        return statement.where(snapshots.c.expires_on > self._clock.wall())


_LISTED: Select[Any] = select(
    snapshots.c.number, snapshots.c.project_id, snapshots.c.name, snapshots.c.topic_id, topics.c.name.label("topic"),
    snapshots.c.floor, snapshots.c.created_on, snapshots.c.expires_on, snapshots.c.labels,
).join(topics, topics.c.id == snapshots.c.topic_id)  # fmt: skip


def _is(project: ProjectId, name: SnapshotName) -> ColumnElement[bool]:
    return (snapshots.c.project_id == project) & (snapshots.c.name == name)


def done_of(row: Row[Any]) -> BitMap64:
    """Return what was done of a snapshot; raise `Damaged`."""
    try:
        return unpacked(row.done)
    except ValueError as error:
        raise Damaged(f"snapshot {row.name} of project {row.project_id}: {error}") from None


def _snapshot(row: Row[Any], done: BitMap64 | None = None) -> Snapshot:
    return Snapshot(
        row.project_id, row.name, topic_id(row.topic_id), row.topic, row.floor, row.created_on, row.expires_on,
        done or BitMap64(), row.labels,
    )  # fmt: skip
