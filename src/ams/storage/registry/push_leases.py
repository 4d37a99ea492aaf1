"""Leases of push delivery in the database, which nodes share. Held to `ams.push.leases` by `tests/push/test_leases.py`.

A heartbeat is one transaction, and heartbeats have their turn one after the other: so no two of them give the same to
two holders. Times are the database's where several nodes share it.
"""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, TextClause, delete, insert, select, text

from ams.core.clock import Clock
from ams.core.errors import RegistryUnavailable
from ams.core.names import SubscriptionId
from ams.push.leases import LEASE_SECONDS, Heartbeat
from ams.push.sharing import Standing, Subscriptions, share
from ams.push.state import WorkerState
from ams.storage.database.database import Database
from ams.storage.registry.given import ByRows, among
from ams.storage.registry.tables import push_holders, push_leases

MAX_STATES = 100
"""Written by one heartbeat: each may be several KiB. What is more waits for the next heartbeats of its holder."""
_LEASE = round(LEASE_SECONDS * 1000)
"""Milliseconds."""
_OTHERS = "others"
"""No holder's name: theirs have a UUID."""
_TURN = 0x616D735F62656174  # "ams_beat" in ASCII

_decoder = msgspec.json.Decoder(WorkerState)
_States = Mapping[SubscriptionId, WorkerState]


class _Renewed(NamedTuple):
    told: Subscriptions
    living: frozenset[str]


class StoredLeases:
    """Keeps who holds what for all nodes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[str, _States] = {}
        """States that are to be written yet, by holder."""
        self._newest: dict[str, object] = {}
        """Marks the last heartbeat of each holder: one that was given up and still waits for the database is too
        late.
        """

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        """Note that a holder lives; return what it shall hold. Raises `RegistryUnavailable`."""
        known = {**self._waiting.get(heartbeat.holder, {}), **heartbeat.states}
        states = {each: state for each, state in known.items() if each in heartbeat.held}
        now = dict(itertools.islice(states.items(), MAX_STATES))

        mark = self._newest[heartbeat.holder] = object()

        def work(connection: Connection) -> _Renewed:
            if self._newest.get(heartbeat.holder) is not mark:
                raise RegistryUnavailable
            return self._heartbeat(connection, heartbeat, wanted, now)

        renewed = await self._database.in_turn(work, _TURN)
        self._waiting[heartbeat.holder] = {each: state for each, state in states.items() if each not in now}
        self._waiting = {holder: left for holder, left in self._waiting.items() if left and holder in renewed.living}
        self._newest = {holder: last for holder, last in self._newest.items() if holder in renewed.living}
        return renewed.told

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return how a delivery goes, as its living holder told last. Raises `RegistryUnavailable`."""
        said = {"subscription": subscription}
        found = await self._database.read(lambda connection: self._run(connection, _STATE, said).scalar())
        return None if found is None else _decoder.decode(found)

    async def is_held(self) -> bool:
        """Whether any holder lives. Raises `RegistryUnavailable`."""
        return bool(await self._database.read(lambda connection: self._run(connection, _IS_HELD, {}).scalar()))

    # In the threads.

    def _heartbeat(
        self, connection: Connection, heartbeat: Heartbeat, wanted: Subscriptions, states: _States
    ) -> _Renewed:
        standing = self._standing(connection, heartbeat.holder)
        found = share(heartbeat, wanted, standing)
        said = {"holder": heartbeat.holder, "leaving": heartbeat.leaving, "lease": _LEASE}
        self._run(connection, _LIVES, said)
        _free(connection, standing.own - found.leases)
        missing = _take(connection, heartbeat.holder, found.leases - standing.own)
        self._tell(connection, heartbeat.holder, states)
        living = {*standing.others, heartbeat.holder}
        if heartbeat.leaving and not found.leases:
            connection.execute(delete(push_holders).where(push_holders.c.holder == heartbeat.holder))
            living.remove(heartbeat.holder)
        return _Renewed(found.told - missing, frozenset(living))

    def _standing(self, connection: Connection, holder: str) -> Standing:
        """Return who has what, after those whose leases have ended were forgotten."""
        rows = self._run(connection, _STANDING, {}).all()
        ended = [row.holder for row in rows if not row.lives]
        if ended:
            connection.execute(delete(push_holders).where(push_holders.c.holder.in_(among(connection, ended))))
        held = {row.holder: frozenset((row.held or "").split(",")) - {""} for row in rows if row.lives}
        leaving = frozenset(row.holder for row in rows if row.lives and row.leaving)
        return Standing(held.pop(holder, frozenset()), held, leaving)

    def _tell(self, connection: Connection, holder: str, states: _States) -> None:
        if states:
            rows = [(each, msgspec.json.encode(state).decode()) for each, state in states.items()]
            dialect = connection.dialect.name
            _TELL[dialect].run(connection, rows, holder=holder, **self._now(connection))

    def _run(self, connection: Connection, statement: Mapping[str, TextClause], said: Mapping[str, object]) -> Any:
        return connection.execute(statement[connection.dialect.name], {**said, **self._now(connection)})

    def _now(self, connection: Connection) -> Mapping[str, object]:
        return {"now": self._clock.wall()} if connection.dialect.name == "sqlite" else {}


class OtherHolders:
    """Keeps the promise of `ams.push.remembered_leases.Others`, by a row of a holder whose lease is over."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def are_there(self) -> bool:
        """Whether there are any, as was noted last. Raises `RegistryUnavailable`."""
        found = select(push_holders.c.holder).where(push_holders.c.holder == _OTHERS)
        return await self._database.read(lambda connection: connection.scalar(found) is not None)

    async def note(self, there: bool) -> None:
        """Note whether there are any. Raises `RegistryUnavailable`."""
        await self._database.write(lambda connection: _note(connection, there))


def _note(connection: Connection, there: bool) -> None:
    connection.execute(delete(push_holders).where(push_holders.c.holder == _OTHERS))
    if there:
        connection.execute(insert(push_holders).values(holder=_OTHERS, until=0, leaving=True))


def _free(connection: Connection, subscriptions: Subscriptions) -> None:
    if subscriptions:
        among_them = push_leases.c.subscription_id.in_(among(connection, sorted(subscriptions)))
        connection.execute(delete(push_leases).where(among_them))


def _take(connection: Connection, holder: str, subscriptions: Subscriptions) -> Subscriptions:
    """Give leases to a holder; return those of subscriptions that are not there any more."""
    if not subscriptions:
        return frozenset()
    rows = [(each,) for each in sorted(subscriptions)]
    taken = _TAKE[connection.dialect.name].run(connection, rows, holder=holder)
    return subscriptions - frozenset(taken.scalars())


_NOW = {"sqlite": ":now", "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"}
"""The time in milliseconds: this process's where nobody else has the database."""
_JOINED = {"sqlite": "group_concat", "postgresql": "string_agg"}
_KEPT = {"sqlite": "", "postgresql": "FOR KEY SHARE OF subscriptions"}
"""So that none of them goes before its lease is there."""


def _by_dialect(statement: str) -> dict[str, TextClause]:
    return {
        dialect: text(statement.replace("{now}", now).replace("{joined}", _JOINED[dialect]))
        for dialect, now in _NOW.items()
    }


_STANDING = _by_dialect(
    """
    SELECT holder, until > {now} AS lives, leaving,
        (SELECT {joined}(subscription_id, ',') FROM push_leases WHERE push_leases.holder = push_holders.holder) AS held
    FROM push_holders
    """
)
"""One row a holder: a thousand leases cost a thousand rows otherwise."""
_LIVES = _by_dialect(
    """
    INSERT INTO push_holders (holder, until, leaving) VALUES (:holder, {now} + :lease, :leaving)
    ON CONFLICT (holder) DO UPDATE SET until = excluded.until, leaving = excluded.leaving
    """
)
_TAKE = {
    dialect: ByRows(
        f"""
        INSERT INTO push_leases (subscription_id, holder)
        SELECT subscriptions.id, :holder FROM {{given}} JOIN subscriptions ON subscriptions.id = text(0)
        WHERE true {kept}
        RETURNING subscription_id
        """  # noqa: S608 - nothing but constants is joined
    )
    for dialect, kept in _KEPT.items()
}
_TELL = {
    dialect: ByRows(
        f"""
        INSERT INTO push_states (subscription_id, state, changed_on)
        SELECT push_leases.subscription_id, text(1), {now} FROM {{given}}
        JOIN push_leases ON push_leases.subscription_id = text(0) AND push_leases.holder = :holder
        WHERE true
        ON CONFLICT (subscription_id) DO UPDATE SET state = excluded.state, changed_on = excluded.changed_on
        """  # noqa: S608 - as above
    )
    for dialect, now in _NOW.items()
}
_STATE = _by_dialect(
    """
    SELECT state FROM push_states JOIN push_leases USING (subscription_id) JOIN push_holders USING (holder)
    WHERE subscription_id = :subscription AND until > {now}
    """
)
_IS_HELD = _by_dialect("SELECT EXISTS (SELECT 1 FROM push_holders WHERE until > {now})")
