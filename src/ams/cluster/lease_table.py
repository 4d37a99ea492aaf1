"""Leases in a database table: per kind, a subscription has at most one holder.

Each holder has one row with its expiry, by the database's clock, so a renewal writes a single row. Turns of one kind
are serialized by a lock, so no two holders get the same subscription.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from ams.cluster.leases import LEASE_SECONDS, Heartbeat, Subscriptions, share
from ams.core.errors import RegistryUnavailable
from ams.core.names import SubscriptionId, new_uuid
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import Statement, among
from ams.storage.registry.tables import lease_holders, leases
from ams.wire.push import MAX_STATES, WorkerState

PUSH, PARALLEL, HISTORY = "push", "parallel", "history"  # kinds
DUTY_SECONDS = 150.0  # renewed each minute: a node may miss one renewal
_LOCK_KEYS = {PUSH: 0x616D735F62656174, PARALLEL: 0x616D735F6F776E73, HISTORY: 0x616D735F68697374}  # ASCII
_OTHERS_HOLDER = "others"  # cannot be a holder's name, which has a UUID
_States = Mapping[SubscriptionId, WorkerState]
_state = msgspec.json.Decoder(WorkerState)


class Holder(NamedTuple):
    """A process that holds leases, with its addresses."""

    name: str  # unique per start
    url: str = ""  # empty: unknown
    pubsub: str = ""  # HOST:PORT of its Google Pub/Sub port; empty: none or unknown


class LeaseTable:
    """Leases of one kind. All calls raise `RegistryUnavailable`."""

    def __init__(self, registry: Registry, kind: str = PUSH) -> None:
        self._database, self._clock = registry.shared.database, registry.shared.clock
        self._kind = kind
        self._turn = _LOCK_KEYS[kind]

    async def turn(
        self, holder: Holder, wanted: Collection[SubscriptionId] = (), *, seized: Collection[SubscriptionId] = (),
        released: Collection[SubscriptionId] = (),
    ) -> tuple[bool, Mapping[SubscriptionId, Holder]]:  # fmt: skip
        """Renew a holder's leases, release some, acquire free `wanted` ones, and take `seized` ones from others.

        Returns whether its leases had not expired (False also at its first turn), and the holders of the wanted and
        seized subscriptions, without deleted ones.
        """

        def work(connection: sa.Connection) -> tuple[bool, Mapping[SubscriptionId, Holder]]:
            is_kept = self._renew(connection, holder)
            _release(connection, self._kind, released, holder.name)
            _release(connection, self._kind, seized)
            asked = sorted({*wanted, *seized})
            self._take(connection, asked, holder.name)
            is_asked = leases.c.subscription_id.in_(among(connection, asked))
            rows = connection.execute(_HOLDERS.where(_is_of(self._kind), is_asked)) if asked else ()
            return is_kept, {row.subscription_id: _holder(row) for row in rows}

        return await self._database.put(work, turn=self._turn)

    async def holder(self, subscription: SubscriptionId) -> Holder | None:
        """Return the holder of a subscription, or None."""
        row = await self._lease(subscription)
        return _holder(row) if row else None

    async def holders(self) -> Sequence[Holder]:
        """Return the living holders with their addresses."""
        rows = await self._database.read(lambda connection: self._run_statement(connection, _LIVING_HOLDERS).all())
        return [_holder(row) for row in rows]

    async def leave(self, holder: Holder) -> None:
        """Release all leases of a holder."""
        await self._database.put(lambda connection: _remove(connection, holder.name), turn=self._turn)

    async def _lease(self, subscription: SubscriptionId) -> sa.Row[Any] | None:
        return await self._database.read(
            lambda connection: self._run_statement(connection, _LEASE, subscription=subscription).first()
        )

    # The methods below run in threads.

    def _renew(
        self, connection: sa.Connection, holder: Holder, *, leaving: bool = False, seconds: float = LEASE_SECONDS
    ) -> bool:
        """Delete expired leases, then renew those of a holder; return whether they had not expired."""
        self._run_statement(connection, _DELETE_EXPIRED)
        has_lived = connection.scalar(sa.select(lease_holders.c.holder).where(lease_holders.c.holder == holder.name))
        lease, (name, url, pubsub) = round(seconds * 1000), holder
        self._run_statement(connection, _EXTEND, holder=name, url=url, pubsub=pubsub, leaving=leaving, lease=lease)
        return has_lived is not None

    def _take(self, connection: sa.Connection, wanted: Collection[SubscriptionId], holder: str) -> Subscriptions:
        """Acquire the free ones of these for a holder; return them, without deleted ones."""
        rows = [(each,) for each in sorted(wanted)]
        return frozenset(self._run_statement(connection, _TAKE, rows, holder=holder).scalars()) if rows else frozenset()

    def _run_statement(
        self, connection: sa.Connection, statement: Statement, rows: Sequence[Any] | None = None, **said: Any
    ) -> sa.CursorResult[Any]:
        return statement.run(connection, rows, now=self._clock.wall(), kind=self._kind, **said)


class StoredLeases(LeaseTable):
    """Leases of push delivery in the database (`ams.cluster.leases.Leases`); a serialized transaction per heartbeat."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._waiting: dict[str, _States] = {}  # states to write with the next heartbeats, by holder
        self._newest: dict[str, object] = {}  # newest heartbeat by holder: an older one that still waits is dropped

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        known = {**self._waiting.get(heartbeat.holder, {}), **heartbeat.states}
        states = {each: state for each, state in known.items() if each in heartbeat.held}
        first = dict(itertools.islice(states.items(), MAX_STATES))
        mark = self._newest[heartbeat.holder] = object()

        def work(connection: sa.Connection) -> tuple[Subscriptions, Collection[str]]:
            if self._newest.get(heartbeat.holder) is not mark:
                raise RegistryUnavailable
            return self._heartbeat(connection, heartbeat, wanted, first)

        assigned, living = await self._database.put(work, turn=self._turn)
        self._waiting[heartbeat.holder] = {each: state for each, state in states.items() if each not in first}
        self._waiting = {holder: left for holder, left in self._waiting.items() if left and holder in living}
        self._newest = {holder: last for holder, last in self._newest.items() if holder in living}
        return assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        row = await self._lease(subscription)
        return None if row is None or row.state is None else _state.decode(row.state)

    async def is_held(self) -> bool:
        return bool(await self.holders())

    # The methods below run in threads.

    def _heartbeat(
        self, connection: sa.Connection, heartbeat: Heartbeat, wanted: Subscriptions, states: _States
    ) -> tuple[Subscriptions, Collection[str]]:
        """Return the share of the holder, and the living holders."""
        self._renew(connection, Holder(heartbeat.holder), leaving=heartbeat.leaving)
        rows = self._run_statement(connection, _LEASES_BY_HOLDER).all()
        held = {row.holder: frozenset((row.held or "").split(",")) - {""} for row in rows}
        own = held.pop(heartbeat.holder)
        found = share(heartbeat, wanted, own, held, leaving=[row.holder for row in rows if row.leaving])
        _release(connection, PUSH, own - found.leases)
        missing = found.leases - own
        missing -= self._take(connection, missing, heartbeat.holder)  # the rest are deleted
        if states:
            told = [(each, msgspec.json.encode(state).decode()) for each, state in states.items()]
            self._run_statement(connection, _STORE_STATES, told, holder=heartbeat.holder)
        if not heartbeat.leaving or found.leases:
            return found.assigned - missing, {*held, heartbeat.holder}
        _remove(connection, heartbeat.holder)
        return found.assigned, held


class Duty(LeaseTable):
    """A lease on work that one node does for all: measuring the history."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry, HISTORY)
        self._node = Holder(new_uuid())

    async def is_own(self) -> bool:
        """Return whether this node has the duty: it had it before, or the previous node is lost."""

        def work(connection: sa.Connection) -> bool:
            living = {row.holder for row in self._run_statement(connection, _LIVING_HOLDERS)}
            is_own = living <= {self._node.name}
            if is_own:
                self._renew(connection, self._node, seconds=DUTY_SECONDS)
            return is_own

        return await self._database.put(work, turn=self._turn)


class OtherHolders(LeaseTable):
    """Implements `ams.cluster.leases.Others` by the row of a holder with an expired lease."""

    async def are_there(self) -> bool:
        found = sa.select(lease_holders.c.holder).where(lease_holders.c.holder == _OTHERS_HOLDER)
        return await self._database.value(found) is not None

    async def note(self, there: bool) -> None:

        def work(connection: sa.Connection) -> None:
            _remove(connection, _OTHERS_HOLDER)
            if there:
                values = {"holder": _OTHERS_HOLDER, "kind": PUSH, "until": 0, "leaving": True, "url": "", "pubsub": ""}
                connection.execute(sa.insert(lease_holders).values(**values))

        await self._database.write(work, grows=False)


def _release(
    connection: sa.Connection, kind: str, subscriptions: Collection[SubscriptionId], holder: str | None = None
) -> None:
    """Release these leases of a holder; None: of any holder."""
    if not subscriptions:
        return
    is_asked = leases.c.subscription_id.in_(among(connection, sorted(subscriptions)))
    is_whose = _is_of(kind) if holder is None else leases.c.holder + "" == holder
    connection.execute(sa.delete(leases).where(is_whose, is_asked))


def _is_of(kind: str) -> sa.ColumnElement[bool]:
    """Compare an expression instead of the column, to bypass PostgreSQL's statistics.

    With the column it may assume that a value missing there is rare, and scan all given subscriptions per lease.
    """
    return leases.c.kind + "" == kind


def _remove(connection: sa.Connection, holder: str) -> None:
    connection.execute(sa.delete(lease_holders).where(lease_holders.c.holder == holder))


def _holder(row: sa.Row[Any]) -> Holder:
    return Holder(row.holder, row.url, row.pubsub)


_DELETE_EXPIRED = Statement("DELETE FROM lease_holders WHERE kind = :kind AND until <= {now}")
_EXTEND = Statement(
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
_STORE_STATES = Statement(
    """
    UPDATE leases SET state = text(1) FROM {given}
    WHERE subscription_id = text(0) AND kind = :kind AND holder = :holder
    """
)
# One row per holder instead of one per lease.
_LEASES_BY_HOLDER = Statement(
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
_LIVING_HOLDERS = Statement(
    "SELECT holder, url, pubsub FROM lease_holders WHERE kind = :kind AND until > {now} ORDER BY url, holder"
)
_IS_HOLDER = lease_holders.c.holder == leases.c.holder
_HOLDERS = sa.select(leases.c.subscription_id, lease_holders).join(lease_holders, _IS_HOLDER)
