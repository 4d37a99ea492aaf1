"""The law of leases: what a process holds of what several share, so that no two work on the same, and none is left out.

A process that holds leases is a **holder**. It renews them all at once every `RENEW_SECONDS`. Without a renewal for
`LEASE_SECONDS` it holds nothing any more, and others may have it: by the clock of whoever keeps the leases. By its own
clock, since it sent its last answered renewal, it has stopped a little before (`lease_end`).

What is to be delivered by push is shared equally: a holder's renewal is a heartbeat that says what it holds, and the
answer what is its to hold. All that keep such leases go by `share`: in one process, here; of nodes, `StoredLeases` in
`ams.cluster.lease_table`.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ams.core.clock import Clock
from ams.core.errors import AmsError
from ams.core.names import SubscriptionId
from ams.wire.push import WorkerState

RENEW_SECONDS = 2.0
LEASE_SECONDS = 6.0
SPARE_SECONDS = 0.5
"""Between the end of a lease by its holder's clock and that by the clock of whoever keeps the leases."""

NOTHING: Mapping[SubscriptionId, WorkerState] = {}

Subscriptions = frozenset[SubscriptionId]
_LEASE = round(LEASE_SECONDS * 1000)  # milliseconds


def lease_end(sent: float, seconds: float = LEASE_SECONDS) -> float:
    """Return when a holder has to have stopped that sent its last answered renewal then, by the same clock."""
    return sent + seconds - SPARE_SECONDS


class Heartbeat(NamedTuple):
    """Message of a holder that it lives."""

    holder: str  # A name of its own, another one at each start
    held: frozenset[SubscriptionId]  # what it delivers now, or is still finishing: no other holder may have that
    states: Mapping[SubscriptionId, WorkerState] = NOTHING  # those that changed since its last answered heartbeat
    leaving: bool = False  # whether it wants no more: what it does not hold any more is free at once


class Leases(Protocol):
    """Keeps who holds what. In memory where one process has everything, else in the database all nodes share."""

    async def heartbeat(self, heartbeat: Heartbeat, wanted: frozenset[SubscriptionId]) -> frozenset[SubscriptionId]:
        """Note that a holder lives; return what it shall hold from now on, of all that is `wanted`, in equal shares.

        What it held and is not returned it has to finish and leave; it is free when the holder's next heartbeat lacks
        it. Every wanted subscription is returned to at most one living holder.
        """

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return how a delivery goes, as a living holder that has it reported last; None when there is none."""

    async def is_held(self) -> bool:
        """Return whether any holder lives."""


class Holdings(NamedTuple):
    """Leases of all holders before a heartbeat, but for those that have ended."""

    own: Subscriptions
    others: Mapping[str, Subscriptions]
    leaving: frozenset[str] = frozenset()  # those of the others who want no more, and only finish what they have


class Share(NamedTuple):
    """Answer to a heartbeat."""

    assigned: Subscriptions
    leases: Subscriptions  # what no other holder may have: that, and what the holder is still finishing


def share(heartbeat: Heartbeat, wanted: Subscriptions, standing: Holdings, *, gives: bool = True) -> Share:
    """Return the share of a holder; without `gives` it gets nothing that it does not hold, nor did hold, already."""
    taken: Subscriptions = frozenset().union(*standing.others.values())
    held = heartbeat.held - taken
    if heartbeat.leaving:
        return Share(frozenset(), held)
    free = wanted - taken - held
    own = -len((held | standing.own) & wanted), heartbeat.holder
    others = [(-len(has & wanted), name) for name, has in standing.others.items() if name not in standing.leaving]
    least, larger = divmod(len(wanted), len(others) + 1)
    quota = least + (sorted([own, *others]).index(own) < larger)
    kept = _first(quota, held & wanted)
    given = _first(quota - len(kept), free & standing.own, free - standing.own if gives else ())
    return Share(frozenset(kept + given), held.union(given))


def _first(most: int, *sets: Iterable[SubscriptionId]) -> list[SubscriptionId]:
    """Return so many at most, those of the first set first; always the same ones, so that none goes to and fro."""
    found: list[SubscriptionId] = []
    for each in sets:
        some = list(each)
        left = most - len(found)
        found += some if len(some) <= left else sorted(some)[:left]
    return found


@dataclass(frozen=True, slots=True)
class _Holder:
    until: int  # by the monotonic clock
    leaving: bool
    leases: Subscriptions
    states: Mapping[SubscriptionId, WorkerState]


_NOBODY = _Holder(0, False, frozenset(), NOTHING)


class MemoryLeases:
    """Keeps who holds what until the process ends.

    `settled`: no holder has anything of an earlier life of this process. Else what holders say they hold is theirs, and
    nothing else is given away in the first `LEASE_SECONDS`.
    """

    def __init__(self, clock: Clock, *, settled: bool) -> None:
        self._clock = clock
        self._gives_from = clock.monotonic() + (0 if settled else _LEASE)
        self._holders: dict[str, _Holder] = {}

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        others = self._living()
        before = others.pop(heartbeat.holder, _NOBODY)
        standing = Holdings(
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
        return found.assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        reported = (each.states.get(subscription) for each in self._living().values())
        return next((state for state in reported if state is not None), None)

    async def is_held(self) -> bool:
        return bool(self._living())

    def holders(self) -> frozenset[str]:
        """Return who lives."""
        return frozenset(self._living())

    @property
    def is_settled(self) -> bool:
        """Return whether no holder has anything of an earlier life any more."""
        return self._clock.monotonic() >= self._gives_from

    def _living(self) -> dict[str, _Holder]:
        now = self._clock.monotonic()
        return {name: each for name, each in self._holders.items() if each.until > now}


class Others(Protocol):
    """Remembers whether others deliver. All calls raise `AmsError` when that cannot be stored or read now."""

    async def are_there(self) -> bool:
        """Return whether there are any, as was noted last."""

    async def note(self, there: bool) -> None:
        """Note whether there are any; durable when it returns."""


class RememberedLeases(MemoryLeases):
    """Leases of a service whose other holders may outlive it; `own` is the holder that ends with this process."""

    def __init__(self, clock: Clock, own: str, others: Others) -> None:
        super().__init__(clock, settled=True)
        self._own, self._others = own, others
        self._noted: bool | None = None  # the last note of whether there are others; None: not read yet
        self._turn = asyncio.Lock()

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        async with self._turn:
            if self._noted is None:
                self._noted = await self._others.are_there()
                self._gives_from = self._clock.monotonic() + (_LEASE if self._noted else 0)
            if heartbeat.holder != self._own and not self._noted:
                await self._note(True)
            assigned = await super().heartbeat(heartbeat, wanted)
            if self._noted and self.is_settled and self.holders() <= {self._own}:
                with contextlib.suppress(AmsError):  # with the next heartbeat, then
                    await self._note(False)
            return assigned

    async def _note(self, there: bool) -> None:
        await self._others.note(there)
        self._noted = there
