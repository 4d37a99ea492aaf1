"""Stored bytes of each project, and whether it may store more.

A project may store as much as its quota says, or has a fair share of the space for all messages. So a project that
publishes without end is refused while there is room for the others, whose unread messages are never removed for it.
Publishing asks no database: the numbers are in memory, measured anew every few seconds, and counted in between.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

import structlog

from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.fair_share import UNLIMITED, FairShare
from ams.core.names import Offset, ProjectId, TopicId
from ams.core.quotas import PUBLISH_BYTES, STORED_BYTES, Limits, exceeded
from ams.core.rate import Rate
from ams.core.supervisor import Rounds
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log, Owner
from ams.storage.registry.records import Topic
from ams.storage.registry.registry import Registry

MEASURE_SECONDS = 5.0
UNLIMITED_MILLISECONDS = 60_000  # between measurements while no project has a limit
AGAIN_MILLISECONDS = 2_000  # how soon after a measurement a refusal makes another one: perhaps there is room by now
PRESSED_PART = 3 / 4  # from this part of its limit on, room is made for a project by what nobody needs any more
REQUEST_BYTES = 64  # bytes of a stored request beside its messages, about

logger = structlog.get_logger("ams.quotas")


class Measured(Protocol):
    """A log that can say how much it may hold."""

    async def capacity(self) -> int | None:
        """Return how many bytes all messages may take together; None: it refuses what is too much by itself."""


class StoredBytes:
    """Bytes of each project. Used from one event loop."""

    def __init__(self, registry: Registry, log: Log, clock: Clock, measured: Measured | None = None) -> None:
        """`measured` is the log if it has a capacity of its own; else a project without a quota has no limit."""
        self._registry, self._log, self._clock, self._measured = registry, log, clock, measured
        self._rules = registry.quotas.rules
        self._share = FairShare[ProjectId](UNLIMITED)
        self._topics: dict[TopicId, ProjectId] = {}
        self._limits: Mapping[ProjectId, int] = {}
        self._rates: Mapping[ProjectId, int] = {}
        self._changed: dict[ProjectId, Limits] = {}  # quotas changed since the last measurement began to read them
        self._byte_rates: dict[int, Rate] = {}
        """Published bytes of projects, by the bytes a second that they may publish."""
        self._measured_at = clock.monotonic() - UNLIMITED_MILLISECONDS
        self.rounds = Rounds("stored bytes", MEASURE_SECONDS, self.measure, partial(logger.warning, "stored.unknown"))

    def used(self, project: ProjectId) -> int:
        """Return how many bytes a project's messages take, about."""
        return self._share.held_by(project)

    def limit(self, project: ProjectId) -> int:
        """Return how many bytes a project's messages may take by its quota; 0: there is no limit."""
        return self._limits.get(project, self._rules.defaults[STORED_BYTES])

    def share(self, project: ProjectId) -> int | None:
        """Return how many bytes the messages of a project without a limit may take now; None: any number."""
        return None if self._share.capacity == UNLIMITED else self._share.most_of(project)

    def take(self, topic: Topic, size: int) -> None:
        """Count bytes before they are published; raise `QuotaExceeded` or `RateLimited`, and count nothing."""
        project = topic.project_id
        limit = self.limit(project)
        per_second = self._rates.get(project, self._rules.defaults[PUBLISH_BYTES])
        rate = self._byte_rate(per_second) if per_second else None
        if rate is not None and not rate.allows(project, 0):
            raise RateLimited(exceeded(PUBLISH_BYTES, f"its limit is {per_second}").message)
        if limit:
            if self._share.held_by(project) + size > limit:
                raise self._refused(f"its limit is {limit}")
            self._share.add(size, project)
        elif not self._share.try_take(project, size):
            raise self._refused(f"it has {self._share.held_by(project)} bytes, and leaves less free")
        self._topics[topic.id] = project
        if rate is not None:
            rate.take(project, size)

    def give_back(self, topic: Topic, size: int) -> None:
        """Count no more what was not published after all."""
        held = self._share.held_by(topic.project_id)
        self._share.add(-min(size, held), topic.project_id)  # it may have been measured anew meanwhile

    def follow(self, project: ProjectId, own: Limits) -> None:
        """Go by a project's own quotas, which were just changed."""
        self._changed[project] = own
        self._limits = {**self._limits, project: self._rules.limit(own, STORED_BYTES)}
        self._rates = {**self._rates, project: self._rules.limit(own, PUBLISH_BYTES)}

    async def measure(self) -> None:
        """Measure all anew."""
        self._changed = {}
        projects = await self._registry.projects.all()
        self._topics |= await self._registry.topics.owners()
        # The registry may have been read before a change that was followed meanwhile.
        quotas = {each.id: each.quotas for each in projects} | self._changed
        self._limits = {project: self._rules.limit(own, STORED_BYTES) for project, own in quotas.items()}
        self._rates = {project: self._rules.limit(own, PUBLISH_BYTES) for project, own in quotas.items()}
        capacity = None if self._measured is None else await self._measured.capacity()
        is_limited = self._measured is not None or any(self._limits.values())
        if not is_limited and self._clock.monotonic() - self._measured_at < UNLIMITED_MILLISECONDS:
            return
        stored = await self._log.stored(self._topics)
        self._topics = {topic: self._topics[topic] for topic in stored}
        share = FairShare[ProjectId](UNLIMITED if capacity is None else capacity)
        for topic, size in stored.items():
            share.add(size, self._topics[topic])
        self._share, self._measured_at = share, self._clock.monotonic()

    def pressed(self) -> Iterable[Owner]:
        """Return the topics of projects that have nearly as much as they may have."""
        topics: dict[ProjectId, list[TopicId]] = {}
        for topic, project in self._topics.items():
            topics.setdefault(project, []).append(topic)
        limits = {project: self.limit(project) or self._share.most_of(project) for project in topics}
        return [Owner(own, int(limits[project] * PRESSED_PART)) for project, own in topics.items()]

    def _byte_rate(self, per_second: int) -> Rate:
        return self._byte_rates.get(per_second) or self._byte_rates.setdefault(
            per_second, Rate(per_second, self._clock)
        )

    def _refused(self, why: str) -> Exception:
        if self._clock.monotonic() - self._measured_at > AGAIN_MILLISECONDS:
            self.rounds.soon()
        return exceeded(STORED_BYTES, why)


async def needed_offsets(registry: Registry, cursors: Cursors) -> Mapping[TopicId, Offset]:
    """Return the first offset of each topic that a subscription, or a snapshot, still needs."""
    found: dict[TopicId, Offset] = {}
    for topic, offset in [*(await cursors.places()).values(), *await registry.snapshots.floors()]:
        found[topic] = min(found.get(topic, offset), offset)
    return found
