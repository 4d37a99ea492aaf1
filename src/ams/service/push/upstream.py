"""The engines of this process as the upstream of its workers."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from ams.core.clock import publish_time
from ams.core.errors import AckTimeout, AmsError, Conflict, InvalidInput, NotAllowed, NotFound, TooLarge
from ams.core.messages import Stored
from ams.core.names import Offset, ProjectName, SubscriptionName
from ams.push.upstream import Away, Gone, HandOuts, NotTaken, Pulled, Refused, Target, Verdict
from ams.service.dead_letters import DeadLetters, NotNext
from ams.service.delivering import Deliverer
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

LONGEST_WAIT = 3600.0
"""Seconds; an idle worker looks at its cursor once an hour, beside when it is woken."""


class EnginesUpstream:
    """The engines of this process as the upstream of its workers (`ams.push.upstream`)."""

    def __init__(
        self, registry: Registry, deliverer: Deliverer, dead_letters: DeadLetters, hand_outs: HandOuts | None = None
    ) -> None:
        self._registry = registry
        self._deliverer = deliverer
        self._dead_letters = dead_letters
        self.hand_outs = hand_outs

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; waits until there is one."""
        with as_upstream_errors():
            subscription = await subscription_of(self._registry, target)
            until = asyncio.get_running_loop().time() + LONGEST_WAIT
            found = await self._deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
            while not found and await self._deliverer.wait(subscription, until):
                found = await self._deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
        return pulled(found)

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge everything up to `last`."""
        with as_upstream_errors():
            subscription = await subscription_of(self._registry, target)
            try:
                await self._deliverer.settle(subscription, Offset(last.offset))
            except (InvalidInput, AckTimeout) as error:  # the cursor was moved meanwhile
                raise NotTaken(error.message) from error

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put a message into the dead letter topic, and acknowledge it."""
        with as_upstream_errors():
            subscription = await subscription_of(self._registry, target)
            project, _ = names_of(target)
            try:
                await self._dead_letters.dead_letter(subscription, project, Offset(message.offset), verdict)
            except NotNext as error:
                raise NotTaken(error.message) from error

    def forget(self, target: Target) -> None:
        """Do nothing: the engines remember all by themselves."""

    def patience(self, target: Target) -> float | None:
        """Return that any time will do: no other process delivers it meanwhile."""
        return None


def pulled(messages: Sequence[Stored]) -> Sequence[Pulled]:
    """Return messages as they are delivered."""
    return [Pulled(each.offset, str(each.offset), publish_time(each.time), each.fragment) for each in messages]


async def subscription_of(registry: Registry, target: Target) -> Subscription:
    """Return the subscription of a target; raise `Gone`."""
    project, name = names_of(target)
    place = await registry.projects.find(project)
    found = await registry.subscriptions.find(place.id, name) if place else None
    if found is None or found.id != target.id:
        raise Gone("Subscription doesn't exist")
    return found


def names_of(target: Target) -> tuple[ProjectName, SubscriptionName]:
    """Return the project and the name of a target's subscription."""
    _, _, project, _, name = target.path.split("/")
    return ProjectName(project), SubscriptionName(name)


@contextlib.contextmanager
def as_upstream_errors() -> Iterator[None]:
    """Raise what the engines raise as the errors that workers know."""
    try:
        yield
    except NotFound as error:
        raise Gone(error.message) from error
    except (Conflict, NotAllowed, TooLarge, InvalidInput) as error:
        raise Refused(error.message) from error
    except AmsError as error:
        raise Away(error.message) from error
