"""Push in the registry: what is to be delivered, what deliveries are signed with, and who holds which lease."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select, text, update

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, RegistryUnavailable, SubscriptionGone
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName, TopicName
from ams.core.push_config import PushConfig
from ams.push.leases import LEASE_SECONDS, Heartbeat, Holdings, Subscriptions, share
from ams.storage.database.database import Database
from ams.storage.registry.statements import Records, Shared, Statement, among
from ams.storage.registry.tables import projects, push_holders, push_leases, push_secrets, subscriptions, topics
from ams.wire.push import WorkerState

_state = msgspec.json.Decoder(WorkerState)
logger = structlog.get_logger("ams.registry")


class Pushed(NamedTuple):
    """A subscription that is to be delivered."""

    id: SubscriptionId
    project: ProjectName
    name: SubscriptionName
    topic: TopicName
    topic_id: str  # as text; empty: the topic is gone
    ack_deadline_seconds: int
    config: PushConfig
    is_parallel: bool = False
    counts_attempts: bool = False  # whether it is a parallel one with a dead letter policy


class PushedRecords:
    """All subscriptions to deliver. They are used often and change seldom, so they are read after a change only."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[str | None, Sequence[Pushed]] = None, ()

    async def all(self) -> Sequence[Pushed]:
        """Return them, oldest first; the same object as before when nothing has changed."""
        self._known = await self._database.read(self._read)
        return self._known[1]

    def _read(self, connection: Connection) -> tuple[str | None, Sequence[Pushed]]:
        stamp, known = connection.scalar(_STAMP[connection.dialect.name]), self._known
        if stamp == known[0]:
            return known
        found = [
            Pushed(
                row.id, row.project, row.name, row.topic, row.topic_id or "", row.ack_deadline_seconds, row.push,
                is_parallel=row.parallel is not None,
                counts_attempts=row.parallel is not None and row.parallel.dead_letter_policy is not None,
            )
            for row in connection.execute(_PUSHED).all()
            if row.push.verified
        ]  # fmt: skip
        return stamp, found


_PUSHED = (
    select(
        subscriptions.c.id, projects.c.name.label("project"), subscriptions.c.name, subscriptions.c.topic,
        topics.c.id.label("topic_id"), subscriptions.c.ack_deadline_seconds, subscriptions.c.push,
        subscriptions.c.parallel,
    )
    .join(projects, projects.c.id == subscriptions.c.project_id)
    .outerjoin(topics, (topics.c.project_id == subscriptions.c.project_id) & (topics.c.name == subscriptions.c.topic))
    .where(subscriptions.c.push.is_not(None))
    .order_by(subscriptions.c.number)
)  # fmt: skip
_GATHERED = {"sqlite": "group_concat({each}, ' ')", "postgresql": "md5(string_agg({each}, ' '))"}
_EACH = (
    "subscriptions.id || projects.name || ' ' || subscriptions.name || ' ' || subscriptions.topic || ' '"
    " || COALESCE(topics.id, '') || CAST(subscriptions.ack_deadline_seconds AS TEXT) || subscriptions.push"
    " || COALESCE(subscriptions.parallel, '')"
)
_STAMP = {
    dialect: text(f"""
        SELECT {gathered.format(each=_EACH)} FROM subscriptions
        JOIN projects ON projects.id = subscriptions.project_id
        LEFT JOIN topics ON topics.project_id = subscriptions.project_id AND topics.name = subscriptions.topic
        WHERE subscriptions.push IS NOT NULL
        """)  # noqa: S608 - nothing but constants is joined
    for dialect, gathered in _GATHERED.items()
}
"""A text that is another one when anything of it has changed: reading the rows takes five times as long."""


Check = Callable[[PushConfig | None], None]  # raises when a subscription may have no secret


class PushSecretRecords(Records):
    """Secrets that sign the deliveries of a subscription, sealed as tokens are, and bound to the subscription.

    A subscription has none, one, or, for a while after a rotation, two that are valid.
    """

    async def rotate(
        self, subscription: SubscriptionId, secret: str, keep: Milliseconds, check: Check
    ) -> Milliseconds | None:
        """Sign with another secret from now on; the one before, if any, stays valid for `keep`: return its end.

        Raises `SubscriptionGone`, then all that `check` raises: nothing has changed then.
        """
        now = self._clock.wall()
        sealed = self._secrets.seal_push(secret, subscription)

        def work(connection: Connection) -> Milliseconds | None:
            query = select(subscriptions.c.push).where(subscriptions.c.id == subscription).with_for_update()
            row = connection.execute(query).first()
            if row is None:
                raise SubscriptionGone
            check(row.push)
            until = _end_others(connection, subscription, now, keep)
            values = {"subscription_id": subscription, "sealed": sealed, "created_on": now}
            connection.execute(insert(push_secrets).values(**values))
            return until

        return await self._database.write(work)

    async def all_valid(self) -> Mapping[SubscriptionId, Sequence[str]]:
        """Return the valid secrets of all subscriptions that have one, newest first."""
        query = select(push_secrets).where(_is_valid(self._clock.wall()))
        query = query.order_by(push_secrets.c.number.desc())
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        found: defaultdict[SubscriptionId, list[str]] = defaultdict(list)
        for row in rows:
            try:
                found[row.subscription_id].append(self._secrets.open_push(row.sealed, row.subscription_id))
            except Damaged as error:  # it must not stop other subscriptions' deliveries
                logger.error("push_secret.damaged", reason=str(error))
        return dict(found)


def forget_secrets(connection: Connection, subscription: SubscriptionId) -> None:
    """Remove the secrets of a subscription, in the connection's transaction."""
    connection.execute(delete(push_secrets).where(push_secrets.c.subscription_id == subscription))


def _end_others(
    connection: Connection, subscription: SubscriptionId, now: Milliseconds, keep: Milliseconds
) -> Milliseconds | None:
    """End the newest secret after `keep`, or before if it would anyway, and the others now; return when it ends."""
    own = push_secrets.c.subscription_id == subscription
    query = select(push_secrets.c.number, push_secrets.c.until).where(own, _is_valid(now))
    newest = connection.execute(query.order_by(push_secrets.c.number.desc())).first() if keep else None
    if newest is None:
        forget_secrets(connection, subscription)
        return None
    until = Milliseconds(now + keep if newest.until is None else min(newest.until, now + keep))
    connection.execute(delete(push_secrets).where(own, push_secrets.c.number != newest.number))
    connection.execute(update(push_secrets).where(push_secrets.c.number == newest.number).values(until=until))
    return until


def _is_valid(now: Milliseconds) -> ColumnElement[bool]:
    return push_secrets.c.until.is_(None) | (push_secrets.c.until > now)


MAX_STATES = 100  # of one heartbeat: each may be several KiB; others wait for the next heartbeats
_LEASE_MS = round(LEASE_SECONDS * 1000)
_OTHERS = "others"  # no holder's name: theirs have a UUID
_TURN = 0x616D735F62656174  # "ams_beat" in ASCII
_States = Mapping[SubscriptionId, WorkerState]


class StoredLeases(Records):
    """Leases of push delivery in the database, which nodes share (`ams.push.leases`).

    A heartbeat is one transaction, one after the other: no two give the same to two holders. Times are the database's.
    """

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._waiting: dict[str, _States] = {}  # states to write with the next heartbeats, by holder
        self._newest: dict[str, object] = {}  # heartbeats by holder: one that was given up and still waits is too late

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        """Store a heartbeat of a holder; return the subscriptions it is to hold. Raises `RegistryUnavailable`."""
        known = {**self._waiting.get(heartbeat.holder, {}), **heartbeat.states}
        states = {each: state for each, state in known.items() if each in heartbeat.held}
        first = dict(itertools.islice(states.items(), MAX_STATES))
        mark = self._newest[heartbeat.holder] = object()

        def work(connection: Connection) -> tuple[Subscriptions, Collection[str]]:
            if self._newest.get(heartbeat.holder) is not mark:
                raise RegistryUnavailable
            return self._heartbeat(connection, heartbeat, wanted, first)

        assigned, living = await self._database.in_turn(work, _TURN)
        self._waiting[heartbeat.holder] = {each: state for each, state in states.items() if each not in first}
        self._waiting = {holder: left for holder, left in self._waiting.items() if left and holder in living}
        self._newest = {holder: last for holder, last in self._newest.items() if holder in living}
        return assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return the state of a delivery, as its live holder reported last. Raises `RegistryUnavailable`."""
        found = await self._database.read(
            lambda connection: _STATE.run(connection, clock=self._clock, subscription=subscription).scalar()
        )
        return None if found is None else _state.decode(found)

    async def is_held(self) -> bool:
        """Return whether any holder is alive. Raises `RegistryUnavailable`."""
        return bool(await self._database.read(lambda connection: _IS_HELD.run(connection, clock=self._clock).scalar()))

    # In the threads.

    def _heartbeat(
        self, connection: Connection, heartbeat: Heartbeat, wanted: Subscriptions, states: _States
    ) -> tuple[Subscriptions, Collection[str]]:
        """Return the subscriptions that the holder is to hold, and the holders that live."""
        standing = self._standing(connection, heartbeat.holder)
        found = share(heartbeat, wanted, standing)
        said = {"holder": heartbeat.holder, "leaving": heartbeat.leaving, "lease": _LEASE_MS}
        _LIVES.run(connection, clock=self._clock, **said)
        if freed := standing.own - found.leases:
            is_freed = push_leases.c.subscription_id.in_(among(connection, sorted(freed)))
            connection.execute(delete(push_leases).where(is_freed))
        missing = found.leases - standing.own
        if missing:  # those that cannot be taken are not there any more
            rows = [(each,) for each in sorted(missing)]
            missing -= frozenset(_TAKE.run(connection, rows, holder=heartbeat.holder).scalars())
        if states:
            told = [(each, msgspec.json.encode(state).decode()) for each, state in states.items()]
            _TELL.run(connection, told, clock=self._clock, holder=heartbeat.holder)
        living = {*standing.others, heartbeat.holder}
        if heartbeat.leaving and not found.leases:
            connection.execute(delete(push_holders).where(push_holders.c.holder == heartbeat.holder))
            living.remove(heartbeat.holder)
        return found.assigned - missing, living

    def _standing(self, connection: Connection, holder: str) -> Holdings:
        """Return who has what, after those whose leases have ended were forgotten."""
        rows = _STANDING.run(connection, clock=self._clock).all()
        ended = [row.holder for row in rows if not row.lives]
        if ended:
            connection.execute(delete(push_holders).where(push_holders.c.holder.in_(among(connection, ended))))
        held = {row.holder: frozenset((row.held or "").split(",")) - {""} for row in rows if row.lives}
        leaving = frozenset(row.holder for row in rows if row.lives and row.leaving)
        return Holdings(held.pop(holder, frozenset()), held, leaving)


class OtherHolders(Records):
    """Keeps the promise of `ams.push.leases.Others`, by a row of a holder whose lease is over."""

    async def are_there(self) -> bool:
        """Return whether there are any, by the last note. Raises `RegistryUnavailable`."""
        found = select(push_holders.c.holder).where(push_holders.c.holder == _OTHERS)
        return await self._database.value(found) is not None

    async def note(self, there: bool) -> None:
        """Note whether there are any. Raises `RegistryUnavailable`."""

        def work(connection: Connection) -> None:
            connection.execute(delete(push_holders).where(push_holders.c.holder == _OTHERS))
            if there:
                connection.execute(insert(push_holders).values(holder=_OTHERS, until=0, leaving=True))

        await self._database.write(work, grows=False)


# One row a holder, rather than one a lease.
_STANDING = Statement("""
    SELECT holder, until > {now} AS lives, leaving,
        (SELECT {joined}(subscription_id, ',') FROM push_leases WHERE push_leases.holder = push_holders.holder) AS held
    FROM push_holders
    """)
_LIVES = Statement("""
    INSERT INTO push_holders (holder, until, leaving) VALUES (:holder, {now} + :lease, :leaving)
    ON CONFLICT (holder) DO UPDATE SET until = excluded.until, leaving = excluded.leaving
    """)
_TAKE = Statement("""
    INSERT INTO push_leases (subscription_id, holder)
    SELECT subscriptions.id, :holder FROM {given} JOIN subscriptions ON subscriptions.id = text(0)
    WHERE true {kept}
    RETURNING subscription_id
    """)
_TELL = Statement("""
    INSERT INTO push_states (subscription_id, state, changed_on)
    SELECT push_leases.subscription_id, text(1), {now} FROM {given}
    JOIN push_leases ON push_leases.subscription_id = text(0) AND push_leases.holder = :holder
    WHERE true
    ON CONFLICT (subscription_id) DO UPDATE SET state = excluded.state, changed_on = excluded.changed_on
    """)
_STATE = Statement("""
    SELECT state FROM push_states JOIN push_leases USING (subscription_id) JOIN push_holders USING (holder)
    WHERE subscription_id = :subscription AND until > {now}
    """)
_IS_HELD = Statement("SELECT EXISTS (SELECT 1 FROM push_holders WHERE until > {now})")
