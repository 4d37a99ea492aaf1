"""The engines that implement `ams.storage.log.base.Log`, each of which can be reopened on the same storage."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ams.core.clock import Milliseconds, SystemClock
from ams.core.messages import Message, Stored, message
from ams.core.names import TopicId, new_topic_id
from ams.core.supervisor import Supervisor
from ams.storage.log.base import Log
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.options import KafkaOptions
from simulation.models.kafka import Cluster
from simulation.models.kafka_client import DirectBroker, install
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.idempotency_store import MemoryIdempotencyStore
from tests.support.clock import ManualClock
from tests.support.parts import kafka_prefix, kafka_servers

L = TypeVar("L", EmbeddedLog, KafkaLog)
HOUR = 3_600_000
SMALL_LOG_OPTIONS: dict[str, Any] = {"min_free_bytes": 0, "reserve_bytes": 0, "check_interval_ms": 3_600_000}
"""Options for tests: nothing is preallocated, and retention runs only on demand."""


@contextlib.asynccontextmanager
async def _closed_at_the_end(opening: Awaitable[L]) -> AsyncIterator[L]:
    log = await opening
    try:
        yield log
    finally:
        await log.close()


@dataclass
class Embedded:
    clock: ManualClock = field(default_factory=ManualClock)
    disk: UnreliableDisk = field(default_factory=UnreliableDisk)
    folder: str = "/log"
    options: dict[str, Any] = field(default_factory=dict)
    supervisor: Supervisor | None = None
    logs: list[EmbeddedLog] = field(default_factory=list)  # all that were opened on it

    async def let_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    def turn_back(self, milliseconds: int) -> None:
        """Set back the clock of publish times, if it is ours."""
        self.clock.step(-milliseconds)

    def is_now(self, time: Milliseconds) -> bool:
        """Return whether a publish time is the current time."""
        return time == self.clock.now

    def open_log(self, **options: Any) -> contextlib.AbstractAsyncContextManager[EmbeddedLog]:
        return _closed_at_the_end(self.open(**options))

    async def open(self, **options: Any) -> EmbeddedLog:
        settings = LogOptions(**(SMALL_LOG_OPTIONS | self.options | options))
        log = await EmbeddedLog.open(
            self.folder, files=self.disk, clock=self.clock, options=settings, supervisor=self.supervisor
        )
        self.logs.append(log)
        return log

    def copy_as_killed(self) -> "Embedded":
        """Return the storage as after a kill at this moment."""
        disk = UnreliableDisk()
        for path in self.disk.paths():
            disk.make_folder(os.path.dirname(path))
            disk.write(disk.open(path, create=True), self.disk.content(path), 0)
        return Embedded(self.clock, disk, self.folder, self.options)


MAX_LATE_MS = 60_000
"""Maximum milliseconds between an append and a look at its time: only a busy machine takes seconds."""


@dataclass
class Kafka:
    """The log on Kafka: topics with their own prefix on the broker that all tests share."""

    servers: str = field(default_factory=kafka_servers)
    prefix: str = field(default_factory=kafka_prefix)
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().wall()))
    """The idempotency store's clock, at a time whose messages the broker does not delete: the broker has its own
    clock."""

    def __post_init__(self) -> None:
        self.idempotency = MemoryIdempotencyStore(self.clock)

    async def let_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        await asyncio.sleep(milliseconds / 1000)

    def turn_back(self, milliseconds: int) -> None:
        """Do nothing: the broker's clock cannot be set."""

    def is_now(self, time: Milliseconds) -> bool:
        return 0 <= SystemClock().wall() - time < MAX_LATE_MS

    def open_log(self, **options: Any) -> contextlib.AbstractAsyncContextManager[KafkaLog]:
        return _closed_at_the_end(self.open(**options))

    async def open(self, **options: Any) -> KafkaLog:
        return await KafkaLog.open(self.options(**options), self.idempotency)

    def options(self, **options: Any) -> KafkaOptions:
        settings = {"servers": self.servers, "prefix": self.prefix, "replication": 1, "min_isr": 1}
        return KafkaOptions(**(settings | options))


@dataclass
class ModelKafka(Kafka):
    """The log on the simulated worlds' model of Kafka, which must behave like the real one."""

    servers: str = "kafka1:9092"
    prefix: str = "model"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._brokers = DirectBroker(Cluster([1], time.time), 1)

    @contextlib.asynccontextmanager
    async def open_log(self, **options: Any) -> AsyncIterator[KafkaLog]:
        with install({("kafka1", 9092): self._brokers}):
            async with super().open_log(**options) as log:
                yield log


ENGINES = {"embedded": Embedded, "kafka": Kafka, "model": ModelKafka}
Engine = Embedded | Kafka


async def new_topic(log: Log) -> TopicId:
    topic = new_topic_id()
    await log.create(topic)
    return topic


def texts(*data: str) -> list[Message]:
    return [message(each) for each in data]


def make_messages(first: int, count: int, size: int = 0) -> list[Message]:
    return texts(*(f"{number:08d}" + "A" * size for number in range(first, first + count)))


async def append_each(log: Log, topic: TopicId, count: int, size: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await log.append(topic, make_messages(number, 1, size=size))


async def all_stored(log: Log, topic: TopicId) -> list[Stored]:
    """Read a topic from its oldest message to its end, in reads of several sizes."""
    bounds = await log.bounds(topic)
    offset, found = bounds.oldest, []
    while offset < bounds.end:
        messages = await log.read(topic, offset, max_messages=1 + offset % 7, max_bytes=1 << 20)
        assert messages
        found += messages
        offset = messages[-1].offset + 1
    return found


async def all_fragments(log: Log, topic: TopicId) -> list[bytes]:
    """Read a topic as `all_stored` does; check that there are no gaps."""
    found = await all_stored(log, topic)
    assert [each.offset for each in found] == [found[0].offset + number for number in range(len(found))]
    return [each.fragment for each in found]


def fragments(messages: list[Message]) -> list[bytes]:
    return [each.fragment for each in messages]
