"""All parts of parallel subscriptions, with their start and stop.

A subscription in use is open: its `Backlog` is in the memory of one process, its owner. `Storer` stores settled
messages before the answer; leases are not stored.
"""

from collections import Counter

from ams.cluster.ownership import Ownership
from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer
from ams.service.parallel.ack_storer import Storer
from ams.service.parallel.open_subscriptions import OpenSubscriptions
from ams.service.parallel.pulls import Puller
from ams.service.parallel.settlement import Settler
from ams.service.parallel.sweeper import Sweeper


class ParallelSubscriptions:
    """Parallel subscriptions of this process. Requests for those of other nodes raise `OwnedElsewhere`."""

    def __init__(
        self, deliverer: Deliverer, letters: DeadLetters, clock: Clock, ownership: Ownership, retention: RetentionClock
    ) -> None:
        self._ownership = ownership
        self.opened = OpenSubscriptions(deliverer, clock, ownership, retention)
        self.storer = Storer(deliverer, self.opened, clock)
        self.puller = Puller(deliverer, self.opened, self.storer, clock)
        self.settler = Settler(deliverer, self.opened, self.storer, clock)
        self.sweeper = Sweeper(self.opened, self.storer, letters, clock)
        self.streams: Counter[SubscriptionId] = Counter()  # open streams by subscription; `ams.pubsub` counts them

    async def start(self, supervisor: Supervisor) -> None:
        """Renew ownership and sweep leases in the background, until `close`."""
        await self.opened.note_ends()
        await self._ownership.start(supervisor, self.opened.forget_all)
        await self.sweeper.start(supervisor)

    async def hand_over(self) -> None:
        """Finish storing, then give up all subscriptions to other nodes."""
        await self.storer.finish()
        self.opened.forget_all()
        await self._ownership.leave()

    async def close(self) -> None:
        """End the background work, finish storing, and give up all subscriptions."""
        await self.sweeper.rounds.close()
        await self.storer.finish()
        await self._ownership.close()
