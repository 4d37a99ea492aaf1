"""How long messages are kept: a topic's own time, else its project's, else the setting's.

The registry is changed before the log. What a crash in between left undone is done by `settle` at the next start, what
a log could not do then by a later round.

Messages that retention took before a subscription had acknowledged them are counted and never forgotten (law 3). A
cursor follows retention when a client pulls or looks at its offsets; until then the loss is not stored, but computed.
Before a subscription moves past a loss, or goes, it is stored. `Lag` tells how far a subscription is behind.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import structlog

from ams.access.admission import Caller
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import InvalidInput, NotFound, TopicGone
from ams.core.names import Offset, ProjectId, TopicId, TopicName
from ams.core.retention_clock import RetentionClock
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.core.supervisor import Rounds
from ams.service.leftovers import finish_or_leave
from ams.service.lookup import required, without_access_list
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.base import Cursors, Position
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Project, Subscription, Topic
from ams.storage.registry.registry import Registry

_TOPICS_AT_ONCE = 1000  # topics that are changed at the same time: they share commits of the log
CATCH_UP_SECONDS = 15.0
LOOK_SECONDS = 15.0
"""About as often as the total is asked for. A look at 10,000 topics takes a tenth of a second, in small pieces."""

logger = structlog.get_logger("ams.retention")
losses_logger = structlog.get_logger("ams.losses")


class Retention:
    """Changes how long messages are kept. Changes go one after the other, so that log and registry agree."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self._registry, self._log = registry, log
        self._one_at_a_time = asyncio.Lock()
        self._is_log_behind = False
        put_off = partial(logger.warning, "retention.put_off")
        self.rounds = Rounds("retention", CATCH_UP_SECONDS, self.catch_up, put_off)

    async def of_topic(self, caller: Caller, name: TopicName, seconds: int) -> Topic:
        """Keep a topic's messages for so long, 0: as the project says; return it. Raises `InvalidInput`, `NotFound`.

        A shorter time holds for all its messages at once, a longer one for those published from now on.
        """
        retention = _checked(seconds)
        async with self._one_at_a_time:
            expected = caller.expected.seen_by(without_access_list)
            changed = await self._registry.topics.set_retention(caller.here.id, name, retention, expected)
            topic = required(changed, TopicGone)
            await self._finish(self._follow(topic.id))
        return topic

    async def of_project(self, caller: Caller, seconds: int) -> Project:
        """Keep messages of topics without an own time for so long, 0: as the setting says; raise likewise."""
        retention = _checked(seconds)
        async with self._one_at_a_time:
            changed = await self._registry.projects.set_retention(caller.here.id, retention, caller.expected)
            project = required(changed, NotFound("project doesn't exist"))
            await self._finish(self._follow_project(project.id, retention))
        return project

    async def of_new_topic(self, caller: Caller, topic: TopicId) -> None:
        """Let a topic that was just registered follow its project if that changed since the caller was let in."""

        async def follow() -> bool:
            project = await self._registry.projects.find(caller.here.name)
            if project is not None and (project.id, project.retention) == (caller.here.id, caller.here.retention):
                return True
            async with self._one_at_a_time:
                return await self._follow(topic)

        await self._finish(follow())

    async def catch_up(self) -> None:
        """Settle if the log could not follow a change. Raises what the engines raise; the next round tries again."""
        if not self._is_log_behind:
            return
        self._is_log_behind = False
        try:
            await self.settle()
        except BaseException:
            self._is_log_behind = True
            raise

    async def settle(self) -> int:
        """Set in the log what the registry says of each topic where they differ; return how many."""
        async with self._one_at_a_time:
            differing = [
                (topic, retention)
                for topic, retention in (await self._registry.topics.retentions()).items()
                if await self._differs(topic, retention)
            ]
            await self._apply(differing)
        if differing:
            logger.info("retention.settled", topics=len(differing))
        return len(differing)

    async def _finish(self, rest: Awaitable[bool]) -> None:
        if not await finish_or_leave(rest, "retention"):
            self._is_log_behind = True

    async def _differs(self, topic: TopicId, retention: Milliseconds | None) -> bool:
        try:
            return await self._log.retention(topic) != retention
        except TopicGone:  # deleted meanwhile
            return False

    async def _follow(self, topic: TopicId) -> bool:
        await self._set(topic, await self._registry.topics.retention(topic))
        return True

    async def _follow_project(self, project: ProjectId, retention: Milliseconds | None) -> bool:
        heirs = await self._registry.topics.without_retention(project)
        await self._apply((topic, retention) for topic in heirs)
        return True

    async def _apply(self, changes: Iterable[tuple[TopicId, Milliseconds | None]]) -> None:
        remaining = iter(changes)
        while part := list(islice(remaining, _TOPICS_AT_ONCE)):
            await asyncio.gather(*[self._set(topic, retention) for topic, retention in part])

    async def _set(self, topic: TopicId, retention: Milliseconds | None) -> None:
        with contextlib.suppress(TopicGone):  # deleted meanwhile
            await self._log.set_retention(topic, retention)


def _checked(seconds: int) -> Milliseconds | None:
    if not 0 <= seconds <= MAX_RETENTION_SECONDS:
        text = f"Invalid retentionSeconds(needs value between 0 and {MAX_RETENTION_SECONDS}) Arguments"
        raise InvalidInput(text)
    return Milliseconds(seconds * 1000) or None


@dataclass(frozen=True, slots=True)
class Losses:
    """Counts and stores the messages that one subscription lost."""

    registry: Registry
    log: Log
    cursors: Cursors

    async def of(self, subscription: Subscription) -> int:
        """Return how many messages a subscription lost, ever; moves nothing. Raises `NotFound` when it is gone."""
        topic, oldest = await self._topic(subscription), Offset(0)
        if topic is not None:
            with contextlib.suppress(NotFound):
                oldest = (await self.log.bounds(topic.id)).oldest
        return await self.cursors.lost(subscription.id, {topic.id: oldest} if topic and oldest else {})

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
    """Messages that all subscriptions lost, ever: looked up in rounds. The total never falls, nor with a restart."""

    def __init__(self, log: Log, cursors: Cursors) -> None:
        self._log, self._cursors = log, cursors
        self._known: dict[TopicId, Offset] = {}
        put_off = partial(losses_logger.warning, "losses.put_off")
        self.rounds = Rounds("counting of losses", LOOK_SECONDS, self.look, put_off)
        self.messages = 0

    async def look(self) -> None:
        """Bring the total up to date. Raises what the engines raise; the next look then finds it all again."""
        bounds = await self._log.all_bounds()
        # No offset goes back, as when another broker leads that has kept a little more: what was counted as lost would
        # be counted once more when that broker deletes it too.
        self._known = {topic: max(each.oldest, self._known.get(topic, Offset(0))) for topic, each in bounds.items()}
        oldest = {topic: oldest for topic, oldest in self._known.items() if oldest}
        # What was acknowledged after retention had taken it, or whose topic is gone, was counted: a total that falls is
        # taken for one that began anew.
        self.messages = await self._cursors.lost_in_all(oldest, self.messages)


async def oldest_for(
    log: Log, topic: TopicId, subscription: Subscription, bounds: Bounds, clock: RetentionClock
) -> Offset:
    """Return the oldest message that a subscription may get, by its topic's retention and a shorter one of its own."""
    retention = subscription.parallel.message_retention if subscription.parallel else None
    if retention is None:
        return bounds.oldest
    found = await log.offset_at(topic, Milliseconds(max(clock.wall() - retention, 0)))
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


class Lag(NamedTuple):
    """Where a subscription stands on its topic."""

    current: Offset  # the oldest kept message that is not acknowledged, or the end
    end: Offset
    messages: int


async def lag_of(log: Log, cursors: CursorStore, subscription: Subscription, topic: TopicId) -> Lag:
    """Return how far a subscription is behind; raise `TopicGone`."""
    position = await cursors.position(subscription.id, topic)
    oldest, end = await log.bounds(topic)
    current = max(position.offset, oldest)
    if subscription.parallel is None or current >= end:
        return Lag(current, end, max(end - current, 0))
    done = (await cursors.progress(subscription.id)).done
    return Lag(current, end, end - current - int(done.range_cardinality(current, end)))


async def oldest_time(log: Log, topic: TopicId, floor: Offset) -> Milliseconds | None:
    """Return when the first message at or after `floor` was published; None without one."""
    found = await log.read(topic, floor, max_messages=1, max_bytes=1)
    return found[0].time if found else None


async def age_of(log: Log, topic: TopicId, floor: Offset, clock: Clock) -> Milliseconds | None:
    """Return how long ago the first message at or after `floor` was published; None without one."""
    published = await oldest_time(log, topic, floor)
    return None if published is None else Milliseconds(max(clock.wall() - published, 0))
