"""Working on parallel subscriptions: the parts that do it, and the life of all of them.

A subscription that is used is open: its `Backlog` is in memory, of one process at a time (`ownership`). What consumers
settle is stored by `Acks` before they are answered; leases are not stored.
"""

from collections import Counter

from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import DeadLetters
from ams.service.delivering import Deliverer
from ams.service.parallel.expiry_timer import ExpiryTimer
from ams.service.parallel.finding import Finder
from ams.service.parallel.opening import OpenSubscriptions
from ams.service.parallel.ownership import Alone, Ownership
from ams.service.parallel.pulling import Puller
from ams.service.parallel.settling import Settler
from ams.service.parallel.storing import Coverer, Storer
from ams.service.parallel.sweeper import Sweeper
from ams.storage.cursors.acks import CursorStore


class Working:
    """What this process does with parallel subscriptions."""

    def __init__(
        self,
        deliverer: Deliverer,
        cursors: CursorStore,
        dead_letters: DeadLetters,
        clock: Clock,
        ownership: Ownership | None = None,
    ) -> None:
        """`deliverer` has the limits that both types share, and knows who waits.

        `ownership` says what this process may work on; absent: everything. Where it may not, what consumers ask for
        raises `OwnedElsewhere`, and nothing was done.
        """
        finder = Finder(deliverer.log, cursors, clock)
        self.due = due = ExpiryTimer(clock)
        self.opened = OpenSubscriptions(deliverer.registry, deliverer.log, cursors, finder, clock, ownership or Alone())
        self.storer = Storer(self.opened, cursors, due, clock)
        self.coverer = Coverer(deliverer.registry, self.opened, self.storer, clock)
        self.puller = Puller(deliverer, self.opened, finder, self.storer, self.coverer, due, clock)
        self.settler = Settler(deliverer, cursors, self.opened, self.storer, self.coverer, due, clock)
        self.sweeper = Sweeper(self.opened, finder, self.storer, dead_letters, due, clock)
        self.streams: Counter[SubscriptionId] = Counter()
        """How many streams consumers have open here; those who have them count them."""

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
