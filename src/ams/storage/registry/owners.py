"""Owners in the registry: which node works on which parallel subscription, where several nodes share it.

There is a row for each node, with the moment until which it lives, by the database's clock, so that a renewal writes
one row however much a node owns. Turns of nodes are taken one after the other: no two of them get the same.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, select

from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.storage.database.database import Database
from ams.storage.registry.statements import ByDialect, ByRows, among
from ams.storage.registry.tables import parallel_nodes, parallel_owners

OWNED_SECONDS = 6.0
"""How long a node owns what it has without renewing that."""
_LEASE = round(OWNED_SECONDS * 1000)
"""Milliseconds."""
_TURN = 0x616D735F6F776E73  # "ams_owns" in ASCII
_NOTHING: Collection[SubscriptionId] = ()


class Node(NamedTuple):
    """A node, and how others reach it."""

    name: str
    """Another one at each start."""
    url: str
    """Empty: it does not say."""
    pubsub: str = ""
    """HOST:PORT of its Google Pub/Sub port; empty: it has none, or does not say."""


class Turn(NamedTuple):
    """What came of a node's turn."""

    is_kept: bool
    """Whether it still owned what it had. False as well at its first turn."""
    owners: Mapping[SubscriptionId, Node]
    """Who owns what it asked for, itself or another; without subscriptions that are not there any more."""


class OwnerRecords:
    """Nodes, and what they own."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def turn(
        self,
        node: Node,
        wanted: Collection[SubscriptionId] = _NOTHING,
        *,
        seized: Collection[SubscriptionId] = _NOTHING,
        released: Collection[SubscriptionId] = _NOTHING,
    ) -> Turn:
        """Renew what a node owns, release some of it, and give it of what is `wanted` all that nobody else owns.

        What is `seized` it gets from any other node. Raises `RegistryUnavailable`.
        """

        def work(connection: Connection) -> Turn:
            _ENDED.run(connection, self._clock)
            is_kept = connection.scalar(select(parallel_nodes.c.node).where(parallel_nodes.c.node == node.name))
            said = {"node": node.name, "url": node.url, "pubsub": node.pubsub or None}
            _LIVES.run(connection, self._clock, **said, lease=_LEASE)
            _release(connection, node.name, released)
            if seized:
                _release(connection, None, seized)
            asked = {*wanted, *seized}
            return Turn(is_kept is not None, _claimed(connection, node.name, asked) if asked else {})

        return await self._database.in_turn(work, _TURN)

    async def owner(self, subscription: SubscriptionId) -> Node | None:
        """Return who owns a subscription; None: no node does. Raises `RegistryUnavailable`."""
        row = await self._database.read(
            lambda connection: _OWNER.run(connection, self._clock, subscription=subscription).first()
        )
        return _node(row) if row else None

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes that live, by how others reach them. Raises `RegistryUnavailable`."""
        rows = await self._database.read(lambda connection: _ALIVE.run(connection, self._clock).all())
        return [_node(row) for row in rows]

    async def leave(self, node: Node) -> None:
        """Release all that a node owns. Raises `RegistryUnavailable`."""
        leaving = delete(parallel_nodes).where(parallel_nodes.c.node == node.name)
        await self._database.in_turn(lambda connection: connection.execute(leaving).rowcount, _TURN)


def _release(connection: Connection, node: str | None, subscriptions: Collection[SubscriptionId]) -> None:
    """Release what a node owns of these; None: what any node does."""
    if not subscriptions:
        return
    removal = delete(parallel_owners).where(
        parallel_owners.c.subscription_id.in_(among(connection, sorted(subscriptions)))
    )
    connection.execute(removal if node is None else removal.where(parallel_owners.c.node == node))


def _claimed(
    connection: Connection, node: str, subscriptions: Collection[SubscriptionId]
) -> Mapping[SubscriptionId, Node]:
    """Give a node what is free of these; return the owners of all."""
    names = sorted(subscriptions)
    _CLAIM[connection.dialect.name].run(connection, [(each,) for each in names], node=node)
    rows = connection.execute(_OWNERS.where(parallel_owners.c.subscription_id.in_(among(connection, names))))
    return {row.subscription_id: _node(row) for row in rows}


def _node(row: Row[Any]) -> Node:
    return Node(row.node, row.url, row.pubsub or "")


_ENDED = ByDialect("DELETE FROM parallel_nodes WHERE until <= {now}")
_LIVES = ByDialect(
    """
    INSERT INTO parallel_nodes (node, url, pubsub, until) VALUES (:node, :url, :pubsub, {now} + :lease)
    ON CONFLICT (node) DO UPDATE SET until = excluded.until
    """
)
_KEPT = {"sqlite": "", "postgresql": "FOR KEY SHARE OF subscriptions"}
"""So that none of them goes before its owner is there."""
_CLAIM = {
    dialect: ByRows(
        f"""
        INSERT INTO parallel_owners (subscription_id, node)
        SELECT subscriptions.id, :node FROM {{given}} JOIN subscriptions ON subscriptions.id = text(0)
        WHERE NOT EXISTS (SELECT 1 FROM parallel_owners WHERE subscription_id = subscriptions.id) {kept}
        """  # noqa: S608 - nothing but constants is joined
    )
    for dialect, kept in _KEPT.items()
}
_OWNER = ByDialect(
    """
    SELECT node, url, pubsub FROM parallel_owners JOIN parallel_nodes USING (node)
    WHERE subscription_id = :subscription AND until > {now}
    """
)
_ALIVE = ByDialect("SELECT node, url, pubsub FROM parallel_nodes WHERE until > {now} ORDER BY url, node")
_OWNERS = select(parallel_owners.c.subscription_id, parallel_nodes).join(
    parallel_nodes, parallel_nodes.c.node == parallel_owners.c.node
)
