"""The log on Kafka. Every node reads and writes all topics."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

import structlog

from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import InvalidInput, LogUnavailable, TooLarge, TopicGone, Unavailable
from ams.core.messages import Fragment, Message, Stored, batch_of, parse, sent_bytes
from ams.core.names import Offset, TopicId
from ams.core.retention_clock import RetentionClock
from ams.core.runs import Columns
from ams.core.supervisor import Supervisor, Ticker
from ams.storage.log.base import NEW_TOPIC, NO_OFFSET, Appended, Bounds, Origin, Totals, check_key, check_load
from ams.storage.log.kafka.administration import Answer, alter, await_refusable, delete_records, describe
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.fetch import bounds_of_all
from ams.storage.log.kafka.idempotency_store import IdempotencyStore, PublishedBytes
from ams.storage.log.kafka.keyed_appends import KEY, KeyedAppends
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.reader import KafkaReader
from ams.storage.log.kafka.records import HOLE, encode
from ams.storage.log.kafka.sender import AppendRequest, Record, Sender, upper_size
from ams.storage.log.kafka.topics import APPEND_TIME, CREATE_TIME, TIMES, KafkaTopics

logger = structlog.get_logger("ams.log")
_MESSAGES_PER_TURN = 500  # messages encoded in one turn of the event loop
_ROUND_SECONDS = 1.0  # interval of background rounds; a killed process loses the byte counts of this time
_LIST_EVERY = 5  # rounds between lists of topics, which show topics that others deleted
_LIST_SHARE = 100  # listing takes at most 1/100 of the time
_LOOK_EVERY = 60  # rounds between checks of topic settings
_FORGET_EVERY = 300  # rounds between removals of old keys
_CHANGE_PAUSE = 0.05  # seconds between two checks of a changed setting
_SETTLE_SECONDS = 0.2  # time for a broker to apply a changed setting
_LOAD_BYTES, _LOAD_RECORDS = 2**20, 2000  # limits of a request of a load; one message may exceed the bytes
_FILLER: Record = (b"", [(HOLE, b"")])


class KafkaLog:
    """Implements `ams.storage.log.base.Log` on Kafka. One event loop only. Create with `open`.

    The contract holds for all nodes together, except that `hold_appends` blocks only appends of this process.
    """

    def __init__(
        self, connection: KafkaConnection, options: KafkaOptions, store: IdempotencyStore, supervisor: Supervisor,
        retention_clock: RetentionClock,
    ) -> None:  # fmt: skip
        self._connection, self._options = connection, options
        self._reader = KafkaReader(connection, options, supervisor)
        self._sizes = PublishedBytes(store)
        self._topics = KafkaTopics(connection, options, self._forget_topic)
        self._sender = Sender(connection, options, self._on_stored, supervisor)
        self._keys = KeyedAppends(store, connection, options, self._topics, self._reader, self._append)
        self._held: dict[TopicId, asyncio.Future[None]] = {}  # topics without appends; completes at release
        self._rounds = Ticker("upkeep of the log", _ROUND_SECONDS, self._round, partial(logger.warning, "log.upkeep"))
        self._round_number, self._was_away = 0, False
        self._retention_clock = retention_clock
        self._closed = False

    @classmethod
    async def open(
        cls, options: KafkaOptions, store: IdempotencyStore, supervisor: Supervisor | None = None,
        retention_clock: RetentionClock | None = None,
    ) -> Self:  # fmt: skip
        """Connect to the brokers, or retry in the background. The caller closes `store`."""
        connection, supervisor = await KafkaConnection.open(options), supervisor or Supervisor()
        log = cls(connection, options, store, supervisor, retention_clock or RetentionClock(SystemClock()))
        with contextlib.suppress(LogUnavailable):  # background rounds try again
            await log._sender.identify()
        log._was_away = not log._connection.reachable  # the caller waits for the brokers and logs it
        await log._rounds.start(supervisor)
        return log

    async def create(
        self, topic: TopicId, retention: Milliseconds | None = None, *, label: str = "", origin: Origin = NEW_TOPIC
    ) -> None:
        """Create a topic on the brokers (`Log.create`). One with an origin refuses appends until it is loaded."""
        self._check_open()
        if await self._topics.create(topic, retention, label, origin) and origin.bytes:
            self._sizes.add(topic, origin.bytes)
            await self._sizes.flush()

    async def load(
        self, topic: TopicId, batches: AsyncIterable[Sequence[Stored]], *, count_from: Offset = NO_OFFSET
    ) -> None:
        """Load an unused topic (`Log.load`): meanwhile it refuses other messages, as brokers take any publish time."""
        partition = await self._partition(topic)
        await self._guard(partition, self._load(partition, batches, count_from))
        await self._sizes.flush()
        self._topics.kept.pop(topic, None)  # the load changed the settings

    async def end_load(self) -> None:
        """Do nothing (`Log.end_load`): a start scans nothing."""

    async def drop(self, topic: TopicId) -> None:
        self._check_open()
        await self._topics.drop(topic)
        await self._keys.forget(topic)

    @contextlib.asynccontextmanager
    async def hold_appends(self, topic: TopicId) -> AsyncIterator[None]:
        """Block appends of this process to a topic (`Log.hold_appends`); other nodes may still append."""
        self._check_open()
        while (earlier := self._held.get(topic)) is not None:
            await asyncio.wait((earlier,))
        held = self._held[topic] = asyncio.get_running_loop().create_future()
        try:
            await self._sender.quiet(topic)
            await self._sizes.flush()
            yield
        finally:
            del self._held[topic]
            held.set_result(None)

    async def set_retention(self, topic: TopicId, retention: Milliseconds | None) -> None:
        """Change a topic's retention (`Log.set_retention`). Messages that a shorter one expires are deleted at once."""
        partition = await self._partition(topic)
        before = await self._topics.settings(partition)
        await self._topics.set_age(partition, retention)
        age = retention or self._options.retention
        if age < before.age:
            await self._guard(partition, self._delete_older(partition, age))

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        return (await self._topics.settings(await self._partition(topic))).own_age

    async def topics(self) -> frozenset[TopicId]:
        self._check_open()
        return frozenset(await self._topics.all())

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        """Store messages at the end of a topic, all or none (`Log.append`), on all in-sync replicas."""
        if not messages:
            raise ValueError("an append has at least one message")
        if key is not None:
            check_key(key)
        sent = batch_of(messages)
        # Check the size before any other work: base64 takes four bytes for three.
        if sent.data_bytes * 3 // 4 > self._options.max_batch_bytes:
            raise TooLarge
        until = self._connection.deadline()
        partition = self._topics.known_partition(topic)
        if partition is None or self._closed:
            partition = await self._partition(topic)
        if key is not None:
            await self._topics.require_promised_settings(partition)
            return await self._keys.append(partition, sent, key, until)
        return await self._append(partition, sent, until)

    async def earlier_answer(self, topic: TopicId, messages: Sequence[Message], key: str) -> Appended | None:
        return await self._keys.earlier_answer(await self._partition(topic), messages, key, self._connection.deadline())

    async def read(self, topic: TopicId, start: Offset, *, max_messages: int, max_bytes: int) -> Sequence[Stored]:
        """Return messages from `start` on (`Log.read`), with all that any node had acknowledged before the call."""
        read = partial(self._reader.read, start=start, max_messages=max_messages, max_bytes=max_bytes)
        return await self._of_topic(topic, read)

    async def bounds(self, topic: TopicId) -> Bounds:
        return await self._of_topic(topic, self._reader.bounds)

    async def all_bounds(self) -> Mapping[TopicId, Bounds]:
        self._check_open()
        partitions = [each.partition for each in (await self._topics.all()).values()]
        until = self._connection.deadline()
        found = await bounds_of_all(self._connection, partitions, until)
        for partition, bounds in found.items():
            self._reader.drop_before(partition, bounds.oldest)
        for partition in partitions:
            if partition not in found:  # its leader is changing, or it is deleted
                with contextlib.suppress(TopicGone):
                    found[partition] = await self._guard(partition, self._reader.bounds(partition))
        return {partition.topic: bounds for partition, bounds in found.items()}

    async def totals(self, topic: TopicId) -> Totals:
        """Return a topic's totals. Bytes lack the last second of killed nodes; no time if all messages are deleted."""
        partition = await self._partition(topic)
        size = await self._sizes.of(topic)
        end = await self._guard(partition, self._reader.end(partition))
        return Totals(end, size, await self._guard(partition, self._reader.last_time(partition)) if end else None)

    async def stored_bytes(self, topics: Collection[TopicId]) -> Mapping[TopicId, int]:
        """Return the bytes that topics occupy (`Log.stored_bytes`), estimated from the share of kept offsets."""
        bounds, sizes = await self.all_bounds(), await self._sizes.all()
        return {
            topic: sizes.get(topic, 0) * (end - oldest) // max(end, 1)
            for topic, (oldest, end) in bounds.items()
            if topic in topics
        }

    async def offset_at(self, topic: TopicId, time: Milliseconds) -> Offset | None:
        return await self._of_topic(topic, partial(self._reader.offset_at, time=time))

    async def wait(self, topic: TopicId, after: Offset, timeout: float) -> bool:
        return await self._of_topic(topic, partial(self._reader.wait, after=after, timeout=timeout))

    @property
    def refusal(self) -> str | None:
        """Why appends are refused now (`Log.refusal`): no broker answers, or too few are in sync."""
        return self.away or self._sender.refusal

    @property
    def away(self) -> str | None:
        return None if self._connection.reachable else self._connection.trouble or "no broker answers"

    async def weak_topics(self) -> Mapping[TopicId, str]:
        self._check_open()
        await self._topics.refresh()
        await self._topics.look()
        return self._topics.weak_topics()

    async def name_of(self, topic: TopicId) -> str:
        return (await self._partition(topic)).name

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._keys.close()
        await self._sender.close()
        await self._rounds.close()
        await self._sizes.flush()
        await self._topics.close()
        await self._reader.close()
        await self._connection.close()

    async def _append(
        self, partition: Partition, messages: Sequence[Message], until: float, hashed: bytes | None = None
    ) -> Appended:
        sent = batch_of(messages)
        every = sent.sent
        records = [encode(each) for each in every[:_MESSAGES_PER_TURN]]
        for start in range(_MESSAGES_PER_TURN, len(every), _MESSAGES_PER_TURN):
            await asyncio.sleep(0)
            records += [encode(each) for each in every[start : start + _MESSAGES_PER_TURN]]
        if hashed is not None:
            value, headers = records[0]
            records[0] = (value, [*headers, (KEY, hashed)])
        await self._topics.require_promised_settings(partition)
        while (held := self._held.get(partition.topic)) is not None:  # no await between the last check and `submit`
            await asyncio.wait((held,))
        if self._topics.known_partition(partition.topic) is None:  # deleted during one of the waits
            raise TopicGone
        request = AppendRequest(records, sent.fragments, sent.data_bytes, until)
        return await self._guard(partition, self._sender.submit(partition, request))

    async def _load(self, partition: Partition, batches: AsyncIterable[Sequence[Stored]], count_from: Offset) -> None:
        oldest, end = await self._reader.bounds(partition)
        time = await self._reader.last_time(partition) or Milliseconds(0)
        is_empty = oldest == end
        await self._set_times(partition, CREATE_TIME)
        try:
            async for batch in batches:
                check_load(Columns.of(batch), end, time)
                for first, records, times in _parts(batch, end, time):
                    await self._append_loaded(partition, first, records, times)
                if not batch:
                    continue
                if counted := [each.fragment for each in batch if each.offset >= count_from]:
                    self._sizes.add(partition.topic, sent_bytes(counted, sum(map(len, counted))))
                if is_empty and batch[0].offset > end:  # delete the fillers before the first message
                    await delete_records(self._connection, partition, batch[0].offset, self._connection.deadline())
                end, time, is_empty = Offset(batch[-1].offset + 1), batch[-1].time, False
        finally:
            await self._set_times(partition, APPEND_TIME)

    async def _set_times(self, partition: Partition, times: str) -> None:
        until = self._connection.deadline()

        async def is_set() -> bool:
            configs = await describe(self._connection, [partition.name], [TIMES], until)
            return configs.get(partition.name, {}).get(TIMES) == times

        if await is_set():
            return
        await alter(self._connection, partition, {TIMES: times}, until)
        for _ in range(int(self._options.patience / _CHANGE_PAUSE)):
            if await is_set():
                break
            await asyncio.sleep(_CHANGE_PAUSE)
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _append_loaded(
        self, partition: Partition, first: Offset, records: list[Record], times: Sequence[Milliseconds]
    ) -> None:
        request = AppendRequest(records, (), 0, self._connection.deadline(), times)
        appended = await self._sender.submit(partition, request)
        if appended.first != first:
            raise InvalidInput(f"another producer publishes to {partition.name}: offset {first} is taken")
        if appended.time >= 0:
            raise LogUnavailable(f"a broker gave messages of {partition.name} other times: drop it, and load it again")

    async def _delete_older(self, partition: Partition, age: Milliseconds) -> None:
        oldest, end = await self._reader.bounds(partition)
        kept = await self._reader.offset_at(partition, Milliseconds(self._retention_clock.wall() - age))
        before_cut = end if kept is None else kept
        if before_cut > oldest:
            await delete_records(self._connection, partition, before_cut, self._connection.deadline())
            self._reader.drop_before(partition, before_cut)

    async def _of_topic(self, topic: TopicId, ask: Callable[[Partition], Awaitable[Answer]]) -> Answer:
        partition = await self._partition(topic)
        return await self._guard(partition, ask(partition))

    async def _guard(self, partition: Partition, work: Awaitable[Answer]) -> Answer:
        """Await work on a topic. Forgets the topic on `TopicGone`, so that its waiters wake."""
        try:
            return await await_refusable(work, name=partition.name)
        except TopicGone:
            self._topics.forget(partition)
            raise

    async def _partition(self, topic: TopicId) -> Partition:
        self._check_open()
        return self._topics.known_partition(topic) or await self._topics.find(topic)

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable

    def _on_stored(self, partition: Partition, appended: Appended, fragments: Sequence[Fragment], size: int) -> None:
        if appended.time < 0:  # loaded: counted at the creation of the topic, and not read yet
            return
        self._sizes.add(partition.topic, size)
        self._reader.cache_appended(partition, appended, fragments)

    async def _round(self) -> None:
        self._round_number += 1
        number, is_away = self._round_number, not self._connection.reachable
        if is_away and not self._was_away:
            logger.error("kafka.away", reason=self._connection.trouble)
        if self._was_away and not is_away:
            logger.info("kafka.back")
        self._was_away = is_away
        with contextlib.suppress(Unavailable):  # reported elsewhere
            await self._sizes.flush()
            if is_away:
                return
            if number % max(_LIST_EVERY, round(self._topics.cost * _LIST_SHARE)) == 0:
                await self._sender.identify()
                await self._topics.refresh()
            if number % _LOOK_EVERY == 0:
                await self._topics.look()
            if number % _FORGET_EVERY == 0:
                await self._keys.forget_old()

    def _forget_topic(self, partition: Partition) -> None:
        self._sender.forget(partition.topic)
        self._connection.forget_leader(partition)
        self._reader.forget(partition)
        self._sizes.forget(partition.topic)


def _parts(
    batch: Sequence[Stored], end: Offset, time: Milliseconds
) -> Iterator[tuple[Offset, list[Record], list[Milliseconds]]]:
    """Yield requests that load a batch. Missing offsets are filled with records that readers skip."""
    records: list[Record] = []
    times: list[Milliseconds] = []
    first, size = end, 0
    for offset, record, at in _records(batch, end, time):
        bytes_ = upper_size([record])
        if len(records) >= _LOAD_RECORDS or (size and size + bytes_ > _LOAD_BYTES):
            yield first, records, times
            first, records, times, size = offset, [], [], 0
        records.append(record)
        times.append(at)
        size += bytes_
    if records:
        yield first, records, times


def _records(batch: Sequence[Stored], end: Offset, time: Milliseconds) -> Iterator[tuple[Offset, Record, Milliseconds]]:
    for each in batch:
        for hole in range(end, each.offset):
            yield Offset(hole), _FILLER, time
        yield each.offset, encode(parse(each.fragment)), each.time
        end, time = Offset(each.offset + 1), each.time
