"""The workers of this process, as far as those who decide what it delivers need them."""

from collections.abc import Iterable
from typing import Protocol

from ams.core.names import SubscriptionId
from ams.push.target import Target
from ams.wire.push import WorkerState


class Table(Protocol):
    """Workers by path; `ams.push.workers.Workers` is one, and says what these do."""

    def follow(self, targets: Iterable[Target]) -> None:
        """Deliver these targets and no others."""
        ...

    def hold_until(self, ends: float | None) -> None:
        """Send and acknowledge nothing from then on, by the loop's clock; None: whatever the time is."""
        ...

    def activate(self, target: Target) -> bool:
        """Deliver this target too; False when its path is delivered already."""
        ...

    def deactivate(self, path: str) -> bool:
        """Deliver this one no more; False when it is not delivered."""
        ...

    def held(self) -> frozenset[SubscriptionId]:
        """Return the identities of what is delivered, or finished, here."""
        ...

    def state(self, path: str) -> WorkerState | None:
        """Return how a delivery goes; None when it is not to be delivered here."""
        ...

    def take_changes(self) -> dict[SubscriptionId, WorkerState]:
        """Return the states that changed since they were last taken."""
        ...

    def put_back(self, changes: Iterable[SubscriptionId]) -> None:
        """Have these taken again: they did not arrive."""
        ...

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight, for so long, and end the rest; another `follow` begins anew."""
        ...
