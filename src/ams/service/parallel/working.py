"""Work on parallel subscriptions: the parts together, and their start and end.

A subscription that is used is open: its `Backlog` is in memory, of one process at a time (`ownership`). `Storer` stores
settled messages before the answer; leases are not stored.
"""

from collections import Counter

from ams.cluster.ownership import Ownership
from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import DeadLetters
from ams.service.delivering import Deliverer
from ams.service.parallel.opening import OpenSubscriptions
from ams.service.parallel.pulling import Puller
from ams.service.parallel.settling import Settler
from ams.service.parallel.storing import Storer
from ams.service.parallel.sweeper import Sweeper
from ams.storage.cursors.acks import CursorStore


class Working:
    """The parts that work on parallel subscriptions."""

    def __init__(
        self,
        deliverer: Deliverer,
        cursors: CursorStore,
        dead_letters: DeadLetters,
        clock: Clock,
        ownership: Ownership | None = None,
        retention_clock: RetentionClock | None = None,
    ) -> None:
        """`ownership` absent: no other process works on subscriptions. Else requests may raise `OwnedElsewhere`.

        Messages go by `retention_clock`, absent: by one of its own.
        """
        ownership, retention_clock = ownership or Ownership(), retention_clock or RetentionClock(clock)
        self.opened = OpenSubscriptions(deliverer.registry, deliverer.log, cursors, clock, ownership, retention_clock)
        self.storer = Storer(deliverer.registry, self.opened, cursors, clock)
        self.puller = Puller(deliverer, self.opened, self.storer, clock)
        self.settler = Settler(deliverer, cursors, self.opened, self.storer, clock)
        self.sweeper = Sweeper(self.opened, self.storer, dead_letters, clock)
        self.streams: Counter[SubscriptionId] = Counter()
        """Streams that consumers have open here; `ams.pubsub` counts them."""

    async def start(self, supervisor: Supervisor) -> None:
        """Look after leases in the background, until `close`."""
        await self.opened.start(supervisor)
        self.sweeper.start(supervisor)

    async def hand_over(self) -> None:
        """Let other nodes have everything, after what is being stored: this one stops soon."""
        await self.storer.finish()
        await self.opened.hand_over()

    async def close(self) -> None:
        """End the background work, let what is being stored be stored, and let go of everything."""
        await self.sweeper.close()
        await self.storer.finish()
        await self.opened.close()
