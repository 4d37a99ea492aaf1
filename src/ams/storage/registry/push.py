"""Push in the registry: what is to be delivered, and what deliveries are signed with."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select, text, update

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, SubscriptionGone
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName, TopicName
from ams.core.push_config import PushConfig
from ams.storage.database.database import Database
from ams.storage.registry.statements import Records
from ams.storage.registry.tables import projects, push_secrets, subscriptions, topics

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
