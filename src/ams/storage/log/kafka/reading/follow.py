"""Following the topics that somebody waits on, so that a wait ends a moment after a publish through any node.

For each broker there is one long question about all the topics it leads that are waited on: it is answered when one of
them has something new. A topic that is waited on while that question is out is asked about in a second, shorter one at
once, and gets into the long one with its next turn. While nobody waits nothing is asked.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ams.core.errors import Damaged, LogUnavailable, TopicGone
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.log.kafka.brokers.connection import Connection
from ams.storage.log.kafka.brokers.links import Lane, NodeId
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.fetch import Fetcher, Part, part_of
from ams.storage.log.kafka.reading.followed import LONG, SHORT, Followed, Node
from ams.storage.log.kafka.reading.tail_cache import TailCache

WORK = "following of the log"
WAIT_MS = {LONG: 500, SHORT: 20}
"""How long a broker may wait for something new."""
TOPIC_BYTES, MAX_BYTES = 2**16, 2**22
"""Bytes of an answer for one topic and for all; of the first topic a whole batch at least."""
PACE, MOST_PACE = 2e-6, 0.01
"""Seconds between two questions for each topic they are about, and at most."""
FIND_SECONDS = 3.0
AGAIN = 0.1
"""Seconds until a topic is tried again that could not be asked about."""


class Follower:
    """All waits of this process."""

    def __init__(self, connection: Connection, fetcher: Fetcher, cache: TailCache, supervisor: Supervisor) -> None:
        self._connection = connection
        self._fetcher = fetcher
        self._cache = cache
        self._supervisor = supervisor
        self._followed: dict[TopicId, Followed] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, place: Place, after: Offset, timeout: float) -> bool:
        """Return True as soon as there is a message at `after` or later; see `Reader.wait`."""
        followed = self._followed.get(place.topic)
        if followed is None:
            followed = self._followed[place.topic] = Followed(place, after)
        followed.position = min(followed.position, after)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        followed.waiters[waiter] = after
        self._follow(followed)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            return False
        finally:
            del followed.waiters[waiter]
            if not followed.waiters:
                self._unfollow(followed)

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

    def _follow(self, followed: Followed) -> None:
        if followed.node is not None:
            followed.node.add(followed)
            self._ask_more(followed.node)
        elif not followed.finding:
            self._look_for(followed)

    def _unfollow(self, followed: Followed) -> None:
        if self._followed.get(followed.place.topic) is followed:
            del self._followed[followed.place.topic]
        if followed.node is not None:
            followed.node.remove(followed)

    def _look_for(self, followed: Followed, pause: float = 0.0, *, astray: bool = False) -> None:
        followed.finding = True
        self._start(self._find(followed, pause, astray))

    async def _find(self, followed: Followed, pause: float, astray: bool) -> None:
        """Find the leader of a topic, for as long as somebody waits on it."""
        await asyncio.sleep(pause)
        while followed.waiters and followed.node is None:
            try:
                await self._find_once(followed, astray)
            except TopicGone:
                followed.give_up()
                break
            except KafkaError:  # refused, and so it would be at once if it was tried again
                followed.give_up(LogUnavailable())
                break
            except LogUnavailable:
                if not self._connection.reachable:
                    followed.give_up(LogUnavailable())
                    break
            except Exception:  # a defect must not leave the topic unfollowed for good
                self._supervisor.survive(WORK)
                followed.give_up(LogUnavailable())
                break
        followed.finding = False

    async def _find_once(self, followed: Followed, astray: bool) -> None:
        place, until = followed.place, asyncio.get_running_loop().time() + FIND_SECONDS
        number = await self._connection.leader(place, until=until)
        if astray:
            end, oldest = await self._fetcher.end(place, until), await self._fetcher.oldest(place, until)
            followed.position = min(max(followed.position, oldest), end)
        if followed.waiters:
            node = followed.node = self._nodes.setdefault(number, Node(number))
            node.add(followed)
            self._ask_more(node)

    def _lose(self, followed: Followed, *, astray: bool = False) -> None:
        """Look for the leader of a topic again; `astray` when its position is not between its oldest and its end."""
        if followed.node is not None:
            followed.node.remove(followed)
            followed.node = None
            self._look_for(followed, AGAIN, astray=astray)

    def _ask_more(self, node: Node) -> None:
        if LONG not in node.asking:
            node.asking[LONG] = self._start(self._ask(node, LONG))
        elif SHORT not in node.asking and node.to_ask(SHORT):
            node.asking[SHORT] = self._start(self._ask(node, SHORT))

    async def _ask(self, node: Node, lane: Lane) -> None:
        """Ask a broker about its topics, again and again while there are any."""
        try:
            while asked := node.to_ask(lane):
                try:
                    await self._ask_once(node, lane, asked)
                except KafkaError:
                    for followed in asked:
                        self._lose(followed)
                except Exception:  # a defect must not leave the topics unfollowed for good
                    self._supervisor.survive(WORK)
                    for followed in asked:
                        self._lose(followed)
                await asyncio.sleep(min(MOST_PACE, PACE * len(asked)))
        finally:
            del node.asking[lane]

    async def _ask_once(self, node: Node, lane: Lane, asked: Iterable[Followed]) -> None:
        session = node.sessions[lane]
        positions = {each.place.name: (each.place.topic, each.position) for each in asked}
        wanted = {each.place.name: max(each.position - each.place.first, 0) for each in asked}
        request = session.request(wanted, wait_ms=WAIT_MS[lane], topic_bytes=TOPIC_BYTES, max_bytes=MAX_BYTES)
        try:
            response = await self._connection.send(node.number, request, lane)
        except BaseException:
            session.reset()
            raise
        for name, parts in response.topics if session.answered(response) else ():
            topic, position = positions[name]
            if followed := self._followed.get(topic):
                await self._take(followed, position, parts[0])

    async def _take(self, followed: Followed, position: Offset, answer: Any) -> None:
        try:
            part = part_of(answer)
            if part.data:
                await self._feed(followed, position, part)
        except Damaged as error:
            followed.give_up(error)
        except OffsetOutOfRangeError:
            self._lose(followed, astray=True)
        except KafkaError as error:
            if error.invalid_metadata:
                self._connection.moved(followed.place)
            self._lose(followed)
        except Exception:  # what one topic holds must not stop the others
            self._supervisor.survive(WORK)
            followed.give_up(LogUnavailable())

    async def _feed(self, followed: Followed, position: Offset, part: Part) -> None:
        """Keep what is new, and wake who waits for it."""
        topic, end = followed.place.topic, Offset(part.high + followed.place.first)
        next_, after_last = end, self._cache.newest(topic)
        if not self._cache.has(topic, position, end):
            messages, next_ = await self._fetcher.decode(followed.place, part, position)
            self._cache.begin(topic, position, next_, messages)
            after_last = Offset(messages[-1].offset + 1) if messages else position
        if followed.position >= position:
            followed.position = max(followed.position, next_)
        followed.wake(after_last)
