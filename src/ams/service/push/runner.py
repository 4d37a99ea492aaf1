"""The push runner: the workers that deliver inside the service, and the engines as their upstream.

What is delivered is what the registry wants, shared with other processes that deliver (`ams.service.push.assignment`),
whatever happened before: nothing else is remembered. A change of a push configuration here lets the workers follow at
once.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from ams.core.clock import publish_time
from ams.core.errors import AckTimeout, AmsError, Conflict, InvalidInput, NotAllowed, NotFound, TooLarge
from ams.core.names import Offset, ProjectName, SubscriptionId, SubscriptionName
from ams.core.supervisor import Supervisor
from ams.push.holding import Holding, LeaseReply, Unanswered
from ams.push.leases import Heartbeat
from ams.push.report import Tally
from ams.push.upstream import Away, Gone, NotTaken, Pulled, Refused, Target, Verdict
from ams.push.workers import Workers
from ams.service.dead_letters import DeadLetters, NotNext
from ams.service.delivering import Deliverer
from ams.service.push.assignment import Assignment
from ams.storage.cursors.base import Cursors, TopicOffset
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

DRAIN_SECONDS = 4.0
"""What deliveries under way have to end when the service stops; an endpoint that takes longer hangs."""
SETTLE_SECONDS = 2.0
"""How long a request that changed what is wanted waits for the workers to have heard of it."""
LONGEST_WAIT = 3600.0
"""Seconds; an idle worker looks at its cursor once an hour, beside when it is woken."""
LOOK_SECONDS = 4.0
"""How soon a cursor that another node moved is noticed."""

logger = structlog.get_logger("ams.push")


class EnginesUpstream:
    """The engines of this process as the upstream of its workers (`ams.push.upstream`)."""

    def __init__(self, registry: Registry, deliverer: Deliverer, dead_letters: DeadLetters) -> None:
        self._registry = registry
        self._deliverer = deliverer
        self._dead_letters = dead_letters

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; waits until there is one."""
        with _as_upstream_errors():
            subscription = await self._subscription(target)
            until = asyncio.get_running_loop().time() + LONGEST_WAIT
            found = await self._deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
            while not found and await self._deliverer.wait(subscription, until):
                found = await self._deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
        return [Pulled(each.offset, str(each.offset), publish_time(each.time), each.fragment) for each in found]

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge everything up to `last`."""
        with _as_upstream_errors():
            subscription = await self._subscription(target)
            try:
                await self._deliverer.settle(subscription, Offset(last.offset))
            except (InvalidInput, AckTimeout) as error:  # the cursor was moved meanwhile
                raise NotTaken(error.message) from error

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put a message into the dead letter topic, and acknowledge it."""
        with _as_upstream_errors():
            subscription = await self._subscription(target)
            project, _ = _names(target)
            try:
                await self._dead_letters.dead_letter(subscription, project, Offset(message.offset), verdict)
            except NotNext as error:
                raise NotTaken(error.message) from error

    def forget(self, target: Target) -> None:
        """Do nothing: the engines remember all by themselves."""

    def patience(self, target: Target) -> float | None:
        """Return that any time will do: no other process delivers it meanwhile."""
        return None

    async def _subscription(self, target: Target) -> Subscription:
        project, name = _names(target)
        place = await self._registry.projects.find(project)
        found = await self._registry.subscriptions.find(place.id, name) if place else None
        if found is None or found.id != target.id:
            raise Gone("Subscription doesn't exist")
        return found


def _names(target: Target) -> tuple[ProjectName, SubscriptionName]:
    _, _, project, _, name = target.path.split("/")
    return ProjectName(project), SubscriptionName(name)


@contextlib.contextmanager
def _as_upstream_errors() -> Iterator[None]:
    """Raise what the engines raise as the errors that workers know."""
    try:
        yield
    except NotFound as error:
        raise Gone(error.message) from error
    except (Conflict, NotAllowed, TooLarge, InvalidInput) as error:
        raise Refused(error.message) from error
    except AmsError as error:
        raise Away(error.message) from error


class PushRunner:
    """The workers of this process, as long as it serves."""

    def __init__(
        self, assignment: Assignment, workers: Workers, tally: Tally, moves: "Moves | None" = None, *, holder: str = ""
    ) -> None:
        """`tally` is the workers' observer; `moves` is needed where other nodes move cursors too.

        `holder` is a unique name; empty: one is made.
        """
        self.workers = workers
        self.tally = tally
        self._assignment = assignment
        self._moves = moves
        self._holding = Holding(workers, self._heartbeat, random.Random(), holder=holder)  # noqa: S311  # for pauses
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, supervisor: Supervisor) -> None:
        """Begin to deliver, in the background."""
        self._tasks = [supervisor.task("push leases", self._holding.run(supervisor.survive))]
        if self._moves is not None:
            self._tasks.append(supervisor.task("moves of cursors", self._moves.keep_looking(supervisor.survive)))

    async def settle(self) -> None:
        """Let the workers follow what is wanted now; returns when they do, or after a while."""
        await self._holding.settle(SETTLE_SECONDS)

    async def close(self) -> None:
        """Finish what is being delivered, and leave the rest to others; once closed, it stays so."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._holding.stop(DRAIN_SECONDS)

    async def _heartbeat(self, heartbeat: Heartbeat) -> LeaseReply:
        try:
            return LeaseReply(await self._assignment.heartbeat(heartbeat))
        except AmsError as error:
            raise Unanswered(error.message) from error


class Moves:
    """Wakes the pulls of subscriptions whose cursors another node moved, as by a seek: their workers wait here."""

    def __init__(self, cursors: Cursors, deliverer: Deliverer) -> None:
        self._cursors = cursors
        self._deliverer = deliverer
        self._known: Mapping[SubscriptionId, TopicOffset] = {}

    async def keep_looking(self, survive: Callable[[str], None]) -> None:
        """Look every few seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except AmsError as error:
                logger.debug("push.moves_unknown", reason=error.message)
            except Exception:  # a defect must not end the looking for good
                survive("moves of cursors")

    async def look(self) -> None:
        """Wake the pulls that wait on a cursor that stands elsewhere than at the last look."""
        places = await self._cursors.places()
        for subscription in self._deliverer.waited_on():
            if places.get(subscription) != self._known.get(subscription):
                self._deliverer.wake(subscription)
        self._known = places
