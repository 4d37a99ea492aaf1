"""What retention took from subscriptions before they had acknowledged it: told, and never forgotten (law 3).

A cursor follows retention when somebody pulls or looks at its offsets; until then nothing is stored of a loss. So
whoever asks is told what is stored and what nobody has met yet, and before a subscription moves past a loss, or goes,
it is stored.
"""

import asyncio
import contextlib
from dataclasses import dataclass

import structlog

from ams.core.errors import AmsError, NotFound
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.cursors.base import Cursors, Position
from ams.storage.log.base import Log
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

logger = structlog.get_logger("ams.losses")

LOOK_SECONDS = 15.0
"""About as often as the total is asked for. A look at 10,000 topics takes a tenth of a second, in small pieces."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Tells and stores what one subscription lost."""

    registry: Registry
    log: Log
    cursors: Cursors

    async def of(self, subscription: Subscription) -> int:
        """Return how many messages a subscription lost, ever; moves nothing. Raises `NotFound` when it is gone."""
        topic = await self._topic(subscription)
        return await self.cursors.lost(subscription.id, await _oldest(self.log, topic.id) if topic else {})

    async def settle(self, subscription: Subscription) -> None:
        """Store what a subscription lost, as it is to move or to go; nothing when it or its topic is gone."""
        topic = await self._topic(subscription)
        if topic is None:
            return
        with contextlib.suppress(NotFound):
            position = await self.cursors.position(subscription.id, topic.id)
            oldest = (await self.log.bounds(topic.id)).oldest
            await follow(self.cursors, subscription, position, oldest)

    async def _topic(self, subscription: Subscription) -> Topic | None:
        return await self.registry.topics.find(subscription.project_id, subscription.topic)


class LossTotal:
    """What all subscriptions lost, ever: looked up every quarter of a minute. It never falls, nor with a restart."""

    def __init__(self, log: Log, cursors: Cursors) -> None:
        self._log = log
        self._cursors = cursors
        self._known: dict[TopicId, Offset] = {}
        self._running: asyncio.Task[None] | None = None
        self.messages = 0

    async def start(self, supervisor: Supervisor | None = None) -> None:
        """Look now, then go on in the background until `close`."""
        await self.look()
        watched = supervisor or Supervisor()
        self._running = watched.task("counting of losses", self._run(watched))

    async def close(self) -> None:
        """End the background work."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def look(self) -> None:
        """Bring the total up to date. Raises what the engines raise; the next look then finds it all again."""
        # What was acknowledged after retention had taken it, or whose topic is gone, was told: a total that falls is
        # taken for one that began anew.
        self.messages = await self._cursors.lost_in_all(await self._oldest(), self.messages)

    async def _oldest(self) -> dict[TopicId, Offset]:
        """Return the oldest kept offsets; none goes back, as when another broker leads that has kept a little more.

        What was told as lost would else be lost once more when that broker deletes it too.
        """
        bounds = await self._log.all_bounds()
        self._known = {topic: max(each.oldest, self._known.get(topic, Offset(0))) for topic, each in bounds.items()}
        return {topic: oldest for topic, oldest in self._known.items() if oldest}

    async def _run(self, supervisor: Supervisor) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except AmsError as error:
                logger.warning("losses.put_off", reason=str(error))
            except Exception:  # a defect must not end the looking for good
                supervisor.survive("counting of losses")


async def follow(cursors: Cursors, subscription: Subscription, before: Position, oldest: Offset) -> Position:
    """Move a cursor up to the oldest kept message if retention has passed it, and say so; return where it stands."""
    if before.offset >= oldest:
        return before
    after = await cursors.retain(subscription.id, before.generation, oldest)
    if after.lost > before.lost:
        lost = after.lost - before.lost
        logger.warning("subscription.lost", subscription=subscription.name, first=before.offset, messages=lost)
    return after


async def _oldest(log: Log, topic: TopicId) -> dict[TopicId, Offset]:
    """Return a topic's oldest kept offset if retention took something; nothing of a topic that is gone."""
    try:
        oldest = (await log.bounds(topic)).oldest
    except NotFound:
        return {}
    return {topic: oldest} if oldest else {}
