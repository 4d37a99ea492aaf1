"""Parallel subscriptions in the registry: their options, snapshots of where they stood, and which node works on which.

There is a row for each node, with the moment until which it lives, by the database's clock, so that a renewal writes
one row however much a node owns. Turns of nodes are taken one after the other: no two of them get the same.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, Damaged
from ams.core.names import Offset, ProjectId, SnapshotName, SubscriptionId, TopicId, topic_id, topic_id_text
from ams.core.offsets import packed, unpacked
from ams.storage.registry.records import Page, PageRequest, Snapshot
from ams.storage.registry.statements import Records, Statement, among, page_of, record
from ams.storage.registry.tables import parallel_nodes, parallel_owners, snapshots, subscriptions, topics

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
        has_expired = snapshots.c.expires_on <= self._clock.wall()
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

    async def set_labels(self, project: ProjectId, name: SnapshotName, labels: Mapping[str, str]) -> bool:
        """Replace the labels of a snapshot; return whether there is one."""
        return await self._change(project, name, labels=labels)

    async def set_expiry(self, project: ProjectId, name: SnapshotName, moment: Milliseconds) -> bool:
        """Change when a snapshot ends; return whether there is one."""
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

    async def _change(self, project: ProjectId, name: SnapshotName, **values: object) -> bool:
        change = self._there(sa.update(snapshots)).where(_is(project, name)).values(**values)
        return await self._database.change(change) > 0

    def _there(self, statement: Any) -> Any:
        return statement.where(snapshots.c.expires_on > self._clock.wall())


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


OWNED_SECONDS = 6.0  # how long a node owns what it has without renewing that
_LEASE_MS = round(OWNED_SECONDS * 1000)
_TURN = 0x616D735F6F776E73  # "ams_owns" in ASCII
_NOTHING: Collection[SubscriptionId] = ()


class Node(NamedTuple):
    """A node, and how others reach it."""

    name: str  # another one at each start
    url: str  # Empty: not known
    pubsub: str = ""  # HOST:PORT of its Google Pub/Sub port; empty: none, or not known


class Turn(NamedTuple):
    """The result of a node's turn."""

    is_kept: bool  # whether it still owned what it had. False as well at its first turn.
    owners: Mapping[SubscriptionId, Node]  # of the subscriptions it asked for, without those that are gone


class OwnerRecords(Records):
    """Nodes, and the subscriptions that they own."""

    async def turn(
        self,
        node: Node,
        wanted: Collection[SubscriptionId] = _NOTHING,
        *,
        seized: Collection[SubscriptionId] = _NOTHING,
        released: Collection[SubscriptionId] = _NOTHING,
    ) -> Turn:
        """Renew what a node owns, release some, and give it of the `wanted` all that nobody else owns.

        It gets `seized` ones from any other node. Raises `RegistryUnavailable`.
        """

        def work(connection: sa.Connection) -> Turn:
            _ENDED.run(connection, clock=self._clock)
            is_kept = connection.scalar(sa.select(parallel_nodes.c.node).where(parallel_nodes.c.node == node.name))
            said = {"node": node.name, "url": node.url, "pubsub": node.pubsub or None}
            _LIVES.run(connection, clock=self._clock, **said, lease=_LEASE_MS)
            _release(connection, node.name, released)
            if seized:
                _release(connection, None, seized)
            asked = sorted({*wanted, *seized})
            if not asked:
                return Turn(is_kept is not None, {})
            _CLAIM.run(connection, [(each,) for each in asked], node=node.name)
            rows = connection.execute(_OWNERS.where(parallel_owners.c.subscription_id.in_(among(connection, asked))))
            return Turn(is_kept is not None, {row.subscription_id: _node(row) for row in rows})

        return await self._database.in_turn(work, _TURN)

    async def owner(self, subscription: SubscriptionId) -> Node | None:
        """Return who owns a subscription; None: no node does. Raises `RegistryUnavailable`."""
        row = await self._database.read(
            lambda connection: _OWNER.run(connection, clock=self._clock, subscription=subscription).first()
        )
        return _node(row) if row else None

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes that live, by how others reach them. Raises `RegistryUnavailable`."""
        rows = await self._database.read(lambda connection: _ALIVE.run(connection, clock=self._clock).all())
        return [_node(row) for row in rows]

    async def leave(self, node: Node) -> None:
        """Release all that a node owns. Raises `RegistryUnavailable`."""
        leaving = sa.delete(parallel_nodes).where(parallel_nodes.c.node == node.name)
        await self._database.in_turn(lambda connection: connection.execute(leaving).rowcount, _TURN)


def _release(connection: sa.Connection, node: str | None, subscriptions: Collection[SubscriptionId]) -> None:
    """Release what a node owns of these; None: what any node does."""
    if not subscriptions:
        return
    is_asked = parallel_owners.c.subscription_id.in_(among(connection, sorted(subscriptions)))
    removal = sa.delete(parallel_owners).where(is_asked)
    connection.execute(removal if node is None else removal.where(parallel_owners.c.node == node))


def _node(row: sa.Row[Any]) -> Node:
    return Node(row.node, row.url, row.pubsub or "")


_ENDED = Statement("DELETE FROM parallel_nodes WHERE until <= {now}")
_LIVES = Statement("""
    INSERT INTO parallel_nodes (node, url, pubsub, until) VALUES (:node, :url, :pubsub, {now} + :lease)
    ON CONFLICT (node) DO UPDATE SET until = excluded.until
    """)
_CLAIM = Statement("""
    INSERT INTO parallel_owners (subscription_id, node)
    SELECT subscriptions.id, :node FROM {given} JOIN subscriptions ON subscriptions.id = text(0)
    WHERE NOT EXISTS (SELECT 1 FROM parallel_owners WHERE subscription_id = subscriptions.id) {kept}
    """)
_OWNER = Statement("""
    SELECT node, url, pubsub FROM parallel_owners JOIN parallel_nodes USING (node)
    WHERE subscription_id = :subscription AND until > {now}
    """)
_ALIVE = Statement("SELECT node, url, pubsub FROM parallel_nodes WHERE until > {now} ORDER BY url, node")
_OWNERS = sa.select(parallel_owners.c.subscription_id, parallel_nodes).join(
    parallel_nodes, parallel_nodes.c.node == parallel_owners.c.node
)
