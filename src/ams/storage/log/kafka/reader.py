"""Reading topics on Kafka: from memory at the tail, by fetches at any place, and ahead of those who read on and on.

A read is a few questions to the topic's leader, at most. Before it answers less than it may, the end of the topic is
asked for, so that it holds what was published through any node before it began.
"""

import asyncio
from collections.abc import Sequence

from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable
from ams.core.messages import Fragment
from ams.core.names import Offset, TopicId
from ams.core.runs import Run, Runs
from ams.core.supervisor import Supervisor
from ams.storage.coalescing import SharedRequest
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.fetch import Fetched, Fetcher
from ams.storage.log.kafka.follow import Follower
from ams.storage.log.kafka.message_cache import CachedRange, PendingRead, ReadAhead, TailCache
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition

LEAST, MOST = 2**12, 2**22  # bytes of a fetch for one read
GUESS = 1024  # bytes of a message of a topic that was not read yet
FETCHES = 16  # fetches at a time, so that many large ones do not fill the memory
SCANS = 2
"""Fetches ahead at a time: one on its way while messages are made of another. More would only keep others waiting."""
LAG = 0.05  # seconds until a leader is asked again that does not show yet what it said there is


class Reader:
    """Reads for all of a node; its topics are given by their `Partition`."""

    def __init__(self, connection: Connection, options: KafkaOptions, supervisor: Supervisor) -> None:
        self._connection = connection
        self._fetcher = Fetcher(connection)
        self._cache = TailCache(options.tail_cache_bytes)
        self._ahead = ReadAhead(options.ahead_bytes)
        self._follower = Follower(connection, self._fetcher, self._cache, supervisor)
        self._ends: SharedRequest[Partition, Offset] = SharedRequest(
            lambda partition: self._fetcher.end(partition, connection.deadline())
        )
        self._sequels = SharedRequest(self._fetch_ahead, join=True)
        self._fetching = asyncio.Semaphore(FETCHES)
        self._scanning = asyncio.Semaphore(SCANS)
        self._sizes: dict[TopicId, int] = {}

    async def read(self, partition: Partition, start: Offset, *, max_messages: int, max_bytes: int) -> Runs:
        """Return messages from `start` on, or from the oldest when that is later.

        At most `max_messages`, and at most `max_bytes` of fragments, but at least one message unless at the end.
        Raises `LogUnavailable` and `TopicGone`.
        """
        pending, topic, until = PendingRead(max_messages, max_bytes), partition.topic, self._connection.deadline()
        start = max(start, partition.first)
        try:
            position = self._from_memory(pending, topic, start)
            end = await self._ends(partition) if not pending.full and self._cache.ends_at(topic, position) else None
            while not pending.full and (end is None or position < end):
                position, seen = await self._more(pending, partition, position, until)
                if not pending.full and end is None and position >= seen:
                    end = await self._ends(partition)
        except KafkaError as error:
            raise LogUnavailable from error
        if end == position:
            self._cache.begin(topic, position, position, [])
        if pending.runs:
            self._ahead.ended(topic, start, pending.runs[-1].end)
        return Runs(pending.runs)

    async def end(self, partition: Partition) -> Offset:
        """Return the topic's end, as it is or was since the call; concurrent calls share one question."""
        return await self._ends(partition)

    async def bounds(self, partition: Partition) -> Bounds:
        """Return the oldest kept offset and the end."""
        end, oldest = await asyncio.gather(self._ends(partition), self._oldest(partition, self._connection.deadline()))
        return Bounds(min(oldest, end), end)

    async def settled(self, partition: Partition) -> Bounds:
        """Return the bounds when all that the leader has by now is in them.

        What too few brokers have yet may still become a part of the topic, or vanish: while that is so for longer than
        a call waits, `LogUnavailable`.
        """
        until = self._connection.deadline()
        written = await self._fetcher.written(partition, until)
        while (bounds := await self.bounds(partition)).end < written:
            if asyncio.get_running_loop().time() > until:
                raise LogUnavailable
            await asyncio.sleep(LAG)
        return bounds

    async def offset_at(self, partition: Partition, time: Milliseconds) -> Offset | None:
        """Return the first kept offset whose publish time is `time` or later; None when there is none."""
        return await self._fetcher.at(partition, time, self._connection.deadline())

    async def last_time(self, partition: Partition) -> Milliseconds | None:
        """Return the publish time of the last message that is kept; None when there is none."""
        oldest, end = await self.bounds(partition)
        back = 1
        while end > oldest:
            found = await self.read(partition, Offset(max(oldest, end - back)), max_messages=back, max_bytes=MOST)
            if found or back >= end - oldest:
                return found.runs[-1].time if found else None
            back *= 16
        return None

    async def wait(self, partition: Partition, after: Offset, timeout: float) -> bool:
        """Return True as soon as there is a message at `after` or later, False after `timeout` seconds.

        False also when the topic is forgotten or the reader closes. `LogUnavailable` when no broker answers.
        """
        if self._cache.newest(partition.topic) > after:
            return True
        return await self._follower.wait(partition, after, timeout)

    def appended(self, partition: Partition, appended: Appended, fragments: Sequence[Fragment]) -> None:
        """Note what was appended by this node: reads at the tail find it in memory, and waits end."""
        end = Offset(appended.first + appended.count)
        if self._cache.accepts(partition.topic, appended.first):
            run = Run.of(appended.first, appended.time, fragments)
            self._cache.add(partition.topic, appended.first, end, (run,))
        self._follower.grown(partition.topic, end)

    def drop_before(self, partition: Partition, oldest: Offset) -> None:
        """Let messages go that are no longer kept."""
        self._cache.drop_before(partition.topic, oldest)
        self._ahead.drop_before(partition.topic, oldest)

    def forget(self, partition: Partition) -> None:
        """Remove a topic that is gone; its waiting readers get an error."""
        self._cache.forget(partition.topic)
        self._ahead.forget(partition.topic)
        self._sizes.pop(partition.topic, None)
        self._follower.forget(partition.topic)

    async def close(self) -> None:
        """End all waits and questions."""
        await self._follower.close()
        await self._ends.close()
        await self._sequels.close()

    def _from_memory(self, pending: PendingRead, topic: TopicId, position: Offset) -> Offset:
        """Fill a read with what is in memory from `position` on; return where to go on."""
        while not pending.full:
            held = self._cache.held(topic)
            if held is None or not held.covers(position):
                held = self._ahead.held(topic, position)
            if held is None:
                break
            position = held.fill(pending, position)
        return position

    async def _more(
        self, pending: PendingRead, partition: Partition, position: Offset, until: float
    ) -> tuple[Offset, Offset]:
        """Fetch from `position` on; return where to go on, and the end as the leader knew it."""
        fetched = await self._fetch(pending, partition, position, until)
        if fetched.next == position:
            # The leader does not show yet what is there.
            if asyncio.get_running_loop().time() + LAG > until:
                raise LogUnavailable from KafkaError("the leader lags behind")
            await asyncio.sleep(LAG)
            return position, fetched.end
        if runs := fetched.runs:
            size = sum([run.size for run in runs]) // sum([len(run.fragments) for run in runs]) + 16
            self._sizes[partition.topic] = (self._sizes.get(partition.topic, size) * 3 + size) // 4
        found = CachedRange(position, fetched.next, fetched.runs)
        position = found.fill(pending, position)
        if fetched.next >= fetched.end:
            self._cache.begin(partition.topic, found.start, found.next, found.runs)
        elif position < found.next:
            self._ahead.keep(partition.topic, found)
        return self._from_memory(pending, partition.topic, position), fetched.end

    async def _fetch(self, pending: PendingRead, partition: Partition, position: Offset, until: float) -> Fetched:
        try:
            if self._ahead.size(partition.topic, position):
                return await self._sequels((partition, position))
            async with self._fetching:
                wanted = min(pending.messages_left * self._sizes.get(partition.topic, GUESS), pending.bytes_left)
                size = min(MOST, LEAST + wanted)
                return await self._fetcher.fetch(partition, position, size, until=until, enough=pending)
        except OffsetOutOfRangeError:
            oldest = await self._oldest(partition, until)
            return Fetched([], max(position, oldest), Offset(0))

    async def _fetch_ahead(self, what: tuple[Partition, Offset]) -> Fetched:
        partition, position = what
        async with self._scanning:
            size = self._ahead.size(partition.topic, position) or LEAST
            return await self._fetcher.fetch(partition, position, size, until=self._connection.deadline())

    async def _oldest(self, partition: Partition, until: float) -> Offset:
        oldest = await self._fetcher.oldest(partition, until)
        self.drop_before(partition, oldest)
        return oldest
