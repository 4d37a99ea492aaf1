"""Leases: which process delivers what, so that no subscription is delivered by two and none by nobody.

A process that delivers is a **holder**. It says every `HEARTBEAT_SECONDS` that it lives and what it holds, and is
answered what is its to hold. Who has not said so for `LEASE_SECONDS` holds nothing any more, and others get its share;
it knows this itself, by its own clock from the sending of its last answered heartbeat, and has stopped by then.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.names import SubscriptionId
from ams.wire.push import WorkerState

HEARTBEAT_SECONDS = 2.0
LEASE_SECONDS = 6.0

NOTHING: Mapping[SubscriptionId, WorkerState] = {}


class Heartbeat(NamedTuple):
    """What a holder says of itself."""

    holder: str
    """A name of its own, another one at each start."""
    held: frozenset[SubscriptionId]
    """What it delivers now, or is still finishing: nobody else may have that."""
    states: Mapping[SubscriptionId, WorkerState] = NOTHING
    """How deliveries go that changed since its last answered heartbeat."""
    leaving: bool = False
    """Whether it wants no more: what it does not hold any more is free at once."""


class Leases(Protocol):
    """Keeps who holds what. In memory where one process has everything, else in the database all nodes share."""

    async def heartbeat(self, heartbeat: Heartbeat, wanted: frozenset[SubscriptionId]) -> frozenset[SubscriptionId]:
        """Note that a holder lives; return what it shall hold from now on, of all that is `wanted`.

        What it held and is not returned it has to finish and leave; it is free when the holder's next heartbeat lacks
        it. Holders get equal shares. Every wanted subscription is returned to at most one living holder.
        """
        ...

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return how a delivery goes, as a living holder that has it told last; None when there is none."""
        ...

    async def is_held(self) -> bool:
        """Whether any holder lives."""
        ...
