"""Leases over one table: of each kind, a subscription has at most one holder among the processes that share it.

There is a row for each holder, with the moment until which it lives, by the database's clock, so that a renewal writes
one row however much it holds. Turns of one kind are taken one after the other: no two holders get the same.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from ams.cluster.leases import LEASE_SECONDS, Heartbeat, Holdings, Subscriptions, share
from ams.core.errors import RegistryUnavailable
from ams.core.names import SubscriptionId, new_uuid
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import Statement, among
from ams.storage.registry.tables import lease_holders, leases
from ams.wire.push import WorkerState

PUSH, PARALLEL, HISTORY = "push", "parallel", "history"  # kinds
DUTY_SECONDS = 150.0  # a round a minute: a node that misses one keeps its duty
MAX_STATES = 100  # of one heartbeat: each may be several KiB; others wait for the next heartbeats
_TURNS = {PUSH: 0x616D735F62656174, PARALLEL: 0x616D735F6F776E73, HISTORY: 0x616D735F68697374}  # ASCII
_OTHERS = "others"  # no holder's name: theirs have a UUID
_States = Mapping[SubscriptionId, WorkerState]
_state = msgspec.json.Decoder(WorkerState)


class Holder(NamedTuple):
    """A process that holds leases, and how others reach it."""

    name: str  # another one at each start
    url: str = ""  # empty: not known
    pubsub: str = ""  # HOST:PORT of its Google Pub/Sub port; empty: none, or not known


class Turn(NamedTuple):
    """The result of a holder's turn."""

    is_kept: bool  # whether it still held what it had. False as well at its first turn.
    holders: Mapping[SubscriptionId, Holder]  # of the subscriptions it asked for, without those that are gone


class LeaseTable:
    """The leases of one kind. All calls raise `RegistryUnavailable`."""

    def __init__(self, registry: Registry, kind: str = PUSH) -> None:
        self._database, self._clock = registry.shared.database, registry.shared.clock
        self._kind = kind
        self._turn = _TURNS[kind]

    async def turn(
        self,
        holder: Holder,
        wanted: Collection[SubscriptionId] = (),
        *,
        seized: Collection[SubscriptionId] = (),
        released: Collection[SubscriptionId] = (),
    ) -> Turn:
        """Renew what a process holds, release some, and give it of the `wanted` all that nobody else holds.

        It gets `seized` ones from any other holder.
        """

        def work(connection: sa.Connection) -> Turn:
            is_kept = self._renew(connection, holder)
            _release(connection, self._kind, released, holder.name)
            _release(connection, self._kind, seized)
            asked = sorted({*wanted, *seized})
            self._take(connection, asked, holder.name)
            is_asked = leases.c.subscription_id.in_(among(connection, asked))
            rows = connection.execute(_HOLDERS.where(_is_of(self._kind), is_asked)) if asked else ()
            return Turn(is_kept, {row.subscription_id: _holder(row) for row in rows})

        return await self._database.in_turn(work, self._turn)

    async def holder(self, subscription: SubscriptionId) -> Holder | None:
        """Return who holds a subscription; None: nobody does."""
        row = await self._lease(subscription)
        return _holder(row) if row else None

    async def holders(self) -> Sequence[Holder]:
        """Return the holders that live, by how others reach them."""
        rows = await self._database.read(lambda connection: self._run(connection, _ALIVE).all())
        return [_holder(row) for row in rows]

    async def leave(self, holder: Holder) -> None:
        """Release all that a process holds."""
        await self._database.in_turn(lambda connection: _remove(connection, holder.name), self._turn)

    async def _lease(self, subscription: SubscriptionId) -> sa.Row[Any] | None:
        return await self._database.read(
            lambda connection: self._run(connection, _LEASE, subscription=subscription).first()
        )

    # In the threads.

    def _renew(
        self, connection: sa.Connection, holder: Holder, *, leaving: bool = False, seconds: float = LEASE_SECONDS
    ) -> bool:
        """Renew what a process holds, after all leases that have ended were removed; return whether it still lived."""
        self._run(connection, _END)
        has_lived = connection.scalar(sa.select(lease_holders.c.holder).where(lease_holders.c.holder == holder.name))
        lease, (name, url, pubsub) = round(seconds * 1000), holder
        self._run(connection, _RENEW, holder=name, url=url, pubsub=pubsub, leaving=leaving, lease=lease)
        return has_lived is not None

    def _take(self, connection: sa.Connection, wanted: Collection[SubscriptionId], holder: str) -> Subscriptions:
        """Give a process what nobody holds of these; return them, without those that are gone."""
        rows = [(each,) for each in sorted(wanted)]
        return frozenset(self._run(connection, _TAKE, rows, holder=holder).scalars()) if rows else frozenset()

    def _run(
        self, connection: sa.Connection, statement: Statement, rows: Sequence[Any] | None = None, **said: Any
    ) -> sa.CursorResult[Any]:
        return statement.run(connection, rows, clock=self._clock, kind=self._kind, **said)


class StoredLeases(LeaseTable):
    """Leases of push delivery in the database (`ams.cluster.leases.Leases`); one transaction a heartbeat, in turn."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._waiting: dict[str, _States] = {}  # states to write with the next heartbeats, by holder
        self._newest: dict[str, object] = {}  # heartbeats by holder: one that was given up and still waits is too late

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        known = {**self._waiting.get(heartbeat.holder, {}), **heartbeat.states}
        states = {each: state for each, state in known.items() if each in heartbeat.held}
        first = dict(itertools.islice(states.items(), MAX_STATES))
        mark = self._newest[heartbeat.holder] = object()

        def work(connection: sa.Connection) -> tuple[Subscriptions, Collection[str]]:
            if self._newest.get(heartbeat.holder) is not mark:
                raise RegistryUnavailable
            return self._heartbeat(connection, heartbeat, wanted, first)

        assigned, living = await self._database.in_turn(work, self._turn)
        self._waiting[heartbeat.holder] = {each: state for each, state in states.items() if each not in first}
        self._waiting = {holder: left for holder, left in self._waiting.items() if left and holder in living}
        self._newest = {holder: last for holder, last in self._newest.items() if holder in living}
        return assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        row = await self._lease(subscription)
        return None if row is None or row.state is None else _state.decode(row.state)

    async def is_held(self) -> bool:
        return bool(await self.holders())

    # In the threads.

    def _heartbeat(
        self, connection: sa.Connection, heartbeat: Heartbeat, wanted: Subscriptions, states: _States
    ) -> tuple[Subscriptions, Collection[str]]:
        """Return the subscriptions that the holder is to hold, and the holders that live."""
        self._renew(connection, Holder(heartbeat.holder), leaving=heartbeat.leaving)
        rows = self._run(connection, _STANDING).all()
        held = {row.holder: frozenset((row.held or "").split(",")) - {""} for row in rows}
        own = held.pop(heartbeat.holder)
        found = share(heartbeat, wanted, Holdings(own, held, frozenset(row.holder for row in rows if row.leaving)))
        _release(connection, PUSH, own - found.leases)
        missing = found.leases - own
        missing -= self._take(connection, missing, heartbeat.holder)  # those that are left are not there any more
        if states:
            told = [(each, msgspec.json.encode(state).decode()) for each, state in states.items()]
            self._run(connection, _TELL, told, holder=heartbeat.holder)
        if not heartbeat.leaving or found.leases:
            return found.assigned - missing, {*held, heartbeat.holder}
        _remove(connection, heartbeat.holder)
        return found.assigned, held


class Duty(LeaseTable):
    """A lease without subscriptions, on work that one node does for all: measuring the history."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry, HISTORY)
        self._node = Holder(new_uuid())

    async def is_own(self) -> bool:
        """Return whether the work is this node's: it was last, or the node that had it is lost."""

        def work(connection: sa.Connection) -> bool:
            living = {row.holder for row in self._run(connection, _ALIVE)}
            is_own = living <= {self._node.name}
            if is_own:
                self._renew(connection, self._node, seconds=DUTY_SECONDS)
            return is_own

        return await self._database.in_turn(work, self._turn)


class OtherHolders(LeaseTable):
    """Keeps the promise of `ams.cluster.leases.Others`, by a row of a holder whose lease is over."""

    async def are_there(self) -> bool:
        found = sa.select(lease_holders.c.holder).where(lease_holders.c.holder == _OTHERS)
        return await self._database.value(found) is not None

    async def note(self, there: bool) -> None:

        def work(connection: sa.Connection) -> None:
            _remove(connection, _OTHERS)
            if there:
                values = {"holder": _OTHERS, "kind": PUSH, "until": 0, "leaving": True, "url": "", "pubsub": ""}
                connection.execute(sa.insert(lease_holders).values(**values))

        await self._database.write(work, grows=False)


def _release(
    connection: sa.Connection, kind: str, subscriptions: Collection[SubscriptionId], holder: str | None = None
) -> None:
    """Release of these what a process holds; None: what any process does."""
    if not subscriptions:
        return
    is_asked = leases.c.subscription_id.in_(among(connection, sorted(subscriptions)))
    is_whose = _is_of(kind) if holder is None else leases.c.holder + "" == holder
    connection.execute(sa.delete(leases).where(is_whose, is_asked))


def _is_of(kind: str) -> sa.ColumnElement[bool]:
    """Compare an expression: of a column, PostgreSQL takes a value that it has not met in statistics for very rare.

    It would look through all given subscriptions for each lease.
    """
    return leases.c.kind + "" == kind


def _remove(connection: sa.Connection, holder: str) -> None:
    connection.execute(sa.delete(lease_holders).where(lease_holders.c.holder == holder))


def _holder(row: sa.Row[Any]) -> Holder:
    return Holder(row.holder, row.url, row.pubsub)


_END = Statement("DELETE FROM lease_holders WHERE kind = :kind AND until <= {now}")
_RENEW = Statement(
    """
    INSERT INTO lease_holders (holder, kind, until, leaving, url, pubsub)
    VALUES (:holder, :kind, {now} + :lease, :leaving, :url, :pubsub)
    ON CONFLICT (holder) DO UPDATE SET until = excluded.until, leaving = excluded.leaving
    """
)
_TAKE = Statement(
    """
    INSERT INTO leases (subscription_id, kind, holder)
    SELECT subscriptions.id, :kind, :holder
    FROM {given} JOIN subscriptions ON subscriptions.id = text(0)
    WHERE true {kept}
    ON CONFLICT (subscription_id, kind) DO NOTHING
    RETURNING subscription_id
    """
)
_TELL = Statement(
    """
    UPDATE leases SET state = text(1) FROM {given}
    WHERE subscription_id = text(0) AND kind = :kind AND holder = :holder
    """
)
# One row a holder, rather than one a lease.
_STANDING = Statement(
    """
    SELECT holder, leaving,
        (SELECT {joined}(subscription_id, ',') FROM leases WHERE leases.holder = lease_holders.holder) AS held
    FROM lease_holders WHERE kind = :kind
    """
)
_LEASE = Statement(
    """
    SELECT holder, url, pubsub, state FROM leases JOIN lease_holders USING (holder, kind)
    WHERE subscription_id = :subscription AND kind = :kind AND until > {now}
    """
)
_ALIVE = Statement(
    "SELECT holder, url, pubsub FROM lease_holders WHERE kind = :kind AND until > {now} ORDER BY url, holder"
)
_HOLDERS = sa.select(leases.c.subscription_id, lease_holders).join(
    lease_holders, lease_holders.c.holder == leases.c.holder
)
