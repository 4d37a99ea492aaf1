"""Following the topics that calls wait on, so that a wait ends a moment after a publish through any node.

Each broker is asked one long question about all the topics it leads that are waited on. A topic that comes while that
question is out is asked about in a second, shorter one at once, and gets into the long one with its next turn.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ams.core.errors import AmsError, Damaged, LogUnavailable, TopicGone
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.log.kafka.connection import Connection, Lane, NodeId
from ams.storage.log.kafka.fetch import Fetcher, FetchSession, Part, part_of
from ams.storage.log.kafka.message_cache import TailCache
from ams.storage.log.kafka.partition import Partition

LONG, SHORT = Lane("follow"), Lane("follow-new")
"""The question about all topics of a broker, and the one about those that came while it is out."""
NEVER = Offset(2**63)  # above every offset
WORK = "following of the log"
WAIT_MS = {LONG: 500, SHORT: 20}  # how long a broker may wait for something new
TOPIC_BYTES, MAX_BYTES = 2**16, 2**22
"""Bytes of an answer for one topic and for all; of the first topic a whole batch at least."""
PACE, MOST_PACE = 2e-6, 0.01  # seconds between two questions for each topic they are about, and at most
FIND_SECONDS = 3.0
AGAIN = 0.1  # seconds until a topic is tried again that could not be asked about


@dataclass(eq=False)
class _FollowedTopic:
    """A topic that is waited on."""

    partition: Partition
    position: Offset
    """Where the next question begins; from the least that is waited for up to here there is nothing."""
    waiters: dict["asyncio.Future[bool]", Offset] = field(default_factory=dict)
    """The calls that wait, and for a message at which offset or later."""
    broker: "_FollowedBroker | None" = None
    """The broker that is asked about it; None while its leader is looked for."""
    is_locating: bool = False

    def wake(self, end: Offset) -> None:
        for waiter, after in self.waiters.items():
            if after < end and not waiter.done():
                waiter.set_result(True)

    def give_up(self, error: AmsError | None = None) -> None:
        for waiter in self.waiters:
            if not waiter.done() and error:
                waiter.set_exception(error)
            elif not waiter.done():
                waiter.set_result(False)


class _FollowedBroker:
    """The topics one broker leads, and up to two questions about them at a time."""

    def __init__(self, number: NodeId) -> None:
        self.number = number
        self.topics: dict[TopicId, _FollowedTopic] = {}
        self.sessions = {LONG: FetchSession(), SHORT: FetchSession()}
        self.asking: dict[Lane, asyncio.Task[None]] = {}
        self._covered: dict[TopicId, Offset] = {}
        self._new: dict[TopicId, _FollowedTopic] = {}

    def add(self, followed: _FollowedTopic) -> None:
        topic = followed.partition.topic
        self.topics[topic] = followed
        if self._covered.get(topic, NEVER) > followed.position:
            self._new[topic] = followed

    def remove(self, followed: _FollowedTopic) -> None:
        topic = followed.partition.topic
        if self.topics.get(topic) is followed:
            del self.topics[topic]
            self._new.pop(topic, None)

    def to_ask(self, lane: Lane) -> list[_FollowedTopic]:
        """Return what the next question of a lane is about: all, or what the long one that is out does not cover."""
        if lane == SHORT:
            return list(self._new.values())
        self._covered = {topic: each.position for topic, each in self.topics.items()}
        self._new.clear()
        return list(self.topics.values())


class Follower:
    """All waits of this process."""

    def __init__(self, connection: Connection, fetcher: Fetcher, cache: TailCache, supervisor: Supervisor) -> None:
        self._connection, self._fetcher = connection, fetcher
        self._cache, self._supervisor = cache, supervisor
        self._followed: dict[TopicId, _FollowedTopic] = {}
        self._brokers: dict[NodeId, _FollowedBroker] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, partition: Partition, after: Offset, timeout: float) -> bool:
        """Return True as soon as there is a message at `after` or later; see `Reader.wait`."""
        followed = self._followed.get(partition.topic)
        if followed is None:
            followed = self._followed[partition.topic] = _FollowedTopic(partition, after)
        followed.position = min(followed.position, after)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        followed.waiters[waiter] = after
        if followed.broker is not None:
            followed.broker.add(followed)
            self._ask_more(followed.broker)
        elif not followed.is_locating:
            self._look_for(followed)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            return False
        finally:
            del followed.waiters[waiter]
            if not followed.waiters:
                if self._followed.get(partition.topic) is followed:
                    del self._followed[partition.topic]
                if followed.broker is not None:
                    followed.broker.remove(followed)

    def grown(self, topic: TopicId, end: Offset) -> None:
        """Note that this node published to a topic, up to `end`."""
        if followed := self._followed.get(topic):
            followed.wake(end)

    def forget(self, topic: TopicId) -> None:
        """End the waits on a topic that is no more."""
        if followed := self._followed.get(topic):
            followed.give_up()

    async def close(self) -> None:
        """End all waits."""
        for followed in self._followed.values():
            followed.give_up()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _look_for(self, followed: _FollowedTopic, pause: float = 0.0, *, out_of_range: bool = False) -> None:
        followed.is_locating = True
        self._start(self._find(followed, pause, out_of_range))

    async def _find(self, followed: _FollowedTopic, pause: float, out_of_range: bool) -> None:
        """Find the leader of a topic, for as long as a call waits on it."""
        await asyncio.sleep(pause)
        while followed.waiters and followed.broker is None:
            try:
                await self._find_once(followed, out_of_range)
            except TopicGone:
                followed.give_up()
                break
            except LogUnavailable:
                if not self._connection.reachable:
                    followed.give_up(LogUnavailable())
                    break
            except Exception as error:  # refused, or a defect: it must not leave the topic unfollowed for good
                if not isinstance(error, KafkaError):
                    self._supervisor.survive(WORK)
                followed.give_up(LogUnavailable())
                break
        followed.is_locating = False

    async def _find_once(self, followed: _FollowedTopic, out_of_range: bool) -> None:
        partition, until = followed.partition, asyncio.get_running_loop().time() + FIND_SECONDS
        number = await self._connection.leader(partition, until=until)
        if out_of_range:
            end, oldest = await self._fetcher.end(partition, until), await self._fetcher.oldest(partition, until)
            followed.position = min(max(followed.position, oldest), end)
        if followed.waiters:
            broker = followed.broker = self._brokers.setdefault(number, _FollowedBroker(number))
            broker.add(followed)
            self._ask_more(broker)

    def _lose(self, followed: _FollowedTopic, *, out_of_range: bool = False) -> None:
        """Look for the leader of a topic again; `out_of_range`: its position is not between its oldest and its end."""
        if followed.broker is not None:
            followed.broker.remove(followed)
            followed.broker = None
            self._look_for(followed, AGAIN, out_of_range=out_of_range)

    def _ask_more(self, broker: _FollowedBroker) -> None:
        if LONG not in broker.asking:
            broker.asking[LONG] = self._start(self._ask(broker, LONG))
        elif SHORT not in broker.asking and broker.to_ask(SHORT):
            broker.asking[SHORT] = self._start(self._ask(broker, SHORT))

    async def _ask(self, broker: _FollowedBroker, lane: Lane) -> None:
        """Ask a broker about its topics, again and again while there are any."""
        try:
            while asked := broker.to_ask(lane):
                try:
                    await self._ask_once(broker, lane, asked)
                except Exception as error:  # also of a defect: it must not leave the topics unfollowed for good
                    if not isinstance(error, KafkaError):
                        self._supervisor.survive(WORK)
                    for followed in asked:
                        self._lose(followed)
                await asyncio.sleep(min(MOST_PACE, PACE * len(asked)))
        finally:
            del broker.asking[lane]

    async def _ask_once(self, broker: _FollowedBroker, lane: Lane, asked: Iterable[_FollowedTopic]) -> None:
        session = broker.sessions[lane]
        positions = {each.partition.name: (each.partition.topic, each.position) for each in asked}
        wanted = {each.partition.name: max(each.position - each.partition.first, 0) for each in asked}
        request = session.request(wanted, wait_ms=WAIT_MS[lane], topic_bytes=TOPIC_BYTES, max_bytes=MAX_BYTES)
        try:
            response = await self._connection.send(broker.number, request, lane)
        except BaseException:
            session.reset()
            raise
        for name, parts in response.topics if session.answered(response) else ():
            topic, position = positions[name]
            if followed := self._followed.get(topic):
                await self._take(followed, position, parts[0])

    async def _take(self, followed: _FollowedTopic, position: Offset, answer: Any) -> None:
        try:
            part = part_of(answer)
            if part.data:
                await self._feed(followed, position, part)
        except Damaged as error:
            followed.give_up(error)
        except OffsetOutOfRangeError:
            self._lose(followed, out_of_range=True)
        except KafkaError as error:
            if error.invalid_metadata:
                self._connection.moved(followed.partition)
            self._lose(followed)
        except Exception:  # what one topic holds must not stop the others
            self._supervisor.survive(WORK)
            followed.give_up(LogUnavailable())

    async def _feed(self, followed: _FollowedTopic, position: Offset, part: Part) -> None:
        topic, end = followed.partition.topic, Offset(part.high + followed.partition.first)
        next_, after_last = end, self._cache.newest(topic)
        if not self._cache.has(topic, position, end):
            runs, next_ = await self._fetcher.decode(followed.partition, part, position)
            self._cache.begin(topic, position, next_, runs)
            after_last = runs[-1].end if runs else position
        if followed.position >= position:
            followed.position = max(followed.position, next_)
        followed.wake(after_last)
