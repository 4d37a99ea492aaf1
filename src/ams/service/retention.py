"""How long messages are kept: a topic's own time, else its project's, else the setting's.

The registry has what was asked for; the log keeps to what was set there. The registry is changed first, so that what a
crash in between leaves undone is done by `settle` at the next start.

What retention took from subscriptions before they had acknowledged it is counted and never forgotten (law 3). A cursor
follows retention when a client pulls or looks at its offsets; until then nothing is stored of a loss. So the answer is
what is stored and what no cursor has met yet, and before a subscription moves past a loss, or goes, it is stored.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import structlog

from ams.access.admission import Caller
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, NotFound, TopicGone
from ams.core.names import Offset, TopicId, TopicName
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.core.supervisor import Rounds
from ams.service.lookup import without_access_list
from ams.storage.cursors.base import Cursors, Position
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Project, Subscription, Topic
from ams.storage.registry.registry import Registry

BAD_RETENTION = f"Invalid retentionSeconds(needs value between 0 and {MAX_RETENTION_SECONDS}) Arguments"
_AT_ONCE = 1000
"""Topics that are changed at the same time: they share commits of the log."""

logger = structlog.get_logger("ams.retention")
losses_logger = structlog.get_logger("ams.losses")


class TopicRetention(NamedTuple):
    """A topic and how long its messages are to be kept; None: the log's default."""

    topic: TopicId
    retention: Milliseconds | None


class Retention:
    """Changes how long messages are kept. Changes go one after the other, so that log and registry agree."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self._registry = registry
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    async def of_topic(self, caller: Caller, name: TopicName, seconds: int) -> Topic:
        """Keep a topic's messages for so long, 0: as the project says; return the topic.

        A shorter time holds for all its messages at once, a longer one for those published from now on. Raises
        `InvalidInput` outside 0 to a year, `NotFound`.
        """
        retention = _checked(seconds)
        async with self._one_at_a_time:
            expected = caller.expected.seen_by(without_access_list)
            topic = await self._registry.topics.set_retention(caller.here.id, name, retention, expected)
            if topic is None:
                raise TopicGone
            await self._follow(topic.id)
        return topic

    async def of_project(self, caller: Caller, seconds: int) -> Project:
        """Keep the messages of all topics without a time of their own for so long, 0: as the setting says.

        Raises `InvalidInput` outside 0 to a year, `NotFound`.
        """
        retention = _checked(seconds)
        async with self._one_at_a_time:
            project = await self._registry.projects.set_retention(caller.here.id, retention, caller.expected)
            if project is None:
                raise NotFound("project doesn't exist")
            heirs = await self._registry.topics.without_retention(project.id)
            await self._apply([TopicRetention(topic, retention) for topic in heirs])
        return project

    async def of_new_topic(self, caller: Caller, topic: TopicId) -> None:
        """Let a topic that was just registered follow its project if that changed since the caller was let in."""
        project = await self._registry.projects.find(caller.here.name)
        if project is not None and (project.id, project.retention) == (caller.here.id, caller.here.retention):
            return
        async with self._one_at_a_time:
            await self._follow(topic)

    async def settle(self) -> int:
        """Set in the log what the registry says of each topic where they differ; return how many. For the start."""
        differing = [
            TopicRetention(topic, retention)
            for topic, retention in (await self._registry.topics.retentions()).items()
            if await self._log.retention(topic) != retention
        ]
        await self._apply(differing)
        if differing:
            logger.info("retention.settled", topics=len(differing))
        return len(differing)

    async def _follow(self, topic: TopicId) -> None:
        """Set in the log what the registry says of a topic."""
        await self._apply([TopicRetention(topic, await self._registry.topics.retention(topic))])

    async def _apply(self, changes: Sequence[TopicRetention]) -> None:
        remaining = iter(changes)
        while part := list(islice(remaining, _AT_ONCE)):
            await asyncio.gather(*map(self._set, part))

    async def _set(self, kept: TopicRetention) -> None:
        try:
            await self._log.set_retention(kept.topic, kept.retention)
        except TopicGone:  # deleted meanwhile
            return


def _checked(seconds: int) -> Milliseconds | None:
    if not 0 <= seconds <= MAX_RETENTION_SECONDS:
        raise InvalidInput(BAD_RETENTION)
    return Milliseconds(seconds * 1000) or None


LOOK_SECONDS = 15.0
"""About as often as the total is asked for. A look at 10,000 topics takes a tenth of a second, in small pieces."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Counts and stores what one subscription lost."""

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
        put_off = partial(losses_logger.warning, "losses.put_off")
        self.rounds = Rounds("counting of losses", LOOK_SECONDS, self.look, put_off)
        self.messages = 0

    async def look(self) -> None:
        """Bring the total up to date. Raises what the engines raise; the next look then finds it all again."""
        # What was acknowledged after retention had taken it, or whose topic is gone, was counted: a total that falls is
        # taken for one that began anew.
        self.messages = await self._cursors.lost_in_all(await self._oldest(), self.messages)

    async def _oldest(self) -> dict[TopicId, Offset]:
        """Return the oldest kept offsets; none goes back, as when another broker leads that has kept a little more.

        What was counted as lost would else be counted once more when that broker deletes it too.
        """
        bounds = await self._log.all_bounds()
        self._known = {topic: max(each.oldest, self._known.get(topic, Offset(0))) for topic, each in bounds.items()}
        return {topic: oldest for topic, oldest in self._known.items() if oldest}


async def oldest_for(log: Log, topic: TopicId, subscription: Subscription, bounds: Bounds, now: Milliseconds) -> Offset:
    """Return the oldest message that a subscription may get: the oldest of its topic, or of its own retention.

    A subscription's own retention passes messages over; it cannot keep what the topic lets go.
    """
    retention = subscription.parallel.message_retention if subscription.parallel else None
    if retention is None:
        return bounds.oldest
    found = await log.offset_at(topic, Milliseconds(max(now - retention, 0)))
    return bounds.end if found is None else max(min(found, bounds.end), bounds.oldest)


async def follow(cursors: Cursors, subscription: Subscription, before: Position, oldest: Offset) -> Position:
    """Move a cursor up to the oldest kept message if retention has passed it, and say so; return where it stands."""
    if before.offset >= oldest:
        return before
    after = await cursors.retain(subscription.id, before.generation, oldest)
    if after.lost > before.lost:
        lost = after.lost - before.lost
        losses_logger.warning("subscription.lost", subscription=subscription.name, first=before.offset, messages=lost)
    return after


async def _oldest(log: Log, topic: TopicId) -> dict[TopicId, Offset]:
    """Return a topic's oldest kept offset if retention took something; nothing of a topic that is gone."""
    try:
        oldest = (await log.bounds(topic)).oldest
    except NotFound:
        return {}
    return {topic: oldest} if oldest else {}
