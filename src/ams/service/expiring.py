"""What goes by itself: snapshots whose time is over, and subscriptions that nobody uses.

A subscription with an expiration policy goes when it was not used for its time: pulled from, acknowledged, pushed, or
asked for by its name. Uses are noted in memory and stored coarsely, so that no request waits for it; a subscription
stays longer by `MARGIN`, so that a use that was not stored in time, here or on another node, does not cost it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from ams.core.clock import Clock, Milliseconds, span_text
from ams.core.names import SubscriptionId, new_uuid, subscription_path
from ams.core.supervisor import Rounds
from ams.service.counting import Counts
from ams.service.subscriptions import Subscriptions
from ams.storage.audit.event import DONE, AuditEvent
from ams.storage.audit.trail import Trail
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import Expiring

ROUND_SECONDS = 600.0
STORED_EVERY = Milliseconds(3_600_000)
"""A use is stored when the last one that is stored is so much older."""
MARGIN = Milliseconds(2 * STORED_EVERY)
"""By so much longer than its time a subscription stays; and after a start: its clients are to have a chance."""
ACTOR = "(expiration policy)"

logger = structlog.get_logger("ams.expiring")


class Expiry:
    """Notes uses of subscriptions, and removes what has expired."""

    def __init__(self, registry: Registry, counts: Counts, subscriptions: Subscriptions, trail: Trail, clock: Clock):
        self._registry = registry
        self._counts = counts
        self._subscriptions = subscriptions
        self._trail = trail
        self._clock = clock
        self._noted: dict[SubscriptionId, Milliseconds] = {}
        self._started = clock.monotonic()
        self.rounds = Rounds("what expires", ROUND_SECONDS, self.round, partial(logger.warning, "expiring.put_off"))

    def note(self, subscription: SubscriptionId) -> None:
        """Note that somebody asked for a subscription. Pulls and acknowledgements are noted by `Counts`."""
        self._noted[subscription] = self._clock.wall()

    async def round(self) -> None:
        """Remove what has expired, and store uses. Raises what the registry and the cursors raise."""
        snapshots = await self._registry.snapshots.delete_expired()
        if snapshots:
            logger.info("snapshots.expired", snapshots=snapshots)
        expiring = await self._registry.subscriptions.expiring()
        used = {each.id: self._used(each) for each in expiring}
        self._noted = {each: when for each, when in self._noted.items() if each in used}
        await self._store(expiring, used)
        if self._clock.monotonic() - self._started < MARGIN:
            return
        for each in expiring:
            await self._remove_unused(each)

    async def _store(self, expiring: Sequence[Expiring], used: Mapping[SubscriptionId, Milliseconds]) -> None:
        late = {each.id: used[each.id] for each in expiring if used[each.id] - each.noted >= STORED_EVERY}
        await self._registry.subscriptions.note_uses(late)

    async def _remove_unused(self, each: Expiring) -> None:
        since = Milliseconds(self._clock.wall() - each.ttl - MARGIN)
        if self._used(each) >= since:
            return
        project, name = each.title
        if not await self._subscriptions.delete_unused(project, each.id, since):
            return
        path, unused = subscription_path(project, name), span_text(each.ttl)
        logger.warning("subscription.expired", subscription=path, unused_for=unused)
        await self._trail.record(
            AuditEvent(
                id=new_uuid(),
                at=self._clock.wall(),
                service="ams",
                action="subscriptions:delete",
                resource=path,
                actor=ACTOR,
                address="",
                code=200,
                result=DONE,
                reason=f"Not used for {unused}",
            )
        )

    def _used(self, each: Expiring) -> Milliseconds:
        """Return when a subscription was used last, as far as this node knows."""
        pulls = self._counts.pulled.get(each.id)
        known = (pulls.last if pulls else None, self._counts.acknowledged.get(each.id), self._noted.get(each.id))
        return Milliseconds(max(each.used, *[moment or 0 for moment in known]))
