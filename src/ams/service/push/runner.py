"""The push runner: the workers that deliver inside the service, and the engines as their upstream.

The targets are those of the registry, shared with other processes that deliver (`ams.service.push.assignment`); nothing
else is remembered. A change of a push configuration here lets the workers follow at once.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from ams.cluster.leases import Heartbeat
from ams.core.ack_ids import AckIds
from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import AckTimeout, AmsError, Conflict, InvalidInput, NotAllowed, NotFound, OwnedElsewhere, TooLarge
from ams.core.messages import Stored
from ams.core.names import Offset, ProjectName, SubscriptionId, SubscriptionName
from ams.core.supervisor import Supervisor, Ticker
from ams.push.lease_holder import Holding, LeaseReply, Unanswered
from ams.push.report import DeliveryTally
from ams.push.upstream import Away, Gone, HandOuts, NotTaken, Pulled, PushHandOut, Target, UpstreamRefused, Verdict
from ams.push.workers import Workers
from ams.service.dead_letters import DeadLetters, NotNext
from ams.service.delivery import Deliverer
from ams.service.parallel.ack_storer import SubscriptionMoved
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.pulls import LeaseBatch
from ams.service.push.assignment import Assignment
from ams.storage.cursors.base import Cursors, TopicOffset
from ams.storage.registry.records import Subscription
from ams.storage.registry.registry import Registry

DRAIN_SECONDS = 4.0  # for deliveries under way when the service stops
SETTLE_SECONDS = 2.0  # a request that changed a configuration waits so long for the workers to apply it
LOOK_SECONDS = 4.0  # until a cursor that another node moved is noticed
MAX_WAIT_SECONDS = 3600.0  # an idle worker looks at its cursor once an hour, beside when it is woken
HOLDER = "push"
logger = structlog.get_logger("ams.push")


class PushRunner:
    """The workers of this process, as long as it serves."""

    def __init__(
        self, assignment: Assignment, workers: Workers, tally: DeliveryTally, moves: "Moves | None", holder: str
    ) -> None:
        """`tally` observes the workers; `moves` where other nodes move cursors; `holder` is a unique name."""
        self.workers, self.tally, self._assignment, self._moves = workers, tally, assignment, moves
        self._holding = Holding(workers, self._heartbeat, random.Random(), holder=holder)  # noqa: S311  # for pauses
        self._beats: asyncio.Task[None] | None = None

    async def start(self, supervisor: Supervisor) -> None:
        """Begin to deliver, in the background."""
        self._beats = supervisor.task("push leases", self._holding.run(supervisor.log_failure))
        if self._moves is not None:
            await self._moves.rounds.start(supervisor)

    async def settle(self) -> None:
        """Let the workers apply the present targets; returns when they have, or after a while."""
        await self._holding.settle(SETTLE_SECONDS)

    async def close(self) -> None:
        """Finish deliveries under way, and give up the leases. It cannot be started again."""
        beats, self._beats = self._beats, None
        if beats is None:
            return
        if self._moves is not None:
            await self._moves.rounds.close()
        beats.cancel()
        await asyncio.wait((beats,))
        await self._holding.stop(DRAIN_SECONDS)

    async def _heartbeat(self, heartbeat: Heartbeat) -> LeaseReply:
        try:
            return LeaseReply(await self._assignment.heartbeat(heartbeat))
        except AmsError as error:
            raise Unanswered(error.message) from error


class Moves:
    """Wakes the pulls of subscriptions whose cursors another node moved, as by a seek: their workers wait here."""

    def __init__(self, cursors: Cursors, deliverer: Deliverer) -> None:
        self._cursors, self._deliverer = cursors, deliverer
        self._known: Mapping[SubscriptionId, TopicOffset] = {}
        self.rounds = Ticker("moves of cursors", LOOK_SECONDS, self.look, partial(logger.debug, "push.moves_unknown"))

    async def look(self) -> None:
        """Wake pulls that wait on a cursor that has moved since the last look."""
        places = await self._cursors.places()
        for subscription in self._deliverer.waited_on():
            if places.get(subscription) != self._known.get(subscription):
                self._deliverer.wake(subscription)
        self._known = places


@dataclass(slots=True)
class EnginesUpstream:
    """The engines of this process as the upstream of its workers (`ams.push.upstream`)."""

    deliverer: Deliverer
    dead_letters: DeadLetters
    hand_outs: HandOuts | None = None

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        with _as_upstream_errors():
            subscription = await _subscription_of(self.deliverer.registry, target)
            until = asyncio.get_running_loop().time() + MAX_WAIT_SECONDS
            found = await self.deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
            while not found and await self.deliverer.wait(subscription, until):
                found = await self.deliverer.pull(subscription, max_messages, wait=True, max_bytes=max_bytes)
        return _to_pulled(found)

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        async with _settling(self.deliverer.registry, target) as subscription:
            await self.deliverer.settle(subscription, Offset(last.offset))

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        project, _ = _names_of(target)
        async with _settling(self.deliverer.registry, target) as subscription:
            await self.dead_letters.dead_letter(subscription, project, Offset(message.offset), verdict)

    def forget(self, target: Target) -> None:
        """Do nothing: the engines remember all by themselves."""

    def patience(self, target: Target) -> float | None:
        """Return None: no deadline, as no other process delivers it."""
        return None


def _to_pulled(messages: Sequence[Stored]) -> Sequence[Pulled]:
    return [Pulled(each.offset, str(each.offset), publish_time(each.time), each.fragment) for each in messages]


async def _subscription_of(registry: Registry, target: Target) -> Subscription:
    project, name = _names_of(target)
    place = await registry.projects.find(project)
    found = await registry.subscriptions.find(place.id, name) if place else None
    if found is None or found.id != target.id:
        raise Gone("Subscription doesn't exist")
    return found


def _names_of(target: Target) -> tuple[ProjectName, SubscriptionName]:
    _, _, project, _, name = target.path.split("/")
    return ProjectName(project), SubscriptionName(name)


@contextlib.contextmanager
def _as_upstream_errors() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise Gone(error.message) from error
    except (Conflict, NotAllowed, TooLarge, InvalidInput) as error:
        raise UpstreamRefused(error.message) from error
    except AmsError as error:
        raise Away(error.message) from error


@dataclass(frozen=True, slots=True)
class EngineHandOuts:
    """Messages of parallel subscriptions for the workers of this process (`ams.push.upstream.HandOuts`)."""

    registry: Registry
    working: ParallelSubscriptions

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        with _as_upstream_errors():
            try:
                lots = await self._pull(target, max_messages, max_bytes)
            except OwnedElsewhere:  # it was delivered there before, or somebody looked at it there
                await self.working.opened.own(SubscriptionId(target.id), seizes=True)
                lots = await self._pull(target, max_messages, max_bytes)
        return [PushHandOut(each.hand_out, each.attempt, _to_pulled(each.messages)) for each in lots]

    async def _pull(self, target: Target, most: int, max_bytes: int) -> Sequence[LeaseBatch]:
        subscription = await _subscription_of(self.registry, target)
        return await self.working.puller.pull(
            subscription, most, holder=HOLDER, wait=True, max_bytes=max_bytes, one_of_each_key=True
        )

    async def wait(self, target: Target) -> None:
        with _as_upstream_errors(), contextlib.suppress(OwnedElsewhere):  # leasing takes it back
            subscription = await _subscription_of(self.registry, target)
            until = asyncio.get_running_loop().time() + MAX_WAIT_SECONDS
            await self.working.puller.wait(subscription, HOLDER, until)

    async def extend(self, target: Target, hand_out: PushHandOut, seconds: int) -> None:
        async with _settling(self.registry, target) as subscription:
            await self.working.settler.extend(subscription, _ids(hand_out), seconds, holder=HOLDER)

    async def acknowledge(self, target: Target, hand_out: PushHandOut) -> None:
        async with _settling(self.registry, target) as subscription:
            await self.working.settler.acknowledge(subscription, _ids(hand_out))

    async def fail(self, target: Target, hand_out: PushHandOut, wait: Milliseconds, verdict: Verdict) -> None:
        async with _settling(self.registry, target) as subscription:
            await self.working.settler.refuse(subscription, _ids(hand_out), wait, verdict)

    def release(self, target: Target, hand_out: PushHandOut) -> None:
        with contextlib.suppress(InvalidInput):  # the topic was recreated
            self.working.settler.release(SubscriptionId(target.id), _ids(hand_out))


def _ids(hand_out: PushHandOut) -> AckIds:
    return {hand_out.text: [Offset(each.offset) for each in hand_out.messages]}


@contextlib.asynccontextmanager
async def _settling(registry: Registry, target: Target) -> AsyncIterator[Subscription]:
    """Find a subscription, and convert errors: `NotTaken` if leases ended or the cursor was moved, as by a seek."""
    with _as_upstream_errors():
        try:
            yield await _subscription_of(registry, target)
        except (AckTimeout, InvalidInput, NotNext, SubscriptionMoved) as error:
            raise NotTaken(error.message) from error
