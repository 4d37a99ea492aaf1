"""The directory of topics on the brokers, and their settings.

The brokers' list is the only source. A topic that another node has just created is found by listing again; concurrent
look-ups share one request. A topic with weaker settings than promised, changed or created by another program, refuses
appends. Settings are checked at the first use of a topic, and periodically.
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
from ams.core.coalescing import BatchedRequest, SharedRequest, SingleFlight
from ams.core.errors import LogUnavailable, TopicGone
from ams.core.names import TopicId, topic_id_text
from ams.storage.log.base import NEW_TOPIC, Origin
from ams.storage.log.kafka import administration
from ams.storage.log.kafka.administration import Configs, await_refusable
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Listed, Partition, partition_of

logger = structlog.get_logger("ams.log")
TIMES = "message.timestamp.type"
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"  # timestamps by the producer, or by the broker
SEGMENT_BYTES = 256 * 2**20
_INDEX_BYTES = 2**20  # enough for such a segment; the brokers' default reserves 10 MiB per topic
_MIN_SEGMENT_MS = 600_000
_OWN_AGE = "delete.retention.ms"  # unused without compaction, so it stores the topic's own retention
_FIXED = {TIMES: APPEND_TIME, "cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
_NAMES = (*_FIXED, "min.insync.replicas", "max.message.bytes", "retention.ms", _OWN_AGE)
_TOPICS_PER_QUESTION = 100  # per describe request: decoding must not block the event loop
_DEFAULT_OWN_AGE = 86_400_000  # the brokers' default of `delete.retention.ms`
NEW_TOPIC_SECONDS = 1.0  # how long to search for a topic that no broker lists yet
_LEAST_PAUSE = 0.05
_SEARCH_SHARE = 5  # the search takes at most about 1/5 of the time
_MAX_REMEMBERED = 10_000  # cached topics that were dropped, or not found
_LEADER_WAIT_SECONDS = 2.0  # maximum wait until all brokers know a new topic
_LACKING_SECONDS = 1.0  # until a topic missing in lists counts as deleted: a broker at its start lists few
_MORE_TOPICS = 100  # further topics whose settings are read in the same request
_LISTED_SECONDS = 5.0  # time after which every broker lists a new topic


class TopicSettings(NamedTuple):
    """Settings of a topic on the brokers."""

    weakness: str | None  # which settings are weaker than promised, for people; None: no setting
    own_age: Milliseconds | None  # its own retention; None: the log's default applies
    age: Milliseconds  # the retention on the brokers


def age_configs(own: Milliseconds | None, default: Milliseconds) -> dict[str, str | None]:
    """Return the Kafka settings for a retention; None: the brokers' default."""
    age = own or default
    return {
        "retention.ms": str(age),
        "segment.ms": str(max(age // 8, _MIN_SEGMENT_MS)),
        _OWN_AGE: None if own is None else str(own + _DEFAULT_OWN_AGE),
    }


def new_configs(options: KafkaOptions, own: Milliseconds | None) -> dict[str, str]:
    """Return the Kafka settings of a new topic."""
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


class KafkaTopics:
    """Finds, creates and deletes our topics, by id."""

    def __init__(self, connection: KafkaConnection, options: KafkaOptions, gone: Callable[[Partition], None]) -> None:
        self._connection, self._options, self._gone = connection, options, gone
        self.kept: dict[TopicId, TopicSettings] = {}  # cached settings
        self._listed: dict[TopicId, Listed] = {}
        self._made: dict[TopicId, float] = {}
        self._dropped: LruCache[TopicId, bool] = LruCache(_MAX_REMEMBERED)
        self._lacking: dict[TopicId, float] = {}  # topics missing in lists, since when
        self._missed: LruCache[TopicId, bool] = LruCache(_MAX_REMEMBERED)
        self._creating: SingleFlight[TopicId, bool] = SingleFlight()
        self._listing: SharedRequest[None, None] = SharedRequest(lambda _: self._list())
        self._make: BatchedRequest[tuple[str, Configs], None] = BatchedRequest(self._make_all)
        self._delete: BatchedRequest[str, None] = BatchedRequest(
            lambda names: administration.delete_topics(connection, names, connection.deadline())
        )
        self._needed: set[TopicId] = set()
        self._looking: SharedRequest[None, None] = SharedRequest(lambda _: self._look_at_needed())
        self.cost = 0.0  # duration of the last list request in seconds

    def known_partition(self, topic: TopicId) -> Partition | None:
        """Return the partition of a topic from the cached list, or None."""
        listed = self._listed.get(topic)
        return listed.partition if listed else None

    async def find(self, topic: TopicId) -> Partition:
        """Return the partition of a topic; raises `TopicGone`, `LogUnavailable`."""
        if partition := self.known_partition(topic):
            return partition
        loop = asyncio.get_running_loop()
        until = loop.time() + (0 if self._missed.peek(topic) else NEW_TOPIC_SECONDS)
        while not self._dropped.peek(topic):
            await self.refresh()
            if partition := self.known_partition(topic):
                return partition
            if loop.time() >= until:
                self._missed.put(topic, True)
                break
            await asyncio.sleep(max(_LEAST_PAUSE, _SEARCH_SHARE * self.cost))
        raise TopicGone

    async def all(self) -> Mapping[TopicId, Listed]:
        """Return every topic the brokers list now."""
        await self.refresh()
        return {topic: listed for topic, listed in self._listed.items() if topic not in self._lacking}

    async def refresh(self) -> None:
        """Refresh the list; concurrent callers share a request that is sent after their calls."""
        await self._listing(None)

    async def create(self, topic: TopicId, retention: Milliseconds | None, label: str, origin: Origin) -> bool:
        """Create a topic and wait for its leader; False: it exists. One with an origin has CreateTime until loaded."""
        if self.known_partition(topic):
            return False
        partition = partition_of(self._options.prefix, topic, label, origin.first)
        times = APPEND_TIME if origin == NEW_TOPIC else CREATE_TIME
        is_first = topic not in self._creating
        return await self._creating.result(topic, lambda: self._create(partition, retention, times)) and is_first

    async def drop(self, topic: TopicId) -> None:
        """Delete a topic; a missing one is no error."""
        if not self.known_partition(topic):
            await self.refresh()
        if partition := self.known_partition(topic):
            await await_refusable(self._delete(partition.name))
            self._dropped.put(topic, True)
            self.forget(partition)

    async def set_age(self, partition: Partition, own: Milliseconds | None) -> None:
        """Set a topic's own retention; None: the log's default."""
        changes = age_configs(own, self._options.retention)
        await await_refusable(administration.alter(self._connection, partition, changes, self._connection.deadline()))
        self._cache_settings(partition.topic, own)

    async def settings(self, partition: Partition) -> TopicSettings:
        """Return the settings of a topic, and read those of some others. Raises `TopicGone` if no broker knows it."""
        if partition.topic not in self.kept:
            self._needed.add(partition.topic)
            await self._looking(None)
        if (found := self.kept.get(partition.topic)) is None:
            raise TopicGone
        return found

    async def require_promised_settings(self, partition: Partition) -> None:
        """Raise `LogUnavailable` for a topic with weaker settings than promised, `TopicGone` for an unknown one."""
        found = self.kept.get(partition.topic) or await self.settings(partition)
        if found.weakness is not None:
            raise LogUnavailable("Backend Error: the topic is kept with weaker settings than promised")

    def weak_topics(self) -> dict[TopicId, str]:
        """Return cached topics with weaker settings than promised, with the reason."""
        return {topic: found.weakness for topic, found in self.kept.items() if found.weakness is not None}

    async def look(self) -> None:
        """Read the settings of all topics, and update the retention of those that follow the default."""
        await self._look_at(dict(self._listed))
        for topic, listed in list(self._listed.items()):
            found = self.kept.get(topic)
            if found and found.own_age is None and found.age != self._options.retention:
                await self.set_age(listed.partition, None)

    async def _look_at_needed(self) -> None:
        needed, self._needed = self._needed, set()
        unseen = islice((topic for topic in self._listed if self.kept.get(topic) is None), _MORE_TOPICS)
        await self._look_at({topic: self._listed[topic] for topic in needed.union(unseen) & self._listed.keys()})

    async def _look_at(self, wanted: Mapping[TopicId, Listed]) -> None:
        before, remaining = self.weak_topics(), list(wanted.values())
        until = self._connection.deadline()
        while remaining:
            part, remaining = remaining[:_TOPICS_PER_QUESTION], remaining[_TOPICS_PER_QUESTION:]
            names = [each.partition.name for each in part]
            configs = await await_refusable(administration.describe(self._connection, names, _NAMES, until))
            for each in part:
                found = configs.get(each.partition.name)
                if found is None:
                    self.kept.pop(each.partition.topic, None)
                else:
                    self.kept[each.partition.topic] = _settings_of(self._options, each, found)
            await asyncio.sleep(0)
        for topic, weakness in self.weak_topics().items():
            if topic in wanted and before.get(topic) != weakness:
                name = wanted[topic].partition.name
                logger.error("topic.weak", topic=topic_id_text(topic), name=name, why=weakness)

    def _cache_settings(self, topic: TopicId, own: Milliseconds | None) -> None:
        weakness = self.kept[topic].weakness if topic in self.kept else None
        self.kept[topic] = TopicSettings(weakness, own, own or self._options.retention)

    def forget(self, partition: Partition) -> None:
        """Drop a deleted topic from the caches, and call `gone`."""
        if self._listed.pop(partition.topic, None) is None:
            return
        self._made.pop(partition.topic, None)
        self._lacking.pop(partition.topic, None)
        self.kept.pop(partition.topic, None)
        self._gone(partition)

    async def close(self) -> None:
        """End pending requests."""
        for each in (self._creating, self._make, self._delete, self._listing, self._looking):
            await each.close()

    async def _create(self, partition: Partition, retention: Milliseconds | None, times: str) -> bool:
        await self.refresh()
        if self.known_partition(partition.topic):
            return False
        configs = new_configs(self._options, retention) | {TIMES: times}
        await await_refusable(self._make((partition.name, configs)))
        self._missed.discard(partition.topic)
        self._made[partition.topic] = asyncio.get_running_loop().time()
        self._listed[partition.topic] = Listed(partition, 1, self._options.replication)
        if times == APPEND_TIME:
            self._cache_settings(partition.topic, retention)
        return True

    async def _make_all(self, topics: Sequence[tuple[str, Configs]]) -> Sequence[KafkaError | None]:
        """Create topics, and wait a little until all brokers know their leaders, so that every node finds them."""
        until = self._connection.deadline()
        refused = await administration.create_topics(self._connection, topics, self._options.replication, until)
        made = [name for (name, _), error in zip(topics, refused, strict=True) if error is None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEADER_WAIT_SECONDS):
                nodes = self._connection.links.nodes()
                await asyncio.gather(*(administration.wait_for_leaders(self._connection, node, made) for node in nodes))
        return refused

    async def _list(self) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        found = await await_refusable(
            administration.list_topics(self._connection, self._options.prefix, self._connection.deadline())
        )
        self.cost = loop.time() - asked
        self._take(found, asked)

    def _take(self, found: dict[TopicId, Listed], asked: float) -> None:
        """Merge a list: just created topics may be missing in it, deleted ones may still be in it."""
        new = {topic: listed for topic, listed in found.items() if not self._dropped.peek(topic)}
        lacking = [
            t for t in self._listed.keys() - new.keys() if self._made.get(t, -_LISTED_SECONDS) + _LISTED_SECONDS < asked
        ]
        self._lacking = {topic: self._lacking.get(topic, asked) for topic in lacking}
        for topic in lacking:
            if self._lacking[topic] + _LACKING_SECONDS <= asked:
                self.forget(self._listed[topic].partition)
        self._listed |= new
