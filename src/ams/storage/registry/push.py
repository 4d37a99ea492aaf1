"""Push in the registry: what is to be delivered, what deliveries are signed with, and who holds which lease."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select, text, update

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Damaged, RegistryUnavailable, SubscriptionGone
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName, TopicName
from ams.core.push_config import PushConfig
from ams.push.leases import LEASE_SECONDS, Heartbeat, Holdings, Subscriptions, share
from ams.storage.database.database import Database
from ams.storage.registry import parallel
from ams.storage.registry.statements import NOW, ByDialect, ByRows, among, now
from ams.storage.registry.tables import (
    projects,
    push_holders,
    push_leases,
    push_secrets,
    subscriptions,
    topics,
)
from ams.storage.secrets import Secrets
from ams.wire.push import WorkerState

_config = msgspec.json.Decoder(PushConfig)
_state = msgspec.json.Decoder(WorkerState)
logger = structlog.get_logger("ams.registry")


class Pushed(NamedTuple):
    """A subscription that is to be delivered."""

    id: SubscriptionId
    project: ProjectName
    name: SubscriptionName
    topic: TopicName
    topic_id: str
    """As text; empty when the topic is gone."""
    ack_deadline_seconds: int
    config: PushConfig
    is_parallel: bool = False
    counts_attempts: bool = False
    """Whether it is a parallel one with a dead letter policy."""


def stored(config: PushConfig | None) -> str | None:
    """Return a configuration as the table holds it."""
    return None if config is None else msgspec.json.encode(config).decode()


def read(text: str | None) -> PushConfig | None:
    """Read what the table holds."""
    return None if text is None else _config.decode(text)


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
        rows = connection.execute(_PUSHED).all()
        found = [_pushed(*row) for row in rows]
        return stamp, [each for each in found if each.config.verified]


def _pushed(
    identity: str,
    project: str,
    name: str,
    topic: str,
    topic_id: str | None,
    deadline: int,
    push: str,
    options: str | None,
) -> Pushed:
    chosen = parallel.read(options)
    return Pushed(
        SubscriptionId(identity),
        ProjectName(project),
        SubscriptionName(name),
        TopicName(topic),
        topic_id or "",
        deadline,
        _config.decode(push),
        is_parallel=chosen is not None,
        counts_attempts=chosen is not None and chosen.dead_letter_policy is not None,
    )


_PUSHED = (
    select(
        subscriptions.c.id,
        projects.c.name,
        subscriptions.c.name,
        subscriptions.c.topic,
        topics.c.id,
        subscriptions.c.ack_deadline_seconds,
        subscriptions.c.push,
        subscriptions.c.parallel,
    )
    .join(projects, projects.c.id == subscriptions.c.project_id)
    .outerjoin(topics, (topics.c.project_id == subscriptions.c.project_id) & (topics.c.name == subscriptions.c.topic))
    .where(subscriptions.c.push.is_not(None))
    .order_by(subscriptions.c.number)
)
_GATHERED = {"sqlite": "group_concat({each}, ' ')", "postgresql": "md5(string_agg({each}, ' '))"}
_EACH = (
    "subscriptions.id || projects.name || ' ' || subscriptions.name || ' ' || subscriptions.topic || ' '"
    " || COALESCE(topics.id, '') || CAST(subscriptions.ack_deadline_seconds AS TEXT) || subscriptions.push"
    " || COALESCE(subscriptions.parallel, '')"
)
_STAMP = {
    dialect: text(
        f"""
        SELECT {gathered.format(each=_EACH)} FROM subscriptions
        JOIN projects ON projects.id = subscriptions.project_id
        LEFT JOIN topics ON topics.project_id = subscriptions.project_id AND topics.name = subscriptions.topic
        WHERE subscriptions.push IS NOT NULL
        """  # noqa: S608 - nothing but constants is joined
    )
    for dialect, gathered in _GATHERED.items()
}
"""A text that is another one when anything of it has changed: reading the rows takes five times as long."""


Check = Callable[[PushConfig | None], None]
"""Raises when a subscription with this push configuration may have no secret."""


class PushSecretRecords:
    """Secrets by subscription: what deliveries are signed with, sealed as tokens are, and bound to the subscription.

    A subscription has none, one, or, for a while after a rotation, two that are valid. They are given only to processes
    that deliver.
    """

    def __init__(self, database: Database, secrets: Secrets, clock: Clock) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock

    async def rotate(
        self, subscription: SubscriptionId, secret: str, keep: Milliseconds, check: Check
    ) -> Milliseconds | None:
        """Sign with another secret from now on; the one before stays valid for `keep`, those before it no longer.

        Returns when the one before ends; None when there is none any more. Raises `SubscriptionGone`, then what
        `check` raises: nothing has changed then.
        """
        now = self._clock.wall()
        sealed = self._secrets.seal_push(secret, subscription)

        def work(connection: Connection) -> Milliseconds | None:
            query = select(subscriptions.c.push).where(subscriptions.c.id == subscription).with_for_update()
            row = connection.execute(query).first()
            if row is None:
                raise SubscriptionGone
            check(read(row.push))
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
        return self._opened((row.subscription_id, row.sealed) for row in rows)

    def _opened(self, rows: Iterable[tuple[SubscriptionId, bytes]]) -> Mapping[SubscriptionId, Sequence[str]]:
        """Read secrets; a damaged one is skipped, so that it stops no other subscription's deliveries."""
        found: defaultdict[SubscriptionId, list[str]] = defaultdict(list)
        for subscription, sealed in rows:
            try:
                found[subscription].append(self._secrets.open_push(sealed, subscription))
            except Damaged as error:
                logger.error("push_secret.damaged", reason=str(error))
        return dict(found)


def forget_secrets(connection: Connection, subscription: SubscriptionId) -> None:
    """Remove the secrets of a subscription, in the connection's transaction."""
    connection.execute(delete(push_secrets).where(push_secrets.c.subscription_id == subscription))


def _end_others(
    connection: Connection, subscription: SubscriptionId, now: Milliseconds, keep: Milliseconds
) -> Milliseconds | None:
    """Let the newest secret end after `keep`, or when it would anyway, and the others now; return when it ends."""
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


MAX_STATES = 100
"""Written by one heartbeat: each may be several KiB. What is more waits for the next heartbeats of its holder."""
_LEASE = round(LEASE_SECONDS * 1000)
"""Milliseconds."""
_OTHERS = "others"
"""No holder's name: theirs have a UUID."""
_TURN = 0x616D735F62656174  # "ams_beat" in ASCII
_States = Mapping[SubscriptionId, WorkerState]


class _Renewed(NamedTuple):
    assigned: Subscriptions
    living: frozenset[str]


class StoredLeases:
    """Leases of push delivery in the database, which nodes share (`ams.push.leases`).

    A heartbeat is one transaction, and heartbeats have their turn one after the other: so no two of them give the same
    to two holders. Times are the database's where several nodes share it.
    """

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
        """Store a heartbeat of a holder; return what it is to hold. Raises `RegistryUnavailable`."""
        known = {**self._waiting.get(heartbeat.holder, {}), **heartbeat.states}
        states = {each: state for each, state in known.items() if each in heartbeat.held}
        first = dict(itertools.islice(states.items(), MAX_STATES))
        mark = self._newest[heartbeat.holder] = object()

        def work(connection: Connection) -> _Renewed:
            if self._newest.get(heartbeat.holder) is not mark:
                raise RegistryUnavailable
            return self._heartbeat(connection, heartbeat, wanted, first)

        renewed = await self._database.in_turn(work, _TURN)
        self._waiting[heartbeat.holder] = {each: state for each, state in states.items() if each not in first}
        self._waiting = {holder: left for holder, left in self._waiting.items() if left and holder in renewed.living}
        self._newest = {holder: last for holder, last in self._newest.items() if holder in renewed.living}
        return renewed.assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return the state of a delivery, as its live holder reported last. Raises `RegistryUnavailable`."""
        found = await self._database.read(
            lambda connection: _STATE.run(connection, self._clock, subscription=subscription).scalar()
        )
        return None if found is None else _state.decode(found)

    async def is_held(self) -> bool:
        """Whether any holder is alive. Raises `RegistryUnavailable`."""
        return bool(await self._database.read(lambda connection: _IS_HELD.run(connection, self._clock).scalar()))

    # In the threads.

    def _heartbeat(
        self, connection: Connection, heartbeat: Heartbeat, wanted: Subscriptions, states: _States
    ) -> _Renewed:
        standing = self._standing(connection, heartbeat.holder)
        found = share(heartbeat, wanted, standing)
        said = {"holder": heartbeat.holder, "leaving": heartbeat.leaving, "lease": _LEASE}
        _LIVES.run(connection, self._clock, **said)
        _free(connection, standing.own - found.leases)
        missing = _take(connection, heartbeat.holder, found.leases - standing.own)
        self._tell(connection, heartbeat.holder, states)
        living = {*standing.others, heartbeat.holder}
        if heartbeat.leaving and not found.leases:
            connection.execute(delete(push_holders).where(push_holders.c.holder == heartbeat.holder))
            living.remove(heartbeat.holder)
        return _Renewed(found.assigned - missing, frozenset(living))

    def _standing(self, connection: Connection, holder: str) -> Holdings:
        """Return who has what, after those whose leases have ended were forgotten."""
        rows = _STANDING.run(connection, self._clock).all()
        ended = [row.holder for row in rows if not row.lives]
        if ended:
            connection.execute(delete(push_holders).where(push_holders.c.holder.in_(among(connection, ended))))
        held = {row.holder: frozenset((row.held or "").split(",")) - {""} for row in rows if row.lives}
        leaving = frozenset(row.holder for row in rows if row.lives and row.leaving)
        return Holdings(held.pop(holder, frozenset()), held, leaving)

    def _tell(self, connection: Connection, holder: str, states: _States) -> None:
        if states:
            rows = [(each, msgspec.json.encode(state).decode()) for each, state in states.items()]
            _TELL[connection.dialect.name].run(connection, rows, holder=holder, **now(connection, self._clock))


class OtherHolders:
    """Keeps the promise of `ams.push.leases.Others`, by a row of a holder whose lease is over."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def are_there(self) -> bool:
        """Whether there are any, as was noted last. Raises `RegistryUnavailable`."""
        found = select(push_holders.c.holder).where(push_holders.c.holder == _OTHERS)
        return await self._database.read(lambda connection: connection.scalar(found) is not None)

    async def note(self, there: bool) -> None:
        """Note whether there are any. Raises `RegistryUnavailable`."""
        await self._database.write(lambda connection: _note(connection, there), grows=False)


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


_KEPT = {"sqlite": "", "postgresql": "FOR KEY SHARE OF subscriptions"}
"""So that none of them goes before its lease is there."""


_STANDING = ByDialect(
    """
    SELECT holder, until > {now} AS lives, leaving,
        (SELECT {joined}(subscription_id, ',') FROM push_leases WHERE push_leases.holder = push_holders.holder) AS held
    FROM push_holders
    """
)
"""One row a holder: a thousand leases cost a thousand rows otherwise."""
_LIVES = ByDialect(
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
        SELECT push_leases.subscription_id, text(1), {time} FROM {{given}}
        JOIN push_leases ON push_leases.subscription_id = text(0) AND push_leases.holder = :holder
        WHERE true
        ON CONFLICT (subscription_id) DO UPDATE SET state = excluded.state, changed_on = excluded.changed_on
        """  # noqa: S608 - as above
    )
    for dialect, time in NOW.items()
}
_STATE = ByDialect(
    """
    SELECT state FROM push_states JOIN push_leases USING (subscription_id) JOIN push_holders USING (holder)
    WHERE subscription_id = :subscription AND until > {now}
    """
)
_IS_HELD = ByDialect("SELECT EXISTS (SELECT 1 FROM push_holders WHERE until > {now})")
