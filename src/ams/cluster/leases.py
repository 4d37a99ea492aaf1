"""Leases: each shared subscription is held by at most one process, and none is left out.

A process with leases is a **holder**. It renews all of them every `RENEW_SECONDS`. Without a renewal for
`LEASE_SECONDS`, by the clock of the lease store, they expire and are free for others. The holder stops slightly earlier
(`lease_end`), by its own clock, counted from sending the last answered renewal.

Push delivery is shared equally: a heartbeat tells what the holder holds, and the answer what it shall hold. Both lease
stores use `share`: `MemoryLeases` in one process, `StoredLeases` in `ams.cluster.lease_table` for several nodes.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Clock
from ams.core.errors import AmsError
from ams.core.names import SubscriptionId
from ams.wire.push import WorkerState

RENEW_SECONDS = 2.0
LEASE_SECONDS = 6.0
SPARE_SECONDS = 0.5  # safety margin between the end of a lease by the holder's clock and by the store's clock

NO_STATES: Mapping[SubscriptionId, WorkerState] = {}

Subscriptions = frozenset[SubscriptionId]
_LEASE_MS = round(LEASE_SECONDS * 1000)  # milliseconds


def lease_end(sent: float, seconds: float = LEASE_SECONDS) -> float:
    """Return when a holder must have stopped, by the clock of `sent`, the time of its last answered renewal."""
    return sent + seconds - SPARE_SECONDS


class Heartbeat(NamedTuple):
    """Renewal of a holder."""

    holder: str  # unique per start
    held: frozenset[SubscriptionId]  # in delivery or still finishing: not for other holders
    states: Mapping[SubscriptionId, WorkerState] = NO_STATES  # changed since its last answered heartbeat
    leaving: bool = False  # it takes no more; leases that it does not hold are free at once


class Leases(Protocol):
    """Lease store: in memory for one process, or in the database for several nodes."""

    async def heartbeat(self, heartbeat: Heartbeat, wanted: frozenset[SubscriptionId]) -> frozenset[SubscriptionId]:
        """Renew the leases of a holder; return its equal share of the `wanted` subscriptions.

        The holder must finish and leave held ones that are not returned; they are free when its next heartbeat lacks
        them. Each wanted subscription is returned to at most one living holder.
        """

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return the state of a delivery, as last reported by its living holder, or None."""

    async def is_held(self) -> bool:
        """Return whether there is a living holder."""


class LeaseShare(NamedTuple):
    """Result of `share`."""

    assigned: Subscriptions
    leases: Subscriptions  # not for other holders: the share, and what the holder is still finishing


def share(
    heartbeat: Heartbeat, wanted: Subscriptions, before: Subscriptions, others: Mapping[str, Subscriptions], *,
    leaving: Collection[str], gives: bool = True,
) -> LeaseShare:  # fmt: skip
    """Return the share of a holder, from its unexpired leases `before` the heartbeat, and those of `others`.

    `leaving` are other holders that only finish what they hold. Without `gives` it gets only what it holds or held.
    """
    taken: Subscriptions = frozenset().union(*others.values())
    held = heartbeat.held - taken
    if heartbeat.leaving:
        return LeaseShare(frozenset(), held)
    free = wanted - taken - held
    own = -len((held | before) & wanted), heartbeat.holder
    rivals = [(-len(has & wanted), name) for name, has in others.items() if name not in leaving]
    least, larger = divmod(len(wanted), len(rivals) + 1)
    quota = least + (sorted([own, *rivals]).index(own) < larger)
    kept = _first(quota, held & wanted)
    given = _first(quota - len(kept), free & before, free - before if gives else ())
    return LeaseShare(frozenset(kept + given), held.union(given))


def _first(most: int, *sets: Iterable[SubscriptionId]) -> list[SubscriptionId]:
    """Return at most `most`, from the first set first; deterministic, so that leases do not move back and forth."""
    found: list[SubscriptionId] = []
    for each in sets:
        some = list(each)
        left = most - len(found)
        found += some if len(some) <= left else sorted(some)[:left]
    return found


class _Holder(NamedTuple):
    until: int  # by the monotonic clock
    leaving: bool
    leases: Subscriptions
    states: Mapping[SubscriptionId, WorkerState]


_NO_HOLDER = _Holder(0, False, frozenset(), NO_STATES)


class Others(Protocol):
    """Durable flag whether other processes deliver. All calls raise `AmsError` if it cannot be stored or read."""

    async def are_there(self) -> bool:
        """Return the flag."""

    async def note(self, there: bool) -> None:
        """Set the flag; durable on return."""


class MemoryLeases:
    """Leases in memory, of a service whose other holders may outlive it; the holder `own` ends with this process.

    If there were others before a restart, holders keep what they report, and no other lease is granted in the first
    `LEASE_SECONDS`.
    """

    def __init__(self, clock: Clock, own: str, others: Others) -> None:
        self._clock, self._own, self._others = clock, own, others
        self._noted: bool | None = None  # last stored flag; None: not read yet
        self._gives_from = 0  # by the monotonic clock; known when the flag is
        self._holders: dict[str, _Holder] = {}
        self._turn = asyncio.Lock()

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        async with self._turn:
            if self._noted is None:
                self._noted = await self._others.are_there()
                self._gives_from = self._clock.monotonic() + (_LEASE_MS if self._noted else 0)
            if heartbeat.holder != self._own and not self._noted:
                await self._note(True)
            gives, others = self._clock.monotonic() >= self._gives_from, self._living()
            before = others.pop(heartbeat.holder, _NO_HOLDER)
            held = {name: each.leases for name, each in others.items()}
            leaving = [name for name, each in others.items() if each.leaving]
            found = share(heartbeat, wanted, before.leases, held, leaving=leaving, gives=gives)
            known = {**before.states, **heartbeat.states}
            states = {each: known[each] for each in found.leases if each in known}
            self._holders = others
            if found.leases or not heartbeat.leaving:
                until = self._clock.monotonic() + _LEASE_MS
                self._holders[heartbeat.holder] = _Holder(until, heartbeat.leaving, found.leases, states)
            if self._noted and gives and self._living().keys() <= {self._own}:
                with contextlib.suppress(AmsError):  # the next heartbeat retries
                    await self._note(False)
            return found.assigned

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        reported = (each.states.get(subscription) for each in self._living().values())
        return next((state for state in reported if state is not None), None)

    async def is_held(self) -> bool:
        return bool(self._living())

    def _living(self) -> dict[str, _Holder]:
        now = self._clock.monotonic()
        return {name: each for name, each in self._holders.items() if each.until > now}

    async def _note(self, there: bool) -> None:
        await self._others.note(there)
        self._noted = there
