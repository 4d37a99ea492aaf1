"""The directory of topics: where each one is on the brokers, as they list them.

Nothing is remembered elsewhere: a topic that another node made a moment ago is found by asking for the list again, one
question for all who miss something, and not more often than the brokers and we can well bear.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import structlog
from aiokafka.errors import KafkaError

from ams.core.cache import LruCache
from ams.core.clock import Milliseconds
from ams.core.errors import TopicGone
from ams.core.names import TopicId, topic_id_text
from ams.storage.coalescing import BatchedRequest, SharedRequest, mark_seen
from ams.storage.log.base import NEW, Origin
from ams.storage.log.kafka.administration import (
    NewTopic,
    alter,
    create_topics,
    delete_topics,
    led_according_to,
    list_topics,
    refusable,
)
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Listed, Partition, partition_of
from ams.storage.log.kafka.standards import BROKER, GIVEN, TIMES, Standards, TopicSettings, age_configs, new_configs

logger = structlog.get_logger("ams.log")
NEWS = 1.0
"""Seconds a topic is looked for that no broker lists yet."""
_LEAST_PAUSE = 0.05
_SHARE = 5
"""Looking for what is missing takes no more than one part in so many of the time."""
_REMEMBERED = 10_000
"""Topics that were dropped, or looked for in vain, that are remembered."""
_SLOW = 2.0
"""Seconds a broker may take to learn of a new topic before it is not waited for."""
_BELIEVED = 1.0
"""Seconds that lists must lack a topic before it counts as gone: the list of a broker that just started is short."""
_LOOKED_AT = 100
"""Topics not looked at yet whose settings are asked for with those of one that is needed."""
_SETTLED = 5.0
"""Seconds after which every broker lists a topic that was made."""


class Topics:
    """Every topic of ours, found by identity, made and deleted."""

    def __init__(self, connection: Connection, options: KafkaOptions, gone: Callable[[Partition], None]) -> None:
        """`gone` is called for each topic that is no longer there."""
        self._connection = connection
        self._options = options
        self._gone = gone
        self.standards = Standards(connection, options)
        self._listed: dict[TopicId, Listed] = {}
        self._made: dict[TopicId, float] = {}
        self._dropped: LruCache[TopicId, bool] = LruCache(_REMEMBERED)
        self._lacking: dict[TopicId, float] = {}
        """Since when the lists lack topics that were in them before."""
        self._missed: LruCache[TopicId, bool] = LruCache(_REMEMBERED)
        self._creating: dict[TopicId, asyncio.Task[bool]] = {}
        self._listing: SharedRequest[None, None] = SharedRequest(lambda _: self._list())
        self._make: BatchedRequest[NewTopic, None] = BatchedRequest(self._make_all)
        self._delete: BatchedRequest[str, None] = BatchedRequest(
            lambda names: delete_topics(connection, names, connection.deadline())
        )
        self._needed: set[TopicId] = set()
        self._looking: SharedRequest[None, None] = SharedRequest(lambda _: self._look_at_needed())
        self.cost = 0.0
        """Seconds the last question for the list took."""

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
        creating = self._creating.get(topic)
        if creating is not None:
            await asyncio.shield(creating)
            return False
        partition = partition_of(self._options.prefix, topic, label, origin.first)
        times = BROKER if origin == NEW else GIVEN
        creating = self._creating[topic] = asyncio.create_task(self._create(partition, retention, times))
        creating.add_done_callback(lambda _: self._creating.pop(topic))
        creating.add_done_callback(mark_seen)
        return await asyncio.shield(creating)

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
        self.standards.note(partition.topic, own)

    async def settings(self, partition: Partition) -> TopicSettings:
        """Return what the brokers keep to for a topic; some that were never looked at are looked at with it."""
        found = self.standards.known(partition.topic)
        if found is None:
            self._needed.add(partition.topic)
            await self._looking(None)
            found = self.standards.known(partition.topic)
        if found is None:
            raise TopicGone
        return found

    async def look(self) -> None:
        """Look at the settings of all topics, and have those without an age of their own follow the default."""
        await self._look_at(dict(self._listed))
        await self._follow_default()

    async def _look_at_needed(self) -> None:
        needed, self._needed = self._needed, set()
        unseen = islice((topic for topic in self._listed if self.standards.known(topic) is None), _LOOKED_AT)
        await self._look_at({topic: self._listed[topic] for topic in needed.union(unseen) & self._listed.keys()})

    async def _look_at(self, wanted: Mapping[TopicId, Listed]) -> None:
        before = self.standards.weak()
        await refusable(self.standards.look(wanted, self._connection.deadline()))
        for topic, weakness in self.standards.weak().items():
            if topic in wanted and before.get(topic) != weakness:
                name = wanted[topic].partition.name
                logger.error("topic.weak", topic=topic_id_text(topic), name=name, why=weakness)

    async def _follow_default(self) -> None:
        """Tell the brokers the log's default age for topics without one of their own, where it was another before."""
        for topic, listed in list(self._listed.items()):
            found = self.standards.known(topic)
            if found and found.own_age is None and found.age != self._options.retention:
                await self.set_age(listed.partition, None)

    def forget(self, partition: Partition) -> None:
        """Note that a topic is gone, and pass it on."""
        if self._listed.pop(partition.topic, None) is None:
            return
        self._made.pop(partition.topic, None)
        self._lacking.pop(partition.topic, None)
        self.standards.forget(partition.topic)
        self._gone(partition)

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._creating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
            self.standards.note(partition.topic, retention)
        return True

    async def _make_all(self, topics: Sequence[NewTopic]) -> Sequence[KafkaError | None]:
        """Make topics, and wait until all brokers that answer name their leaders, so that no node misses one.

        Brokers learn of a topic one after the other; one that is slow is not waited for long.
        """
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
