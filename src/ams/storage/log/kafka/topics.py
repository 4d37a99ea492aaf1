"""The directory of topics: where each one is on the brokers, as they list them, and what they keep to for it.

Nothing is remembered elsewhere: a topic that another node made a moment ago is found by asking for the list again, one
question for all who miss something. A topic that keeps less than was promised, as another program changed or made it,
takes no messages. Settings are looked at when a topic is first met and now and then after that.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog
from aiokafka.errors import KafkaError

from ams.core.cache import LruCache
from ams.core.clock import Milliseconds
from ams.core.coalescing import BatchedRequest, Shared, SharedRequest
from ams.core.errors import LogUnavailable, TopicGone
from ams.core.names import TopicId, topic_id_text
from ams.storage.log.base import NEW, Origin
from ams.storage.log.kafka.administration import (
    Configs,
    NewTopic,
    alter,
    create_topics,
    delete_topics,
    describe,
    led_according_to,
    list_topics,
    refusable,
)
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Listed, Partition, partition_of

logger = structlog.get_logger("ams.log")
TIMES = "message.timestamp.type"
GIVEN, BROKER = "CreateTime", "LogAppendTime"  # times of messages: those they are given, or the broker's
SEGMENT_BYTES = 256 * 2**20
_INDEX_BYTES = 2**20  # space for the indexes of such a segment; the brokers' 10 MiB are set aside for each topic
_MIN_SEGMENT_MS = 600_000
_OWN_AGE = "delete.retention.ms"  # means nothing without compaction: remembers an own age
_FIXED = {TIMES: BROKER, "cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
_NAMES = (*_FIXED, "min.insync.replicas", "max.message.bytes", "retention.ms", _OWN_AGE)
_DESCRIBED_AT_ONCE = 100  # topics in one question: reading the answer must not hold up the event loop
_DEFAULT_OWN_AGE = 86_400_000  # the brokers' default of `delete.retention.ms`, for a topic it was not set for
NEWS = 1.0  # seconds a topic is looked for that no broker lists yet
_LEAST_PAUSE = 0.05
_SHARE = 5  # looking for what is missing takes no more than one part in so many of the time
_REMEMBERED = 10_000  # topics that were dropped, or looked for in vain, that are remembered
_SLOW = 2.0  # seconds a broker may take to learn of a new topic before it is not waited for
_BELIEVED = 1.0  # seconds until a topic that lists lack is gone: a broker that just started lists few
_LOOKED_AT = 100  # topics not looked at yet whose settings are asked for with those of one that is needed
_SETTLED = 5.0  # seconds after which every broker lists a topic that was made


class TopicSettings(NamedTuple):
    """What the brokers keep to for a topic."""

    weakness: str | None  # what is less than promised, for people; None: nothing
    own_age: Milliseconds | None  # its own age limit; None: it goes by the log's default
    age: Milliseconds  # the age limit the brokers go by


def age_configs(own: Milliseconds | None, default: Milliseconds) -> dict[str, str | None]:
    """Return the settings of a topic's age; None stands for the brokers' default."""
    age = own or default
    return {
        "retention.ms": str(age),
        "segment.ms": str(max(age // 8, _MIN_SEGMENT_MS)),
        _OWN_AGE: None if own is None else str(own + _DEFAULT_OWN_AGE),
    }


def new_configs(options: KafkaOptions, own: Milliseconds | None) -> dict[str, str]:
    """Return the settings a topic is made with."""
    ages = {name: value for name, value in age_configs(own, options.retention).items() if value is not None}
    return ages | {
        "min.insync.replicas": str(options.min_isr),
        **_FIXED,
        "max.message.bytes": str(options.max_batch_bytes),
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.index.bytes": str(_INDEX_BYTES),
    }


def _settings_of(options: KafkaOptions, listed: Listed, configs: Configs) -> TopicSettings:
    own, weaknesses = int(configs[_OWN_AGE]) - _DEFAULT_OWN_AGE, []
    if listed.partition_count != 1:
        weaknesses.append(f"{listed.partition_count} partitions, not 1")
    if listed.replication < options.replication:
        weaknesses.append(f"kept by {listed.replication} brokers, not {options.replication}")
    for name, least in (("min.insync.replicas", options.min_isr), ("max.message.bytes", options.max_batch_bytes)):
        if int(configs[name]) < least:
            weaknesses.append(f"{name} is {configs[name]}, not {least}")
    for name, value in _FIXED.items():
        if configs[name] != value:
            weaknesses.append(f"{name} is {configs[name]}, not {value}")
    age = Milliseconds(int(configs["retention.ms"]))
    return TopicSettings("; ".join(weaknesses) or None, Milliseconds(own) if own > 0 else None, age)


class Topics:
    """Every topic of ours, found by identity, made and deleted."""

    def __init__(self, connection: Connection, options: KafkaOptions, gone: Callable[[Partition], None]) -> None:
        self._connection, self._options, self._gone = connection, options, gone
        self.kept: dict[TopicId, TopicSettings] = {}  # what topics keep to, as far as they were looked at
        self._listed: dict[TopicId, Listed] = {}
        self._made: dict[TopicId, float] = {}
        self._dropped: LruCache[TopicId, bool] = LruCache(_REMEMBERED)
        self._lacking: dict[TopicId, float] = {}  # since when the lists lack topics that were in them before
        self._missed: LruCache[TopicId, bool] = LruCache(_REMEMBERED)
        self._creating: Shared[TopicId, bool] = Shared()
        self._listing: SharedRequest[None, None] = SharedRequest(lambda _: self._list())
        self._make: BatchedRequest[NewTopic, None] = BatchedRequest(self._make_all)
        self._delete: BatchedRequest[str, None] = BatchedRequest(
            lambda names: delete_topics(connection, names, connection.deadline())
        )
        self._needed: set[TopicId] = set()
        self._looking: SharedRequest[None, None] = SharedRequest(lambda _: self._look_at_needed())
        self.cost = 0.0  # seconds the last question for the list took

    def known(self, topic: TopicId) -> Partition | None:
        """Return where a topic is, if that is known already."""
        listed = self._listed.get(topic)
        return listed.partition if listed else None

    async def find(self, topic: TopicId) -> Partition:
        """Return where a topic is; raises `TopicGone`, `LogUnavailable`."""
        if partition := self.known(topic):
            return partition
        loop = asyncio.get_running_loop()
        until = loop.time() + (0 if self._missed.peek(topic) else NEWS)
        while not self._dropped.peek(topic):
            await self.refresh()
            if partition := self.known(topic):
                return partition
            if loop.time() >= until:
                self._missed.put(topic, True)
                break
            await asyncio.sleep(max(_LEAST_PAUSE, _SHARE * self.cost))
        raise TopicGone

    async def all(self) -> Mapping[TopicId, Listed]:
        """Return every topic the brokers list now."""
        await self.refresh()
        return {topic: listed for topic, listed in self._listed.items() if topic not in self._lacking}

    async def refresh(self) -> None:
        """Ask for the list; callers at the same time share a question that was sent after they called."""
        await self._listing(None)

    async def create(self, topic: TopicId, retention: Milliseconds | None, label: str, origin: Origin = NEW) -> bool:
        """Make a topic, and return when it has a leader: True, or False for one that is there already, left as it is.

        One with an origin takes the times of its messages as they are given, until it was loaded.
        """
        if self.known(topic):
            return False
        partition = partition_of(self._options.prefix, topic, label, origin.first)
        times = BROKER if origin == NEW else GIVEN
        is_first = topic not in self._creating
        return await self._creating.result(topic, lambda: self._create(partition, retention, times)) and is_first

    async def drop(self, topic: TopicId) -> None:
        """Delete a topic; one that is not there is no error."""
        if not self.known(topic):
            await self.refresh()
        if partition := self.known(topic):
            await refusable(self._delete(partition.name))
            self._dropped.put(topic, True)
            self.forget(partition)

    async def set_age(self, partition: Partition, own: Milliseconds | None) -> None:
        """Give a topic an age limit of its own, or None for the log's default."""
        changes = age_configs(own, self._options.retention)
        await refusable(alter(self._connection, partition, changes, self._connection.deadline()))
        self._note(partition.topic, own)

    async def settings(self, partition: Partition) -> TopicSettings:
        """Return what the brokers keep to for a topic; some that were never looked at are looked at with it."""
        found = self.kept.get(partition.topic)
        if found is None:
            self._needed.add(partition.topic)
            await self._looking(None)
            found = self.kept.get(partition.topic)
        if found is None:
            raise TopicGone
        return found

    async def check(self, partition: Partition) -> None:
        """Raise `LogUnavailable` for a topic that keeps less than was promised."""
        found = self.kept.get(partition.topic) or await self.settings(partition)
        if found.weakness is not None:
            raise LogUnavailable("Backend Error: the topic is kept with weaker settings than promised")

    def weak(self) -> dict[TopicId, str]:
        """Return what is less than promised, of topics that were looked at."""
        return {topic: found.weakness for topic, found in self.kept.items() if found.weakness is not None}

    async def look(self) -> None:
        """Look at the settings of all topics, and have those without an age of their own follow the default."""
        await self._look_at(dict(self._listed))
        for topic, listed in list(self._listed.items()):
            found = self.kept.get(topic)
            if found and found.own_age is None and found.age != self._options.retention:
                await self.set_age(listed.partition, None)

    async def _look_at_needed(self) -> None:
        needed, self._needed = self._needed, set()
        unseen = islice((topic for topic in self._listed if self.kept.get(topic) is None), _LOOKED_AT)
        await self._look_at({topic: self._listed[topic] for topic in needed.union(unseen) & self._listed.keys()})

    async def _look_at(self, wanted: Mapping[TopicId, Listed]) -> None:
        """Look at topics now; those that are gone by now are forgotten."""
        before, remaining = self.weak(), list(wanted.values())
        until = self._connection.deadline()
        while remaining:
            part, remaining = remaining[:_DESCRIBED_AT_ONCE], remaining[_DESCRIBED_AT_ONCE:]
            names = [each.partition.name for each in part]
            configs = await refusable(describe(self._connection, names, _NAMES, until))
            for each in part:
                found = configs.get(each.partition.name)
                if found is None:
                    self.kept.pop(each.partition.topic, None)
                else:
                    self.kept[each.partition.topic] = _settings_of(self._options, each, found)
            await asyncio.sleep(0)
        for topic, weakness in self.weak().items():
            if topic in wanted and before.get(topic) != weakness:
                name = wanted[topic].partition.name
                logger.error("topic.weak", topic=topic_id_text(topic), name=name, why=weakness)

    def _note(self, topic: TopicId, own: Milliseconds | None) -> None:
        """Note a topic as we have just made it, or given it an age."""
        weakness = self.kept[topic].weakness if topic in self.kept else None
        self.kept[topic] = TopicSettings(weakness, own, own or self._options.retention)

    def forget(self, partition: Partition) -> None:
        """Note that a topic is gone, and pass it on."""
        if self._listed.pop(partition.topic, None) is None:
            return
        self._made.pop(partition.topic, None)
        self._lacking.pop(partition.topic, None)
        self.kept.pop(partition.topic, None)
        self._gone(partition)

    async def close(self) -> None:
        """End what is under way."""
        await self._creating.close()
        await self._make.close()
        await self._delete.close()
        await self._listing.close()
        await self._looking.close()

    async def _create(self, partition: Partition, retention: Milliseconds | None, times: str) -> bool:
        await self.refresh()
        if self.known(partition.topic):
            return False
        options = self._options
        configs = new_configs(options, retention) | {TIMES: times}
        await refusable(self._make(NewTopic(partition.name, options.replication, configs)))
        self._missed.discard(partition.topic)
        self._made[partition.topic] = asyncio.get_running_loop().time()
        self._listed[partition.topic] = Listed(partition, 1, options.replication)
        if times == BROKER:
            self._note(partition.topic, retention)
        return True

    async def _make_all(self, topics: Sequence[NewTopic]) -> Sequence[KafkaError | None]:
        """Make topics, and wait a little until all brokers name their leaders, so that no node misses one."""
        refused = await create_topics(self._connection, topics, self._connection.deadline())
        made = [each.name for each, error in zip(topics, refused, strict=True) if error is None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SLOW):
                nodes = self._connection.links.nodes()
                await asyncio.gather(*(led_according_to(self._connection, node, made) for node in nodes))
        return refused

    async def _list(self) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        found = await refusable(list_topics(self._connection, self._options.prefix, self._connection.deadline()))
        self.cost = loop.time() - start
        self._take(found, start)

    def _take(self, found: dict[TopicId, Listed], asked: float) -> None:
        """Take over a list; what was made too short a time ago may be missing in it, what was deleted be in it."""
        new = {topic: listed for topic, listed in found.items() if not self._dropped.peek(topic)}
        lacking = [t for t in self._listed.keys() - new.keys() if self._made.get(t, -_SETTLED) + _SETTLED < asked]
        self._lacking = {topic: self._lacking.get(topic, asked) for topic in lacking}
        for topic in lacking:
            if self._lacking[topic] + _BELIEVED <= asked:
                self.forget(self._listed[topic].partition)
        self._listed |= new
