"""Stored bytes of each project, and their limit.

The limit is the project's quota, or a fair share of the space for all messages. So a project that publishes without end
is refused while others have room, and their unread messages are never removed for it. Publishing asks no database: the
numbers are in memory, measured every few seconds, and updated in between.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import structlog

from ams.core.clock import Clock
from ams.core.errors import RateLimited
from ams.core.fair_share import UNLIMITED, FairShare
from ams.core.names import Offset, ProjectId, TopicId
from ams.core.quotas import PUBLISH_BYTES, STORED_BYTES, Limits, quota_exceeded
from ams.core.rate import Rate
from ams.core.supervisor import Ticker
from ams.storage.cursors.base import Cursors
from ams.storage.log.base import Log, Owner
from ams.storage.registry.records import Topic
from ams.storage.registry.registry import Registry

UNLIMITED_MEASURE_MS = 60_000  # between measurements while no project has a limit
MIN_REMEASURE_MS = 2_000  # after a measurement a refusal may cause another one, as there may be room by now
NEAR_LIMIT_PART = 3 / 4  # above this part of its limit, messages that no subscription needs are removed
REQUEST_BYTES = 64  # approximate bytes of a stored request beside its messages
logger = structlog.get_logger("ams.quotas")


class StoredBytes:
    """Bytes of each project. Used from one event loop."""

    def __init__(
        self, registry: Registry, log: Log, clock: Clock, capacity: Callable[[], Awaitable[int | None]] | None = None
    ) -> None:
        """`capacity` returns the bytes that all messages may take; None: a project without a quota has no limit."""
        self._registry, self._log, self._clock, self._capacity = registry, log, clock, capacity
        self._rules = registry.quotas.rules
        self._share = FairShare[ProjectId](UNLIMITED)
        self._topics: dict[TopicId, ProjectId] = {}
        self._limits: Mapping[ProjectId, int] = {}
        self._rates: Mapping[ProjectId, int] = {}
        self._changed: dict[ProjectId, Limits] = {}  # quotas changed since the last measurement began to read them
        self._byte_rates: dict[int, Rate] = {}  # published bytes of projects, by the bytes a second they may publish
        self._measured_at = clock.monotonic() - UNLIMITED_MEASURE_MS
        self.rounds = Ticker("stored bytes", 5.0, self.measure, partial(logger.warning, "stored.unknown"))

    def held_by(self, project: ProjectId) -> int:
        """Return the approximate bytes of a project's messages."""
        return self._share.held_by(project)

    def limit(self, project: ProjectId) -> int:
        """Return the quota of a project in bytes; 0: no limit."""
        return self._limits.get(project, self._rules.defaults[STORED_BYTES])

    def steady_share(self, project: ProjectId) -> int | None:
        """Return the present fair share in bytes of a project without a quota; None: no limit."""
        return None if self._share.capacity == UNLIMITED else self._share.steady_share(project)

    def take(self, topic: Topic, size: int) -> None:
        """Reserve bytes before a publish. Raises `QuotaExceeded` or `RateLimited`, and reserves nothing then."""
        project = topic.project_id
        limit = self.limit(project)
        per_second = self._rates.get(project, self._rules.defaults[PUBLISH_BYTES])
        rate = self._byte_rate(per_second) if per_second else None
        if rate is not None and not rate.allows(project, 0):
            raise RateLimited(quota_exceeded(PUBLISH_BYTES, f"its limit is {per_second}").message)
        if limit:
            if self._share.held_by(project) + size > limit:
                raise self._quota_error(f"its limit is {limit}")
            self._share.add(size, project)
        elif not self._share.try_take(project, size):
            raise self._quota_error(f"it has {self._share.held_by(project)} bytes, and leaves less free")
        self._topics[topic.id] = project
        if rate is not None:
            rate.take(project, size)

    def give_back(self, topic: Topic, size: int) -> None:
        """Release bytes of a publish that failed."""
        held = self._share.held_by(topic.project_id)
        self._share.add(-min(size, held), topic.project_id)  # it may have been measured anew meanwhile

    def follow(self, project: ProjectId, own: Limits) -> None:
        """Apply changed quotas of a project."""
        self._changed[project] = own
        self._limits = {**self._limits, project: self._rules.limit(own, STORED_BYTES)}
        self._rates = {**self._rates, project: self._rules.limit(own, PUBLISH_BYTES)}

    async def measure(self) -> None:
        """Measure the bytes of all projects, and read their quotas."""
        self._changed = {}
        projects = await self._registry.projects.all()
        self._topics |= await self._registry.topics.owners()
        # The registry may have been read before a quota changed.
        quotas = {each.id: each.quotas for each in projects} | self._changed
        self._limits = {project: self._rules.limit(own, STORED_BYTES) for project, own in quotas.items()}
        self._rates = {project: self._rules.limit(own, PUBLISH_BYTES) for project, own in quotas.items()}
        capacity = None if self._capacity is None else await self._capacity()
        is_limited = self._capacity is not None or any(self._limits.values())
        if not is_limited and self._clock.monotonic() - self._measured_at < UNLIMITED_MEASURE_MS:
            return
        stored = await self._log.stored_bytes(self._topics)
        self._topics = {topic: self._topics[topic] for topic in stored}
        share = FairShare[ProjectId](UNLIMITED if capacity is None else capacity)
        for topic, size in stored.items():
            share.add(size, self._topics[topic])
        self._share, self._measured_at = share, self._clock.monotonic()

    def owners_near_limit(self) -> Iterable[Owner]:
        """Return the topics of projects near their limit."""
        topics: dict[ProjectId, list[TopicId]] = {}
        for topic, project in self._topics.items():
            topics.setdefault(project, []).append(topic)
        limits = {project: self.limit(project) or self._share.steady_share(project) for project in topics}
        return [Owner(own, int(limits[project] * NEAR_LIMIT_PART)) for project, own in topics.items()]

    def _byte_rate(self, per_second: int) -> Rate:
        rate = self._byte_rates.get(per_second)
        return rate or self._byte_rates.setdefault(per_second, Rate(per_second, self._clock))

    def _quota_error(self, why: str) -> Exception:
        if self._clock.monotonic() - self._measured_at > MIN_REMEASURE_MS:
            self.rounds.soon()
        return quota_exceeded(STORED_BYTES, why)


async def needed_offsets(registry: Registry, cursors: Cursors) -> Mapping[TopicId, Offset]:
    """Return the first offset of each topic that a subscription, or a snapshot, still needs."""
    found: dict[TopicId, Offset] = {}
    for topic, offset in [*(await cursors.places()).values(), *await registry.snapshots.floors()]:
        found[topic] = min(found.get(topic, offset), offset)
    return found
