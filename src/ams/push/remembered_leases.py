"""Leases where one process has everything: in memory, but for whether processes elsewhere hold some.

Without others nobody holds anything of an earlier life, and after a start delivering begins at once. With others it
must not: for the rest of their leases they go on with what they were given before. So that there are some is
remembered, and nothing else.
"""

import asyncio
import contextlib
from typing import Protocol

from ams.core.clock import Clock
from ams.core.errors import AmsError
from ams.core.names import SubscriptionId
from ams.push.leases import Heartbeat
from ams.push.memory_leases import MemoryLeases
from ams.push.sharing import Subscriptions
from ams.wire.push import WorkerState


class Others(Protocol):
    """Remembers whether others deliver. All calls raise `AmsError` when that cannot be stored or read now."""

    async def are_there(self) -> bool:
        """Whether there are any, as was noted last."""
        ...

    async def note(self, there: bool) -> None:
        """Note whether there are any; durable when it returns."""
        ...


class RememberedLeases:
    """Keeps the promise of `ams.push.leases.Leases`; `own` is the holder that ends with this process."""

    def __init__(self, clock: Clock, own: str, others: Others) -> None:
        self._clock = clock
        self._own = own
        self._others = others
        self._leases: MemoryLeases | None = None
        self._noted = False
        """What was noted last of others."""
        self._turn = asyncio.Lock()

    async def heartbeat(self, heartbeat: Heartbeat, wanted: Subscriptions) -> Subscriptions:
        """Note that a holder lives; return what it shall hold. Raises `AmsError`."""
        async with self._turn:
            leases = self._leases or await self._begun()
            if heartbeat.holder != self._own and not self._noted:
                await self._note(True)
            told = await leases.heartbeat(heartbeat, wanted)
            if self._noted and leases.is_settled and leases.holders() <= {self._own}:
                with contextlib.suppress(AmsError):  # with the next heartbeat, then
                    await self._note(False)
            return told

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return how a delivery goes, as its holder told last."""
        return await self._leases.state(subscription) if self._leases else None

    async def is_held(self) -> bool:
        """Whether any holder lives."""
        return await self._leases.is_held() if self._leases else False

    async def _begun(self) -> MemoryLeases:
        self._noted = await self._others.are_there()
        self._leases = MemoryLeases(self._clock, settled=not self._noted)
        return self._leases

    async def _note(self, there: bool) -> None:
        await self._others.note(there)
        self._noted = there
