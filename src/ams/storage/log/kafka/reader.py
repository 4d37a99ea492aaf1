"""Reads of topics on Kafka: from the tail cache, by fetches, and by prefetch for sequential readers.

A read costs at most a few requests to the topic's leader. Before a read returns fewer messages than allowed, it asks
for the topic's end. So it includes all that was published through any node before it began.

Topics with waiting calls are followed by long polling, so that a wait ends soon after a publish through any node. Each
broker gets one long poll for all followed topics that it leads. A topic that is added during a long poll is covered at
once by a second, short poll, and by the next long poll.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ams.core.clock import Milliseconds
from ams.core.coalescing import SharedRequest, answer_future
from ams.core.errors import AmsError, Damaged, LogUnavailable, TopicGone
from ams.core.messages import Fragment
from ams.core.names import Offset, TopicId
from ams.core.runs import Run, Runs
from ams.core.supervisor import Supervisor
from ams.storage.log.base import NO_OFFSET, Appended, Bounds, PendingRead
from ams.storage.log.kafka.connection import KafkaConnection, Lane, NodeId
from ams.storage.log.kafka.fetch import EARLIEST, FOLLOWER, LATEST, Fetched, Fetcher, FetchSession, part_of
from ams.storage.log.kafka.message_cache import CachedRange, ReadAhead, TailCache
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition

LONG_POLL, SHORT_POLL = Lane("follow"), Lane("follow-new")  # for all followed topics of a broker; for new ones
_FOLLOWING = "following of the log"
WAIT_MS = {LONG_POLL: 500, SHORT_POLL: 20}  # timeout of a poll on the broker
TOPIC_BYTES, MAX_BYTES = 2**16, 2**22  # limits of a response, per topic (but at least one batch) and in total
PACE_SECONDS, MAX_PACE_SECONDS = 2e-6, 0.01  # pause between two polls: per topic, and maximum
FIND_SECONDS = 3.0
RETRY_SECONDS = 0.1  # pause after a failed request for a topic
MIN_FETCH_BYTES, MAX_FETCH_BYTES = 2**12, 2**22  # of a fetch for one read
MESSAGE_BYTES_GUESS = 1024  # for a topic without reads so far
MAX_FETCHES = 16  # concurrent fetches: bounds the memory of large ones
MAX_SCANS = 2  # concurrent prefetches: one in flight while another is decoded
LAG_SECONDS = 0.05  # pause until a lagging leader is asked again


@dataclass(eq=False)
class _FollowedTopic:
    partition: Partition
    position: Offset  # start of the next poll
    waiters: dict["asyncio.Future[bool]", Offset] = field(default_factory=dict)  # with the offset each waits for
    broker: "_FollowedBroker | None" = None  # None: no known leader
    is_locating: bool = False

    def wake(self, end: Offset) -> None:
        for waiter, after in self.waiters.items():
            if after < end and not waiter.done():
                waiter.set_result(True)

    def give_up(self, error: AmsError | None = None) -> None:
        for waiter in self.waiters:
            answer_future(waiter, error or False)


class _FollowedBroker:
    """The followed topics of one broker, and up to two polls for them at a time."""

    def __init__(self, number: NodeId) -> None:
        self.number = number
        self.topics: dict[TopicId, _FollowedTopic] = {}
        self.sessions = {LONG_POLL: FetchSession(), SHORT_POLL: FetchSession()}
        self.asking: dict[Lane, asyncio.Task[None]] = {}
        self._covered: dict[TopicId, Offset] = {}
        self._new: dict[TopicId, _FollowedTopic] = {}

    def add(self, followed: _FollowedTopic) -> None:
        topic = followed.partition.topic
        self.topics[topic] = followed
        if self._covered.get(topic, NO_OFFSET) > followed.position:
            self._new[topic] = followed

    def remove(self, followed: _FollowedTopic) -> None:
        topic = followed.partition.topic
        if self.topics.get(topic) is followed:
            del self.topics[topic]
            self._new.pop(topic, None)

    def to_ask(self, lane: Lane) -> list[_FollowedTopic]:
        """Return the topics for the next poll of a lane: all, or those that the current long poll lacks."""
        if lane == SHORT_POLL:
            return list(self._new.values())
        self._covered = {topic: each.position for topic, each in self.topics.items()}
        self._new.clear()
        return list(self.topics.values())


class _Follower:
    """All waiting calls of this process. Without waiting calls there are no polls."""

    def __init__(self, connection: KafkaConnection, fetcher: Fetcher, cache: TailCache, supervisor: Supervisor) -> None:
        self._connection, self._fetcher, self._cache, self._supervisor = connection, fetcher, cache, supervisor
        self._followed: dict[TopicId, _FollowedTopic] = {}
        self._brokers: dict[NodeId, _FollowedBroker] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, partition: Partition, after: Offset, timeout: float) -> bool:
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
            self._start_search(followed)
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

    def wake_waiters(self, topic: TopicId, end: Offset) -> None:
        if followed := self._followed.get(topic):
            followed.wake(end)

    def forget(self, topic: TopicId) -> None:
        if followed := self._followed.get(topic):
            followed.give_up()

    async def close(self) -> None:
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

    def _start_search(self, followed: _FollowedTopic, pause: float = 0.0, *, out_of_range: bool = False) -> None:
        followed.is_locating = True
        self._start(self._find(followed, pause, out_of_range))

    async def _find(self, followed: _FollowedTopic, pause: float, out_of_range: bool) -> None:
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
            except Exception as error:  # refused, or a defect: the topic must not stay unfollowed
                if not isinstance(error, KafkaError):
                    self._supervisor.log_failure(_FOLLOWING)
                followed.give_up(LogUnavailable())
                break
        followed.is_locating = False

    async def _find_once(self, followed: _FollowedTopic, out_of_range: bool) -> None:
        partition, until = followed.partition, asyncio.get_running_loop().time() + FIND_SECONDS
        number = await self._connection.leader(partition, until=until)
        if out_of_range:
            end = await self._fetcher.offset(partition, LATEST, until)
            oldest = await self._fetcher.offset(partition, EARLIEST, until)
            followed.position = min(max(followed.position, oldest), end)
        if followed.waiters:
            broker = followed.broker = self._brokers.setdefault(number, _FollowedBroker(number))
            broker.add(followed)
            self._ask_more(broker)

    def _find_leader_again(self, followed: _FollowedTopic, *, out_of_range: bool = False) -> None:
        """Look up the leader of a topic again; `out_of_range`: also correct its position."""
        if followed.broker is not None:
            followed.broker.remove(followed)
            followed.broker = None
            self._start_search(followed, RETRY_SECONDS, out_of_range=out_of_range)

    def _ask_more(self, broker: _FollowedBroker) -> None:
        if LONG_POLL not in broker.asking:
            broker.asking[LONG_POLL] = self._start(self._ask(broker, LONG_POLL))
        elif SHORT_POLL not in broker.asking and broker.to_ask(SHORT_POLL):
            broker.asking[SHORT_POLL] = self._start(self._ask(broker, SHORT_POLL))

    async def _ask(self, broker: _FollowedBroker, lane: Lane) -> None:
        try:
            while asked := broker.to_ask(lane):
                try:
                    await self._ask_once(broker, lane, asked)
                except Exception as error:  # also a defect: the topics must not stay unfollowed
                    if not isinstance(error, KafkaError):
                        self._supervisor.log_failure(_FOLLOWING)
                    for followed in asked:
                        self._find_leader_again(followed)
                await asyncio.sleep(min(MAX_PACE_SECONDS, PACE_SECONDS * len(asked)))
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
        for name, parts in response.topics if session.accept_answer(response) else ():
            topic, position = positions[name]
            if followed := self._followed.get(topic):
                await self._take(followed, position, parts[0])

    async def _take(self, followed: _FollowedTopic, position: Offset, answer: Any) -> None:
        try:
            part = part_of(answer)
            if not part.data:
                return
            topic, end = followed.partition.topic, Offset(part.high + followed.partition.first)
            next_, after_last = end, self._cache.newest(topic)
            if not self._cache.has(topic, position, end):
                runs, next_ = await self._fetcher.decode(followed.partition, part, position)
                self._cache.begin(topic, position, next_, runs)
                after_last = runs[-1].end if runs else position
            if followed.position >= position:
                followed.position = max(followed.position, next_)
            followed.wake(after_last)
        except Damaged as error:
            followed.give_up(error)
        except OffsetOutOfRangeError:
            self._find_leader_again(followed, out_of_range=True)
        except KafkaError as error:
            if error.invalid_metadata:
                self._connection.forget_leader(followed.partition)
            self._find_leader_again(followed)
        except Exception:  # a defect with one topic must not stop the others
            self._supervisor.log_failure(_FOLLOWING)
            followed.give_up(LogUnavailable())


class KafkaReader:
    """All reads of a node."""

    def __init__(self, connection: KafkaConnection, options: KafkaOptions, supervisor: Supervisor) -> None:
        self._connection = connection
        self._fetcher = Fetcher(connection)
        self._cache = TailCache(options.tail_cache_bytes)
        self._ahead = ReadAhead(options.ahead_bytes)
        self._follower = _Follower(connection, self._fetcher, self._cache, supervisor)
        # A topic's end at or after the call; concurrent calls share one request.
        self.end: SharedRequest[Partition, Offset] = SharedRequest(
            lambda partition: self._fetcher.offset(partition, LATEST, connection.deadline())
        )
        self._sequels = SharedRequest(self._fetch_ahead, join=True)
        self._fetching = asyncio.Semaphore(MAX_FETCHES)
        self._scanning = asyncio.Semaphore(MAX_SCANS)
        self._sizes: dict[TopicId, int] = {}

    async def read(self, partition: Partition, start: Offset, *, max_messages: int, max_bytes: int) -> Runs:
        """Return messages from `start` on (`Log.read`). Raises `LogUnavailable` and `TopicGone`."""
        start, topic, until = max(start, partition.first), partition.topic, self._connection.deadline()
        pending = PendingRead(start, max_messages, max_bytes)
        try:
            self._fill_from_memory(pending, topic)
            end = await self.end(partition) if not pending.full and self._cache.ends_at(topic, pending.offset) else None
            while not pending.full and (end is None or pending.offset < end):
                seen = await self._fetch_more(pending, partition, until)
                if not pending.full and end is None and pending.offset >= seen:
                    end = await self.end(partition)
        except KafkaError as error:
            raise LogUnavailable from error
        if end == pending.offset:
            self._cache.begin(topic, end, end, [])
        if pending.runs:
            self._ahead.note_end(topic, start, pending.runs[-1].end)
        return Runs(pending.runs)

    async def bounds(self, partition: Partition) -> Bounds:
        """Return the oldest kept offset and the end."""
        end, oldest = await asyncio.gather(self.end(partition), self._oldest(partition, self._connection.deadline()))
        return Bounds(min(oldest, end), end)

    async def settled_bounds(self, partition: Partition) -> Bounds:
        """Return the bounds once the high watermark has reached the leader's end at the call.

        Messages that are not replicated may still become visible, or vanish. If they stay so for the timeout of a call,
        raises `LogUnavailable`.
        """
        until = self._connection.deadline()
        written = await self._fetcher.offset(partition, LATEST, until, FOLLOWER)
        while (bounds := await self.bounds(partition)).end < written:
            if asyncio.get_running_loop().time() > until:
                raise LogUnavailable
            await asyncio.sleep(LAG_SECONDS)
        return bounds

    async def offset_at(self, partition: Partition, time: Milliseconds) -> Offset | None:
        """Return the first kept offset with publish time `time` or later, or None."""
        offset = await self._fetcher.offset(partition, max(time, 0), self._connection.deadline())
        return None if offset < partition.first else offset

    async def last_time(self, partition: Partition) -> Milliseconds | None:
        """Return the publish time of the last kept message, or None."""
        oldest, end = await self.bounds(partition)
        back = 1
        while end > oldest:
            start = Offset(max(oldest, end - back))
            found = await self.read(partition, start, max_messages=back, max_bytes=MAX_FETCH_BYTES)
            if found or back >= end - oldest:
                return found.runs[-1].time if found else None
            back *= 16
        return None

    async def wait(self, partition: Partition, after: Offset, timeout: float) -> bool:
        """Return True at the first message at `after` or later, False after `timeout` seconds or a drop."""
        if self._cache.newest(partition.topic) > after:
            return True
        return await self._follower.wait(partition, after, timeout)

    def cache_appended(self, partition: Partition, appended: Appended, fragments: Sequence[Fragment]) -> None:
        """Cache messages that this node appended, and end waits."""
        end = Offset(appended.first + appended.count)
        if self._cache.accepts(partition.topic, appended.first):
            run = Run.of(appended.first, appended.time, fragments)
            self._cache.add(partition.topic, appended.first, end, (run,))
        self._follower.wake_waiters(partition.topic, end)

    def drop_before(self, partition: Partition, oldest: Offset) -> None:
        """Drop expired messages from the caches."""
        self._cache.drop_before(partition.topic, oldest)
        self._ahead.drop_before(partition.topic, oldest)

    def forget(self, partition: Partition) -> None:
        """Remove a deleted topic, and end its waits."""
        self._cache.forget(partition.topic)
        self._ahead.forget(partition.topic)
        self._sizes.pop(partition.topic, None)
        self._follower.forget(partition.topic)

    async def close(self) -> None:
        """End all waits and requests."""
        await self._follower.close()
        await self.end.close()
        await self._sequels.close()

    def _fill_from_memory(self, pending: PendingRead, topic: TopicId) -> None:
        while not pending.full:
            cached_range = self._cache.cached_range(topic)
            if cached_range is None or not cached_range.covers(pending.offset):
                cached_range = self._ahead.cached_range(topic, pending.offset)
            if cached_range is None:
                break
            cached_range.fill(pending)

    async def _fetch_more(self, pending: PendingRead, partition: Partition, until: float) -> Offset:
        """Fetch once; return the topic's end. Raises `LogUnavailable` if the leader lags for too long."""
        fetched = await self._fetch(pending, partition, until)
        if fetched.next == pending.offset:
            # The leader lags: it does not return messages below the end it reported.
            if asyncio.get_running_loop().time() + LAG_SECONDS > until:
                raise LogUnavailable from KafkaError("the leader lags behind")
            await asyncio.sleep(LAG_SECONDS)
            return fetched.end
        if runs := fetched.runs:
            size = sum([run.size for run in runs]) // sum([len(run.fragments) for run in runs]) + 16
            self._sizes[partition.topic] = (self._sizes.get(partition.topic, size) * 3 + size) // 4
        found = CachedRange(pending.offset, fetched.next, fetched.runs)
        found.fill(pending)
        if fetched.next >= fetched.end:
            self._cache.begin(partition.topic, found.start, found.next, found.runs)
        elif pending.offset < found.next:
            self._ahead.keep(partition.topic, found)
        self._fill_from_memory(pending, partition.topic)
        return fetched.end

    async def _fetch(self, pending: PendingRead, partition: Partition, until: float) -> Fetched:
        position = pending.offset
        try:
            if self._ahead.size(partition.topic, position):
                return await self._sequels((partition, position))
            async with self._fetching:
                wanted = pending.messages_left * self._sizes.get(partition.topic, MESSAGE_BYTES_GUESS)
                size = min(MAX_FETCH_BYTES, MIN_FETCH_BYTES + min(wanted, pending.bytes_left))
                return await self._fetcher.fetch(partition, position, size, until=until, enough=pending)
        except OffsetOutOfRangeError:
            oldest = await self._oldest(partition, until)
            return Fetched([], max(position, oldest), Offset(0))

    async def _fetch_ahead(self, what: tuple[Partition, Offset]) -> Fetched:
        partition, position = what
        async with self._scanning:
            size = self._ahead.size(partition.topic, position) or MIN_FETCH_BYTES
            return await self._fetcher.fetch(partition, position, size, until=self._connection.deadline())

    async def _oldest(self, partition: Partition, until: float) -> Offset:
        oldest = await self._fetcher.offset(partition, EARLIEST, until)
        self.drop_before(partition, oldest)
        return oldest
