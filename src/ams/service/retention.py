"""Retention: a topic's own time, else its project's, else the setting's. Losses by retention, and consumer lag.

The registry is changed before the log. After a crash in between, `settle` completes the change at the next start. If
the log is unavailable, a later round does. `ams.storage.log.embedded.upkeep` deletes the messages; on Kafka the brokers
do.

Messages that retention removed before a subscription acknowledged them are counted for ever (law 3). A cursor follows
retention when a client pulls or reads its offsets; until then the loss is computed, not stored. It is stored before the
subscription moves or is deleted.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from ams.access.admission import Caller
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import InvalidInput, NotFound, TopicGone
from ams.core.names import Offset, ProjectId, TopicId, TopicName
from ams.core.retention_clock import RetentionClock
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.core.supervisor import Ticker
from ams.service.leftovers import finish_or_leave, run_in_parts
from ams.service.lookup import require_found, without_access_list
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.base import Cursors, Position
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Project, Subscription, Topic
from ams.storage.registry.registry import Registry

TOPICS_AT_ONCE = 1000  # topics changed concurrently: they share group commits of the log
LOOK_SECONDS = 15.0  # interval of the total, about that of a metrics scrape
logger = structlog.get_logger("ams.retention")
losses_logger = structlog.get_logger("ams.losses")


class Retention:
    """Changes retention times, one after the other, so that log and registry agree."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self._registry, self._log = registry, log
        self._one_at_a_time = asyncio.Lock()
        self._is_log_behind = False
        self.rounds = Ticker("retention", 15.0, self.catch_up, partial(logger.warning, "retention.put_off"))

    async def of_topic(self, caller: Caller, name: TopicName, seconds: int) -> Topic:
        """Set the retention of a topic, 0: that of its project; return it. Raises `InvalidInput`, `NotFound`.

        A shorter time applies to all messages at once, a longer one to messages published from now on.
        """
        retention = _read_seconds(seconds)
        async with self._one_at_a_time:
            expected = caller.expected.seen_by(without_access_list)
            changed = await self._registry.topics.set_retention(caller.here.id, name, retention, expected)
            topic = require_found(changed, TopicGone)
            await self._finish(self._follow(topic.id))
        return topic

    async def of_project(self, caller: Caller, seconds: int) -> Project:
        """Set the retention of topics without their own, 0: the setting. Raises as `of_topic`."""
        retention = _read_seconds(seconds)
        async with self._one_at_a_time:
            changed = await self._registry.projects.set_retention(caller.here.id, retention, caller.expected)
            project = require_found(changed, NotFound("project doesn't exist"))
            await self._finish(self._follow_project(project.id, retention))
        return project

    async def of_new_topic(self, caller: Caller, topic: TopicId) -> None:
        """Apply the project's retention to a new topic, if it changed since the caller was admitted."""

        async def follow_retention() -> bool:
            project = await self._registry.projects.find(caller.here.name)
            if project is not None and (project.id, project.retention) == (caller.here.id, caller.here.retention):
                return True
            async with self._one_at_a_time:
                return await self._follow(topic)

        await self._finish(follow_retention())

    async def catch_up(self) -> None:
        """Settle if the log is behind. Raises what the engines raise; the next round retries."""
        if not self._is_log_behind:
            return
        self._is_log_behind = False
        try:
            await self.settle()
        except BaseException:
            self._is_log_behind = True
            raise

    async def settle(self) -> int:
        """Copy retention times that differ from the registry to the log; return how many."""
        async with self._one_at_a_time:
            differing = []
            for topic, retention in (await self._registry.topics.retentions()).items():
                with contextlib.suppress(TopicGone):  # deleted meanwhile
                    if await self._log.retention(topic) != retention:
                        differing.append((topic, retention))
            await self._set_in_log(differing)
        if differing:
            logger.info("retention.settled", topics=len(differing))
        return len(differing)

    async def _finish(self, rest: Awaitable[bool]) -> None:
        if not await finish_or_leave(rest, "retention"):
            self._is_log_behind = True

    async def _follow(self, topic: TopicId) -> bool:
        return await self._set_in_log([(topic, await self._registry.topics.retention(topic))])

    async def _follow_project(self, project: ProjectId, retention: Milliseconds | None) -> bool:
        heirs = await self._registry.topics.without_retention(project)
        return await self._set_in_log((topic, retention) for topic in heirs)

    async def _set_in_log(self, changes: Iterable[tuple[TopicId, Milliseconds | None]]) -> bool:
        async def set_retention(change: tuple[TopicId, Milliseconds | None]) -> None:
            with contextlib.suppress(TopicGone):  # deleted meanwhile
                await self._log.set_retention(*change)

        await run_in_parts(set_retention, changes, TOPICS_AT_ONCE)
        return True


def _read_seconds(seconds: int) -> Milliseconds | None:
    if not 0 <= seconds <= MAX_RETENTION_SECONDS:
        raise InvalidInput(f"Invalid retentionSeconds(needs value between 0 and {MAX_RETENTION_SECONDS}) Arguments")
    return Milliseconds(seconds * 1000) or None


@dataclass(frozen=True, slots=True)
class Losses:
    """Counts and stores messages that one subscription lost by retention."""

    registry: Registry
    log: Log
    cursors: Cursors

    async def of(self, subscription: Subscription) -> int:
        """Return how many messages a subscription ever lost; changes nothing. Raises `NotFound`."""
        topic, oldest = await self._topic(subscription), Offset(0)
        if topic is not None:
            with contextlib.suppress(NotFound):
                oldest = (await self.log.bounds(topic.id)).oldest
        return await self.cursors.lost_messages(subscription.id, {topic.id: oldest} if topic and oldest else {})

    async def settle(self, subscription: Subscription) -> None:
        """Store the losses of a subscription before it moves or is deleted. Does nothing without its topic."""
        topic = await self._topic(subscription)
        if topic is None:
            return
        with contextlib.suppress(NotFound):
            position = await self.cursors.position(subscription.id, topic.id)
            oldest = (await self.log.bounds(topic.id)).oldest
            await follow_retention(self.cursors, subscription, position, oldest)

    async def _topic(self, subscription: Subscription) -> Topic | None:
        return await self.registry.topics.find(subscription.project_id, subscription.topic)


class LossTotal:
    """Messages that all subscriptions ever lost, counted in rounds. The total never falls, also after a restart."""

    def __init__(self, log: Log, cursors: Cursors) -> None:
        self._log, self._cursors = log, cursors
        self._known: dict[TopicId, Offset] = {}
        put_off = partial(losses_logger.warning, "losses.put_off")
        self.rounds = Ticker("counting of losses", LOOK_SECONDS, self.look, put_off)
        self.messages = 0

    async def look(self) -> None:
        """Update the total. Raises what the engines raise; the next round retries."""
        bounds = await self._log.all_bounds()
        # The oldest offset must not fall, as when a new leader has kept a little more: the messages would be counted
        # again when that broker deletes them too.
        self._known = {topic: max(each.oldest, self._known.get(topic, Offset(0))) for topic, each in bounds.items()}
        oldest = {topic: oldest for topic, oldest in self._known.items() if oldest}
        # The last total is a lower bound: an acknowledgement after the loss, or a deleted topic, lowers the sum, and
        # a metrics store takes a falling counter for a restart.
        self.messages = await self._cursors.lost_in_all(oldest, self.messages)


async def bounds_for(log: Log, topic: TopicId, subscription: Subscription, clock: RetentionClock) -> Bounds:
    """Return the bounds of what a subscription may get, by its topic's retention and a shorter one of its own."""
    bounds = await log.bounds(topic)
    retention = subscription.parallel.message_retention if subscription.parallel else None
    if retention is None:
        return bounds
    time = Milliseconds(max(clock.wall() - retention, 0))
    return bounds._replace(oldest=await offset_within(log, topic, time, bounds))


async def offset_within(log: Log, topic: TopicId, time: Milliseconds, bounds: Bounds) -> Offset:
    """Return the first message within bounds that was published at `time` or later, or their end."""
    found = await log.offset_at(topic, time)
    return bounds.end if found is None else max(min(found, bounds.end), bounds.oldest)


async def follow_retention(cursors: Cursors, subscription: Subscription, before: Position, oldest: Offset) -> Position:
    """Move a cursor up to the oldest kept message, and log the loss; return its position."""
    if before.offset >= oldest:
        return before
    after = await cursors.retain(subscription.id, before.generation, oldest)
    if after.lost > before.lost:
        lost = after.lost - before.lost
        losses_logger.warning("subscription.lost", subscription=subscription.name, first=before.offset, messages=lost)
    return after


class Lag(NamedTuple):
    """Consumer lag of a subscription."""

    current: Offset  # the oldest kept message that is not acknowledged, or the end
    end: Offset
    messages: int


async def lag_of(log: Log, cursors: CursorStore, subscription: Subscription, topic: TopicId) -> Lag:
    """Return the lag of a subscription. Raises `TopicGone`."""
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
