"""The push runner: the workers that deliver inside the service, and the engines as their upstream.

What is delivered is what the registry wants, shared with other processes that deliver (`ams.service.push.assignment`),
whatever happened before: nothing else is remembered. A change of a push configuration here lets the workers follow at
once.
"""

import asyncio
import random
from collections.abc import Mapping
from functools import partial

import structlog

from ams.core.errors import AmsError
from ams.core.names import SubscriptionId
from ams.core.supervisor import Rounds, Supervisor
from ams.push.holding import Holding, LeaseReply, Unanswered
from ams.push.leases import Heartbeat
from ams.push.report import Tally
from ams.push.workers import Workers
from ams.service.delivering import Deliverer
from ams.service.push.assignment import Assignment
from ams.storage.cursors.base import Cursors, TopicOffset

DRAIN_SECONDS = 4.0
"""What deliveries under way have to end when the service stops; an endpoint that takes longer hangs."""
SETTLE_SECONDS = 2.0
"""How long a request that changed what is wanted waits for the workers to have heard of it."""
LOOK_SECONDS = 4.0
"""How soon a cursor that another node moved is noticed."""

logger = structlog.get_logger("ams.push")


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
        self._beats: asyncio.Task[None] | None = None

    async def start(self, supervisor: Supervisor) -> None:
        """Begin to deliver, in the background."""
        self._beats = supervisor.task("push leases", self._holding.run(supervisor.survive))
        if self._moves is not None:
            await self._moves.rounds.start(supervisor)

    async def settle(self) -> None:
        """Let the workers follow what is wanted now; returns when they do, or after a while."""
        await self._holding.settle(SETTLE_SECONDS)

    async def close(self) -> None:
        """Finish what is being delivered, and leave the rest to others; once closed, it stays so."""
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
        self._cursors = cursors
        self._deliverer = deliverer
        self._known: Mapping[SubscriptionId, TopicOffset] = {}
        self.rounds = Rounds("moves of cursors", LOOK_SECONDS, self.look, partial(logger.debug, "push.moves_unknown"))

    async def look(self) -> None:
        """Wake the pulls that wait on a cursor that stands elsewhere than at the last look."""
        places = await self._cursors.places()
        for subscription in self._deliverer.waited_on():
            if places.get(subscription) != self._known.get(subscription):
                self._deliverer.wake(subscription)
        self._known = places
