"""Push in the registry: subscriptions to deliver, and signing secrets."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, SubscriptionGone
from ams.core.names import ProjectName, SubscriptionId, SubscriptionName, TopicName
from ams.core.push_config import PushConfig
from ams.storage.database.schema import logger
from ams.storage.registry.statements import Records, Statement
from ams.storage.registry.tables import projects, push_secrets, subscriptions, topics


class Pushed(NamedTuple):
    """A subscription with push delivery."""

    id: SubscriptionId
    project: ProjectName
    name: SubscriptionName
    topic: TopicName
    topic_id: str  # as text; empty: the topic is deleted
    ack_deadline_seconds: int
    config: PushConfig
    is_parallel: bool = False
    counts_attempts: bool = False  # it is parallel and has a dead letter policy


class PushedRecords(Records):
    """All subscriptions to deliver. Rows are read only after a change, as they are used often and change seldom."""

    _known: tuple[str | None, Sequence[Pushed]] = None, ()

    async def all(self) -> Sequence[Pushed]:
        """Return them, oldest first; the same object if nothing has changed."""
        self._known = await self._database.read(self._read_rows)
        return self._known[1]

    def _read_rows(self, connection: Connection) -> tuple[str | None, Sequence[Pushed]]:
        stamp, known = _FINGERPRINT.run(connection).scalar(), self._known
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
_FINGERPRINT = Statement("""
    SELECT {digest}({joined}(
        subscriptions.id || projects.name || ' ' || subscriptions.name || ' ' || subscriptions.topic || ' '
        || COALESCE(topics.id, '') || CAST(subscriptions.ack_deadline_seconds AS TEXT) || subscriptions.push
        || COALESCE(subscriptions.parallel, ''),
    ' ')) FROM subscriptions
    JOIN projects ON projects.id = subscriptions.project_id
    LEFT JOIN topics ON topics.project_id = subscriptions.project_id AND topics.name = subscriptions.topic
    WHERE subscriptions.push IS NOT NULL
    """)
"""A fingerprint that changes with any row; reading the rows takes five times as long."""


Check = Callable[[PushConfig | None], object]  # raises when a subscription may have no secret


class PushSecretRecords(Records):
    """Encrypted signing secrets. A subscription has none, one, or two for a while after a rotation."""

    async def rotate(
        self, subscription: SubscriptionId, secret: str, keep: Milliseconds, check: Check
    ) -> Milliseconds | None:
        """Add a new signing secret; the previous one stays valid for `keep`. Return its end, or None.

        Raises `SubscriptionGone`, and errors of `check`; then nothing has changed.
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
        """Return the valid secrets by subscription, newest first."""
        query = select(push_secrets).where(_is_valid(self._clock.wall()))
        query = query.order_by(push_secrets.c.number.desc())
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        found: defaultdict[SubscriptionId, list[str]] = defaultdict(list)
        for row in rows:
            try:
                found[row.subscription_id].append(self._secrets.open_push(row.sealed, row.subscription_id))
            except Damaged as error:  # must not stop deliveries of other subscriptions
                logger.error("push_secret.damaged", reason=str(error))
        return dict(found)


def forget_secrets(connection: Connection, subscription: SubscriptionId) -> None:
    """Delete the secrets of a subscription, in the connection's transaction."""
    connection.execute(delete(push_secrets).where(push_secrets.c.subscription_id == subscription))


def _end_others(
    connection: Connection, subscription: SubscriptionId, now: Milliseconds, keep: Milliseconds
) -> Milliseconds | None:
    """End the newest secret after `keep`, or at its earlier end, and the others now; return the end."""
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
