"""What deliveries are signed with: sealed as tokens are, and bound to the subscription they are of.

A subscription has none, one, or, for a while after a rotation, two that are valid. They are shown to nobody but who
delivers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Damaged, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.core.push_config import PushConfig
from ams.storage.database.database import Database
from ams.storage.registry import push
from ams.storage.registry.tables import push_secrets, subscriptions
from ams.storage.secrets import Secrets

logger = structlog.get_logger("ams.registry")

Check = Callable[[PushConfig | None], None]
"""Raises when a subscription with this push configuration may have no secret."""


class PushSecretRecords:
    """Secrets by subscription."""

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
            check(push.read(row.push))
            until = _end_others(connection, subscription, now, keep)
            values = {"subscription_id": subscription, "sealed": sealed, "created_on": now}
            connection.execute(insert(push_secrets).values(**values))
            return until

        return await self._database.write(work)

    async def of(self, subscription: SubscriptionId) -> Sequence[str]:
        """Return the valid secrets of a subscription, newest first."""
        return (await self._valid(push_secrets.c.subscription_id == subscription)).get(subscription, ())

    async def all_valid(self) -> Mapping[SubscriptionId, Sequence[str]]:
        """Return the valid secrets of all subscriptions that have one, newest first."""
        return await self._valid()

    async def _valid(self, *conditions: ColumnElement[bool]) -> Mapping[SubscriptionId, Sequence[str]]:
        query = select(push_secrets).where(_is_valid(self._clock.wall()), *conditions)
        query = query.order_by(push_secrets.c.number.desc())
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return self._opened((row.subscription_id, row.sealed) for row in rows)

    def _opened(self, rows: Iterable[tuple[SubscriptionId, bytes]]) -> Mapping[SubscriptionId, Sequence[str]]:
        """Read secrets; a damaged one is passed over, so that it stops the deliveries of nobody else."""
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
