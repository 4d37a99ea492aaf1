"""Stores settled messages before the answer, in separate tasks that continue if the caller leaves.

With exactly-once delivery a horizon is stored ahead of leases: an offset, and a time, up to which messages may be on
lease. After a restart nothing below it is given before that time (`RestartGrace.withhold`).
"""

import asyncio
import contextlib
from collections.abc import Collection, Sequence

from pyroaring import BitMap64

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Overloaded
from ams.core.names import Offset
from ams.core.offsets import Range, ranges_of
from ams.service.delivery import Deliverer
from ams.service.lookup import no_topic_is_a_conflict
from ams.service.parallel.backlog import Settling
from ams.service.parallel.open_subscriptions import OpenSubscription, OpenSubscriptions
from ams.storage.cursors.acks import AckUpdate, Horizon, join_horizons
from ams.storage.registry.records import Subscription

HORIZON_AHEAD_OFFSETS = 10_000  # distance from the leases to the stored horizon, so that it is rarely stored
MAX_TRIES = 5  # tries of a call whose subscription is moved meanwhile


class SubscriptionMoved(Overloaded):
    """A seek moved the subscription, or another process owns it now. The call may be retried."""

    default_message = "Subscription was moved"


class Storer:
    """Stores settled messages, and horizons ahead of leases for exactly-once delivery."""

    def __init__(self, deliverer: Deliverer, opened: OpenSubscriptions, clock: Clock) -> None:
        self._registry, self._cursors, self._opened, self._clock = deliverer.registry, deliverer.cursors, opened, clock
        self.failures = 0  # failed deliveries since the start

    async def settle(self, opened: OpenSubscription, settling: Settling) -> None:
        """Store a change, even if the caller leaves. Raises `SubscriptionMoved`, and what the cursors raise."""
        if not (settling.done or settling.failures):
            return
        storing = asyncio.create_task(self.store(opened, settling))
        opened.storing.add(storing)
        storing.add_done_callback(opened.storing.discard)
        await asyncio.shield(storing)

    async def store(self, opened: OpenSubscription, settling: Settling, horizon: Horizon | None = None) -> None:
        """Store a change with the skipped ranges, and a new horizon if given. Raises as `settle`."""
        backlog, passed = opened.backlog, opened.backlog.done.take_passed()
        change = AckUpdate([*passed, *_ranges(settling.done)], settling.failures, horizon, settling.taken_back)
        try:
            is_stored = await self._cursors.settle(opened.subscription.id, backlog.epoch, backlog.run, change)
        except BaseException:
            backlog.note_not_stored(settling)
            backlog.done.passed[:0] = passed
            self._opened.note_due(opened)  # leases of the previous run continue too
            raise
        if not is_stored:
            if self._opened.has(opened):
                self._opened.leave(opened.subscription.id)  # another node may own it: the next use claims it again
            raise SubscriptionMoved
        backlog.note_stored(settling, self._clock.monotonic())
        opened.failures += len(settling.failures)
        self.failures += len(settling.failures)
        opened.wake_served()
        self._opened.note_due(opened)

    async def expire(self, opened: OpenSubscription) -> None:
        """Expire leases and backoffs that are due. Raises as `settle`."""
        due, now = opened.backlog.leases.next_due(), self._clock.monotonic()
        if due is None or due > now:
            return
        await self.settle(opened, opened.backlog.expire(now))
        opened.wake_served()

    async def finish(self) -> None:
        """Wait for all changes being stored."""
        if storing := [task for opened in self._opened.all() for task in opened.storing]:
            await asyncio.wait(storing)

    async def extend_horizon(self, opened: OpenSubscription, length: Milliseconds) -> None:
        """With exactly-once delivery, store a horizon for leases of this length, if needed."""
        if not (opened.options.enable_exactly_once_delivery or opened.is_horizon_stored):
            return
        below, known = opened.backlog.done.scan, opened.horizon
        until = Milliseconds(self._clock.wall() + length)
        if not opened.is_horizon_stored:  # exactly-once delivery was just switched on: older leases may last longer
            now = self._clock.monotonic()
            until = max(until, Milliseconds(self._clock.wall() + opened.backlog.out_until(now) - now))
        elif known is not None and below <= known.below and until <= known.until:
            return
        ahead = Horizon(Offset(below + HORIZON_AHEAD_OFFSETS), Milliseconds(until + length // 2))
        horizon = join_horizons(known, ahead)
        await self.store(opened, Settling(), horizon)
        opened.horizon, opened.is_horizon_stored = horizon, True

    async def cover(self, subscription: Subscription) -> None:
        """Store a horizon before exactly-once delivery is switched on. Raises as `Puller.pull`."""
        if await self._registry.topics.find(subscription.project_id, subscription.topic) is None:
            return
        for _ in range(MAX_TRIES):
            with no_topic_is_a_conflict:
                opened = await self._opened.use(subscription)
            with contextlib.suppress(SubscriptionMoved):
                async with opened.giving:  # so that no pull is about to lease what it has found
                    if self._opened.has(opened):
                        await self._store_horizon(opened)
                        return
        raise SubscriptionMoved

    async def _store_horizon(self, opened: OpenSubscription) -> None:
        opened.is_horizon_stored = True
        now = self._clock.monotonic()
        below, until = opened.backlog.end_of_leases(now)
        if until <= now:
            return
        horizon = Horizon(below, Milliseconds(self._clock.wall() + until - now))
        try:
            await self.store(opened, Settling(), horizon)
        except BaseException:
            opened.is_horizon_stored = False
            raise
        opened.horizon = join_horizons(opened.horizon, horizon)


async def storing_error(storing: Collection[asyncio.Task[None]]) -> BaseException | None:
    """Wait for changes being stored; return the first error."""
    if not storing:
        return None
    ended, _ = await asyncio.wait(set(storing))
    return next((each.exception() for each in ended if not each.cancelled() and each.exception()), None)


def _ranges(offsets: Sequence[Offset]) -> list[Range]:
    if not offsets:
        return []
    first, last = min(offsets), max(offsets)
    if last - first + 1 == len(offsets):
        return [(first, Offset(last + 1))]
    return ranges_of(BitMap64(offsets))
