"""Leases in memory, where one process has everything. Held to `ams.push.leases` by `tests/push/test_leases.py`."""

from collections.abc import Mapping
from dataclasses import dataclass

from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.push.leases import LEASE_SECONDS, NOTHING, Heartbeat
from ams.push.sharing import Standing, Subscriptions, share
from ams.wire.push import WorkerState

_LEASE = round(LEASE_SECONDS * 1000)
"""Milliseconds."""


@dataclass(frozen=True, slots=True)
class _Holder:
    until: int
    """By the monotonic clock."""
    leaving: bool
    leases: Subscriptions
    states: Mapping[SubscriptionId, WorkerState]


_NOBODY = _Holder(0, False, frozenset(), NOTHING)


class MemoryLeases:
    """Keeps who holds what until the process ends.

    `settled` says that nobody holds anything of an earlier life of this process, as when all holders end with it. Else
    what holders say they hold is theirs, and nothing else is given away in the first `LEASE_SECONDS`: somebody who was
    given it earlier may still be at it.
    """

    def __init__(self, clock: Clock, *, settled: bool) -> None:
        self._clock = clock
        self._gives_from = clock.monotonic() + (0 if settled else _LEASE)
        self._holders: dict[str, _Holder] = {}

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        """Note that a holder lives; return what it shall hold."""
        others = self._living()
        before = others.pop(heartbeat.holder, _NOBODY)
        standing = Standing(
            before.leases,
            {name: each.leases for name, each in others.items()},
            frozenset(name for name, each in others.items() if each.leaving),
        )
        now = self._clock.monotonic()
        found = share(heartbeat, wanted, standing, gives=self.is_settled)
        known = {**before.states, **heartbeat.states}
        states = {each: known[each] for each in found.leases if each in known}
        self._holders = others
        if found.leases or not heartbeat.leaving:
            self._holders[heartbeat.holder] = _Holder(now + _LEASE, heartbeat.leaving, found.leases, states)
        return found.told

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return how a delivery goes, as its holder told last."""
        told = (each.states.get(subscription) for each in self._living().values())
        return next((state for state in told if state is not None), None)

    async def is_held(self) -> bool:
        """Whether any holder lives."""
        return bool(self._living())

    def holders(self) -> frozenset[str]:
        """Return who lives."""
        return frozenset(self._living())

    @property
    def is_settled(self) -> bool:
        """Whether nobody holds anything of an earlier life any more."""
        return self._clock.monotonic() >= self._gives_from

    def _living(self) -> dict[str, _Holder]:
        now = self._clock.monotonic()
        return {name: each for name, each in self._holders.items() if each.until > now}
