"""Messages of parallel subscriptions for the workers of this process, leased by its engines."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from ams.core.ack_ids import AckIds
from ams.core.clock import Milliseconds
from ams.core.errors import AckTimeout, InvalidInput, OwnedElsewhere
from ams.core.names import Offset, ProjectName, SubscriptionId
from ams.push.upstream import Away, HandOut, NotTaken, Target, Verdict
from ams.service.parallel.pulling import Lot
from ams.service.parallel.storing import Moved
from ams.service.parallel.working import Working
from ams.service.push.upstream import LONGEST_WAIT, as_upstream_errors, names_of, pulled, subscription_of
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

HOLDER = "push"
"""Under which leases are held."""


class EngineHandOuts:
    """Keeps the promise of `ams.push.upstream.HandOuts`."""

    def __init__(self, registry: Registry, working: Working) -> None:
        self._registry = registry
        self._working = working

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[HandOut]:
        """Lease messages that are there now."""
        with as_upstream_errors():
            try:
                lots = await self._pull(target, max_messages, max_bytes)
            except OwnedElsewhere:  # it was delivered there before, or somebody looked at it there
                await self._working.opened.own(SubscriptionId(target.id), seizes=True)
                lots = await self._pull(target, max_messages, max_bytes)
        return [HandOut(each.hand_out, each.attempt, pulled(each.messages)) for each in lots]

    async def _pull(self, target: Target, most: int, max_bytes: int) -> Sequence[Lot]:
        subscription, project = await self._found(target)
        try:
            return await self._working.puller.pull(
                subscription, most, project=project, holder=HOLDER, wait=True, max_bytes=max_bytes
            )
        except Moved as error:
            raise Away(error.message) from error

    async def wait(self, target: Target) -> None:
        """Wait for messages, or for the time of some that failed."""
        with as_upstream_errors(), contextlib.suppress(OwnedElsewhere):  # leasing takes it back
            subscription, project = await self._found(target)
            await self._working.puller.wait(
                subscription, project, HOLDER, asyncio.get_running_loop().time() + LONGEST_WAIT
            )

    async def extend(self, target: Target, hand_out: HandOut, seconds: int) -> None:
        """Extend leases."""
        with _settling():
            subscription, project = await self._found(target)
            await self._working.settler.extend(subscription, project, _ids(hand_out), seconds, holder=HOLDER)

    async def acknowledge(self, target: Target, hand_out: HandOut) -> None:
        """Acknowledge messages."""
        with _settling():
            subscription, project = await self._found(target)
            await self._working.settler.acknowledge(subscription, project, _ids(hand_out))

    async def fail(self, target: Target, hand_out: HandOut, wait: Milliseconds, verdict: Verdict) -> None:
        """Let messages fail."""
        with _settling():
            subscription, project = await self._found(target)
            await self._working.settler.refuse(subscription, project, _ids(hand_out), wait, verdict)

    def release(self, target: Target, hand_out: HandOut) -> None:
        """Let messages be leased again."""
        with contextlib.suppress(InvalidInput):  # the topic was made anew
            self._working.settler.release(SubscriptionId(target.id), _ids(hand_out))

    async def _found(self, target: Target) -> tuple[Subscription, ProjectName]:
        return await subscription_of(self._registry, target), names_of(target)[0]


def _ids(hand_out: HandOut) -> AckIds:
    return {hand_out.text: [Offset(each.offset) for each in hand_out.messages]}


@contextlib.contextmanager
def _settling() -> Iterator[None]:
    """Raise `NotTaken` for leases that are no more, as after a seek, and other errors as workers know them."""
    with as_upstream_errors():
        try:
            yield
        except (AckTimeout, InvalidInput, Moved) as error:
            raise NotTaken(error.message) from error
