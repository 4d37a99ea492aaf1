"""How long messages are kept: a topic's own time, else its project's, else the setting's.

The registry says what was asked for; the log keeps to what it was told. The registry is told first, so that what a
crash in between leaves undone is done by `settle` at the next start.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from ams.access.admission import Caller
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, NotFound, TopicGone
from ams.core.names import TopicId, TopicName
from ams.core.settings import MAX_RETENTION_SECONDS
from ams.storage.log.base import Log
from ams.storage.registry.records import Project, Topic
from ams.storage.registry.registry import Registry

BAD_RETENTION = f"Invalid retentionSeconds(needs value between 0 and {MAX_RETENTION_SECONDS}) Arguments"
_AT_ONCE = 1000
"""Topics that are changed at the same time: they share commits of the log."""

logger = structlog.get_logger("ams.retention")


class Kept(NamedTuple):
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
            topic = await self._registry.topics.set_retention(caller.here.id, name, retention)
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
            project = await self._registry.projects.set_retention(caller.here.id, retention)
            if project is None:
                raise NotFound("project doesn't exist")
            heirs = await self._registry.topics.without_retention(project.id)
            await self._apply([Kept(topic, retention) for topic in heirs])
        return project

    async def of_new_topic(self, caller: Caller, topic: TopicId) -> None:
        """Let a topic that was just registered follow its project if that changed since the caller was let in."""
        project = await self._registry.projects.find(caller.here.name)
        if project is not None and (project.id, project.retention) == (caller.here.id, caller.here.retention):
            return
        async with self._one_at_a_time:
            await self._follow(topic)

    async def settle(self) -> int:
        """Tell the log what the registry says of each topic where they differ; return of how many. For the start."""
        differing = [
            Kept(topic, retention)
            for topic, retention in (await self._registry.topics.retentions()).items()
            if await self._log.retention(topic) != retention
        ]
        await self._apply(differing)
        if differing:
            logger.info("retention.settled", topics=len(differing))
        return len(differing)

    async def _follow(self, topic: TopicId) -> None:
        """Tell the log what the registry says of a topic."""
        await self._apply([Kept(topic, await self._registry.topics.retention(topic))])

    async def _apply(self, changes: Sequence[Kept]) -> None:
        remaining = iter(changes)
        while part := list(islice(remaining, _AT_ONCE)):
            await asyncio.gather(*map(self._tell, part))

    async def _tell(self, kept: Kept) -> None:
        try:
            await self._log.set_retention(kept.topic, kept.retention)
        except TopicGone:  # deleted meanwhile
            return


def _checked(seconds: int) -> Milliseconds | None:
    if not 0 <= seconds <= MAX_RETENTION_SECONDS:
        raise InvalidInput(BAD_RETENTION)
    return Milliseconds(seconds * 1000) or None
