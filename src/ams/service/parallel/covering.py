"""Storing below which offset, and until when, messages may be out: exactly-once delivery.

After a restart nothing below that horizon is given before that time (`Before.withhold`), as a consumer of before may
still work on it.
"""

import contextlib

from ams.core.clock import Clock, Milliseconds
from ams.core.names import Offset, ProjectName
from ams.service.lookup import no_topic_is_a_conflict
from ams.service.parallel.backlog import Settling
from ams.service.parallel.opened import Open
from ams.service.parallel.opening import OpenSubscriptions
from ams.service.parallel.storing import Moved, Storer
from ams.storage.cursors.acks import Horizon, farther
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

HORIZON_AHEAD = 10_000
"""Offsets by which more may be out than is, so that it is stored seldom."""
TRIES = 5
"""Of covering a subscription that is moved meanwhile."""


class Coverer:
    """Stores horizons ahead of leases."""

    def __init__(self, registry: Registry, opened: OpenSubscriptions, storer: Storer, clock: Clock) -> None:
        self._registry = registry
        self._opened = opened
        self._storer = storer
        self._clock = clock

    async def reach(self, opened: Open, below: Offset, length: Milliseconds) -> None:
        """With exactly-once delivery: store that leases may be out below an offset, which last so long."""
        if not (opened.options.enable_exactly_once_delivery or opened.is_covered):
            return
        until, known = Milliseconds(self._clock.wall() + length), opened.horizon
        if not opened.is_covered:  # exactly-once delivery was switched on: leases of before may last longer
            now = self._clock.monotonic()
            until = max(until, Milliseconds(self._clock.wall() + opened.backlog.out_until(now) - now))
        elif known is not None and below <= known.below and until <= known.until:
            return
        horizon = farther(known, Horizon(Offset(below + HORIZON_AHEAD), Milliseconds(until + length // 2)))
        await self._storer.store(opened, Settling(), horizon)
        opened.horizon, opened.is_covered = horizon, True

    async def cover(self, subscription: Subscription, project: ProjectName) -> None:
        """Store what may be out, for a subscription that is to have exactly-once delivery from now on.

        What is given from now on is covered as well, although it does not hold yet. Raises as `Puller.pull`.
        """
        if await self._registry.topics.find(subscription.project_id, subscription.topic) is None:
            return
        for _ in range(TRIES):
            with no_topic_is_a_conflict:
                opened = await self._opened.use(subscription, project)
            with contextlib.suppress(Moved):
                async with opened.giving:  # so that no pull is about to give what it has found
                    if self._opened.has(opened):
                        await self._cover(opened)
                        return
        raise Moved

    async def _cover(self, opened: Open) -> None:
        opened.is_covered = True
        now = self._clock.monotonic()
        found = opened.backlog.may_be_out(now)
        if found is None:
            return
        below, until = found
        horizon = Horizon(below, Milliseconds(self._clock.wall() + until - now))
        try:
            await self._storer.store(opened, Settling(), horizon)
        except BaseException:
            opened.is_covered = False
            raise
        opened.horizon = farther(opened.horizon, horizon)
