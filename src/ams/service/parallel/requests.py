"""What callers ask for messages that they have on lease, by their ids."""

from dataclasses import dataclass

from ams.access.admission import Caller
from ams.core.ack_ids import AckIds
from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionName
from ams.push.upstream import Verdict
from ams.service.delivering import Deliverer
from ams.service.lookup import NOT_PARALLEL
from ams.service.parallel.settling import Settler
from ams.storage.registry.records import Subscription

MAX_SECONDS = 600
"""To which a lease may be extended, and after which a nack may let a message come again."""


@dataclass(frozen=True, slots=True)
class LeaseRequests:
    """Extends leases, and takes messages back."""

    deliverer: Deliverer
    settler: Settler

    async def extend(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int) -> None:
        """Let leases end so many seconds from now; 0 gives the messages back.

        Raises `InvalidInput` outside 0 to 600 or without ids, `NotFound`, `NotAllowed`, `Conflict` for an ordered
        subscription, what `Settler.extend` does.
        """
        subscription = await self._to_settle(caller, name, ids, seconds)
        await self.settler.extend(subscription, caller.here.name, ids, seconds, holder=holder_of(caller))

    async def nack(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int | None) -> None:
        """Give messages back, to come again after so many seconds, None: as the retry policy says; raises likewise."""
        subscription = await self._to_settle(caller, name, ids, seconds or 0)
        wait = None if seconds is None else Milliseconds(seconds * 1000)
        await self.settler.nack(subscription, caller.here.name, ids, wait)

    async def give_back(self, caller: Caller, name: SubscriptionName, ids: AckIds) -> None:
        """Give messages back that nobody has worked on: they come again at once, and have not failed.

        Raises likewise.
        """
        subscription = await self._to_settle(caller, name, ids, 0)
        await self.settler.give_back(subscription, caller.here.name, ids)

    async def is_parallel(self, caller: Caller, name: SubscriptionName) -> bool:
        """Whether a subscription that is there is parallel."""
        return await self.deliverer.is_parallel(caller, name)

    async def refuse(
        self, caller: Caller, name: SubscriptionName, ids: AckIds, wait: Milliseconds, verdict: Verdict
    ) -> None:
        """Let messages fail that an endpoint refused, as `Settler.refuse` does; raises likewise."""
        subscription = await self._to_settle(caller, name, ids, 0)
        await self.settler.refuse(subscription, caller.here.name, ids, wait, verdict)

    async def _to_settle(self, caller: Caller, name: SubscriptionName, ids: AckIds, seconds: int) -> Subscription:
        if not 0 <= seconds <= MAX_SECONDS:
            raise InvalidInput(f"Seconds should be between 0 and {MAX_SECONDS}")
        if not ids:
            raise InvalidInput("Invalid ack id")
        subscription = await self.deliverer.to_acknowledge(caller, name)
        if subscription.parallel is None:
            raise Conflict(NOT_PARALLEL)
        return subscription


def holder_of(caller: Caller) -> str:
    """Return the name under which a caller holds leases."""
    return caller.name or ""
