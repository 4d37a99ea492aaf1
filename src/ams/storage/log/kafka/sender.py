"""The producer: sends requests of all topics to their leaders; each is stored once, whole, in the order of its topic.

At most one batch of a topic is in flight: whole requests, which the broker stores all or not at all, with consecutive
offsets. Later requests form the next batch. Batches with the same leader share a produce request if they are ready
together. A batch has a producer id and a sequence number, so that a retry is stored once: a batch with unknown outcome
is sent again unchanged. If it is given up, the next batch's epoch fences it off
(`docs/decisions/0009-kafka-requests-over-aiokafka.md`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import structlog
from aiokafka import errors
from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ams.core.clock import Milliseconds, SystemClock
from ams.core.coalescing import SingleFlight, answer_future
from ams.core.errors import AmsError, LogUnavailable, TooLarge, TopicGone
from ams.core.messages import Fragment
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.log.base import Appended
from ams.storage.log.kafka.administration import await_refusable
from ams.storage.log.kafka.connection import TRANSIENT_ERRORS, KafkaConnection, Lane, NodeId, check, error_of
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.records import Header

logger = structlog.get_logger("ams.log")
PART = "writing of the log"
LANES = tuple(Lane(f"publish {number}") for number in range(4))
FLYING_BYTES = 64 * 2**20  # maximum in flight, to all brokers
GATHER_BYTES = 512 * 1024  # limit for further requests in a batch: keeps reads of a few messages cheap
BATCH_OVERHEAD = 1024  # upper bound for the bytes of a batch besides its records
LAST_EPOCH = 2**15 - 1
LAST_SEQUENCE = 2**31 - 1
_MAX_BATCH_RECORDS = 2**21  # more than fit into a batch
_RECORD_BYTES = 40  # upper bound for a record's overhead
_HEADER_BYTES = 10
_RECORDS_PER_TURN = 500  # records encoded in one turn of the event loop
_ALL_IN_SYNC = -1  # acks=all
_PAUSE = 0.05  # seconds before a retry
_EXPIRY_CHECK_SECONDS = 0.25  # interval of the check for expired requests
_TOO_FEW_IN_SYNC = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)
_TOO_FEW_SECONDS = 15.0  # how long `refusal` stays after such an error without new appends
_LOST_SEQUENCE = (errors.OutOfOrderSequenceNumber, errors.UnknownProducerId, errors.InvalidProducerEpoch)
Stored = Callable[[Partition, Appended, Sequence[Fragment], int], None]  # place, fragments and data bytes
Record = tuple[bytes, list[Header]]  # value and headers


class Unsent(LogUnavailable):
    """An append was cancelled before it was sent: it is not stored, and never will be."""


class Producer(NamedTuple):
    """Kafka's producer id and epoch. A higher epoch fences off batches of lower ones."""

    id: int
    epoch: int


@dataclass(slots=True, eq=False)
class AppendRequest:
    """One append: stored wholly in one batch, or not at all."""

    records: list[Record]
    fragments: Sequence[Fragment]
    data_bytes: int
    until: float  # loop time at which the caller gives up
    times: Sequence[Milliseconds] | None = None  # of loaded messages; the answer's time is -1, unless the broker set it
    done: asyncio.Future[Appended] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    size: int = field(init=False)  # upper bound of its bytes in a batch

    def __post_init__(self) -> None:
        self.size = upper_size(self.records)

    def expire(self, now: float, error: type[Exception]) -> None:
        """Fail the call if its time is over."""
        if self.until <= now:
            answer_future(self.done, error())


@dataclass(slots=True, eq=False)
class AppendBatch:
    """Requests that are sent together, and their state."""

    requests: list[AppendRequest]
    size: int
    attempts: int = 0  # sends so far; after the first it may be stored
    data: bytes = b""  # encoded, the same for every retry; empty until encoded
    time: Milliseconds = Milliseconds(-1)  # when it was encoded; -1: loaded messages, with their own times

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(len(each.records) for each in self.requests)

    @property
    def is_awaited(self) -> bool:
        """True if any caller still waits for it."""
        return any(not each.done.done() for each in self.requests)

    def expire(self, now: float) -> None:
        """Fail calls whose time is over."""
        for each in self.requests:
            each.expire(now, LogUnavailable if self.attempts else Unsent)

    def on_stored(self, first: Offset, time: Milliseconds) -> None:
        """Complete each call with the place of its messages."""
        for each in self.requests:
            count = len(each.records)
            answer_future(each.done, Appended(first, count, time))
            first = Offset(first + count)


@dataclass(slots=True, eq=False)
class TopicQueue:
    """The requests of one topic; at most one batch is in flight. Starts without a producer."""

    partition: Partition
    waiting: deque[AppendRequest] = field(default_factory=deque)
    batch: AppendBatch | None = None
    queued: bool = False  # whether it has pending requests
    quiet: asyncio.Future[None] | None = None  # completes when no request is pending
    producer: Producer | None = None
    worn: int = -1  # id of the producer whose epochs are used up
    sequence: int = 0

    def fail(self, error: Exception) -> None:
        """Fail all calls. If the brokers are away, requests that were not sent get `Unsent`."""
        unsent = Unsent() if isinstance(error, LogUnavailable) else error
        if self.batch is not None:
            for each in self.batch.requests:
                answer_future(each.done, error if self.batch.attempts else unsent)
        self.give_up()
        while self.waiting:
            answer_future(self.waiting.popleft().done, unsent)

    def expire(self, now: float) -> None:
        """Fail calls whose time is over."""
        for each in self.waiting:
            each.expire(now, Unsent)
        self.waiting = deque(each for each in self.waiting if not each.done.done())
        if self.batch is not None:
            self.batch.expire(now)

    def next_batch(self, limit: int, now: float) -> AppendBatch | None:
        """Return the batch to send: the last one again, or whole pending requests up to `limit` bytes."""
        if self.batch is not None:
            self.batch.expire(now)
            if self.batch.is_awaited:
                return self.batch
        self.give_up()
        requests: list[AppendRequest] = []
        size = most = 0
        while self.waiting and (not requests or size + self.waiting[0].size <= most):
            request = self.waiting.popleft()
            request.expire(now, Unsent)
            if not request.done.done():  # its caller still waits
                requests.append(request)
                size += request.size
                most = most or min(request.size + GATHER_BYTES, limit)
        self.batch = AppendBatch(requests, size) if requests else None
        return self.batch

    def settle(self) -> None:
        """Advance after a stored batch."""
        assert self.batch is not None
        self.sequence += self.batch.count
        self.batch = None
        if self.sequence > LAST_SEQUENCE - _MAX_BATCH_RECORDS:
            self.renew()

    def give_up(self) -> None:
        """Drop a batch with unknown outcome: the next epoch fences it off."""
        if self.batch is not None and self.batch.attempts:
            self.renew()
        self.batch = None

    def renew(self) -> None:
        """Begin a new sequence in the next epoch, or with a new producer if epochs are used up."""
        self.sequence = 0
        if self.producer is None:
            return
        if self.producer.epoch < LAST_EPOCH:
            self.producer = Producer(self.producer.id, self.producer.epoch + 1)
        else:
            self.worn, self.producer = self.producer.id, None


async def make(queue: TopicQueue, batch: AppendBatch, limit: int, time: Milliseconds) -> None:
    """Encode a batch with the next sequence number of its queue."""
    assert queue.producer is not None
    producer_id, epoch = queue.producer
    builder: Any = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=queue.sequence, batch_size=limit,
    )  # fmt: skip
    number = 0
    for request in batch.requests:
        times = request.times or repeat(time)
        for (value, headers), at in zip(request.records, times, strict=False):
            if builder.append(number, at, None, value, headers) is None:  # `upper_size` was wrong
                raise ValueError("the messages do not fit into a batch")
            number += 1
            if not number % _RECORDS_PER_TURN:
                await asyncio.sleep(0)
    batch.data = builder.build()
    batch.time = Milliseconds(-1) if any(each.times for each in batch.requests) else time


def upper_size(records: Sequence[Record]) -> int:
    """Return an upper bound for the bytes of records in a batch."""
    size = _RECORD_BYTES * len(records) + sum([len(value) for value, _ in records])
    for _, headers in records:
        for name, value in headers:
            size += 3 * len(name) + len(value or b"") + _HEADER_BYTES
    return size


@dataclass(slots=True)
class _Broker:
    """Queues that wait for a broker, and its free lanes."""

    ready: deque[TopicQueue] = field(default_factory=deque)
    free: list[Lane] = field(default_factory=lambda: list(LANES))
    called: bool = False


class Sender:
    """Sends requests; created by `KafkaLog`. One event loop only."""

    def __init__(
        self, connection: KafkaConnection, options: KafkaOptions, on_stored: Stored, supervisor: Supervisor
    ) -> None:
        """`on_stored` is called before the callers' futures complete."""
        self._supervisor, self._connection, self._options, self._on_stored = supervisor, connection, options, on_stored
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicId, TopicQueue] = {}
        self._brokers: dict[NodeId, _Broker] = {}
        self._busy: set[TopicQueue] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer: Producer | None = None
        self._identifying: SingleFlight[None, Producer] = SingleFlight()
        self._looking: asyncio.TimerHandle | None = None
        self._flying = 0
        self._too_few_until = 0.0
        self._closing = False

    def submit(self, partition: Partition, request: AppendRequest) -> "asyncio.Future[Appended]":
        """Queue a request of a topic; raises `TooLarge`.

        The future raises `Unsent` if the request is not stored, `LogUnavailable` if it may be stored, or `TopicGone`.
        """
        if self._closing or not self._connection.reachable or request.until <= self._loop.time():
            raise Unsent
        if request.size + BATCH_OVERHEAD > self._options.max_batch_bytes:
            raise TooLarge
        queue = self._queues.get(partition.topic)
        if queue is None:
            queue = self._queues[partition.topic] = TopicQueue(partition)
        queue.waiting.append(request)
        if not queue.queued:
            self._schedule(queue)
        return request.done

    async def identify(self) -> Producer:
        """Return the producer id; requests one if needed. Raises `LogUnavailable`."""
        if self._producer is None:
            self._producer = await self._identifying.result(None, self._ask_identity)
        return self._producer

    @property
    def refusal(self) -> str | None:
        """Why brokers refuse batches now, or None."""
        return "too few brokers are in sync" if self._loop.time() < self._too_few_until else None

    def forget(self, topic: TopicId) -> None:
        """Fail all requests of a deleted topic.

        The topic may still exist, if a broker has not heard of it yet. So it gets another producer id: restarted
        sequence numbers of the same producer would count as repeats.
        """
        queue = self._queues.pop(topic, None)
        if queue is not None:
            queue.fail(TopicGone())
            self._producer = None

    async def quiet(self, topic: TopicId) -> None:
        """Wait until no request of a topic is pending."""
        while (queue := self._queues.get(topic)) is not None and queue.queued:
            if queue.quiet is None:
                queue.quiet = self._loop.create_future()
            await asyncio.wait((queue.quiet,))

    async def close(self) -> None:
        """Finish accepted requests, and stop."""
        self._closing = True
        await self._idle.wait()
        for task in list(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._identifying.close()
        if self._looking is not None:
            self._looking.cancel()

    def _schedule(self, queue: TopicQueue, pause: float = 0) -> None:
        queue.queued = queue.batch is not None or bool(queue.waiting)
        if not queue.queued:
            self._mark_idle(queue)
            return
        self._busy.add(queue)
        self._idle.clear()
        self._schedule_expiry()
        node = None if pause or queue.producer is None else self._connection.cached_leader(queue.partition)
        if node is None:
            self._start(self._find_leader(queue, pause))
        else:
            self._enqueue(queue, node)

    def _mark_idle(self, queue: TopicQueue) -> None:
        self._busy.discard(queue)
        if not self._busy:
            self._idle.set()
        if queue.quiet is not None:
            queue.quiet.set_result(None)
            queue.quiet = None

    async def _find_leader(self, queue: TopicQueue, pause: float) -> None:
        until = self._connection.deadline()
        try:
            await asyncio.sleep(pause)
            if queue.producer is None:
                if self._producer is not None and queue.worn == self._producer.id:
                    self._producer = None  # the queue has used up its epochs
                queue.producer = await self.identify()
            node = await await_refusable(self._connection.leader(queue.partition, until=until))
        except AmsError as error:
            queue.fail(error)
            self._schedule(queue)
        except Exception:  # a defect must not block this topic
            self._supervisor.log_failure(PART)
            queue.fail(LogUnavailable())
            self._schedule(queue)
        else:
            self._enqueue(queue, node)

    def _enqueue(self, queue: TopicQueue, node: NodeId) -> None:
        broker = self._brokers.setdefault(node, _Broker())
        broker.ready.append(queue)
        self._dispatch_soon(node, broker)

    def _dispatch_soon(self, node: NodeId, broker: _Broker) -> None:
        if not broker.called:
            broker.called = True
            self._loop.call_soon(self._dispatch, node, broker)

    def _dispatch(self, node: NodeId, broker: _Broker) -> None:
        broker.called = False
        try:
            while broker.ready and broker.free and self._flying < FLYING_BYTES:
                load = self._load(broker)
                if load:
                    self._start(self._send_batches(node, broker, broker.free.pop(), load))
        except Exception as error:
            self._supervisor.report_failure(PART, error, self._end)

    def _load(self, broker: _Broker) -> list[tuple[TopicQueue, AppendBatch]]:
        load: list[tuple[TopicQueue, AppendBatch]] = []
        size = 0
        while broker.ready:
            queue = broker.ready[0]
            batch = queue.next_batch(self._options.max_batch_bytes - BATCH_OVERHEAD, self._loop.time())
            if batch is not None and load and size + batch.size > GATHER_BYTES:
                break
            broker.ready.popleft()
            if batch is None or queue.producer is None:
                self._schedule(queue)
                continue
            batch.attempts += 1  # before the slow encoding: from now on no caller gets `Unsent`
            load.append((queue, batch))
            size += batch.size
        self._flying += size
        return load

    async def _send_batches(
        self, node: NodeId, broker: _Broker, lane: Lane, load: list[tuple[TopicQueue, AppendBatch]]
    ) -> None:
        try:
            answers = await self._answers(node, lane, load)
        except KafkaError as error:  # outcome unknown, and the broker may have lost its leaderships
            answers = {queue.partition.name: _ProduceResult(error) for queue, _ in load}
            ready, broker.ready = broker.ready, deque()
            for queue in ready:
                self._schedule(queue)
        except Exception as error:  # a defect must not block these topics
            self._supervisor.log_failure(PART)
            answers = {queue.partition.name: _ProduceResult(KafkaError(repr(error))) for queue, _ in load}
        broker.free.append(lane)
        self._flying -= sum(batch.size for _, batch in load)
        for queue, batch in load:
            self._take(queue, batch, answers.get(queue.partition.name) or _ProduceResult(KafkaError("not answered")))
        for other in [each for each, waiting in self._brokers.items() if waiting.ready]:
            self._dispatch_soon(other, self._brokers[other])

    async def _answers(
        self, node: NodeId, lane: Lane, load: list[tuple[TopicQueue, AppendBatch]]
    ) -> dict[str, "_ProduceResult"]:
        topics: Any = []
        for queue, batch in load:
            if not batch.data:
                await make(queue, batch, self._options.max_batch_bytes, self._clock.wall())
            topics.append((queue.partition.name, [(0, batch.data)]))
        request = ProduceRequest(None, _ALL_IN_SYNC, int(self._options.request_timeout * 900), topics)
        response = await self._connection.send(node, request, lane)
        return {
            name: _ProduceResult(error_of(code), offset, Milliseconds(time))
            for name, [(_, code, offset, time, *_)] in response.topics
        }

    def _take(self, queue: TopicQueue, batch: AppendBatch, answer: "_ProduceResult") -> None:
        pause = 0.0
        if queue.batch is not batch:  # the topic was deleted
            self._schedule(queue)
            return
        if answer.error is None and answer.offset >= 0:
            first = Offset(answer.offset + queue.partition.first)
            self._too_few_until = 0.0
            queue.settle()
            fragments = [each for request in batch.requests for each in request.fragments]
            data_bytes = sum(request.data_bytes for request in batch.requests)
            time = answer.time if answer.time >= 0 else batch.time  # no broker time: during a load, or weaker settings
            self._on_stored(queue.partition, Appended(first, batch.count, time), fragments, data_bytes)
            batch.on_stored(first, time)
        elif batch.is_awaited and self._may_pass(queue, batch, answer.error):
            pause = _PAUSE
        else:
            logger.warning("publish.given_up", name=queue.partition.name, messages=batch.count, why=repr(answer.error))
            for each in batch.requests:
                answer_future(each.done, LogUnavailable())
            queue.give_up()
        self._schedule(queue, pause)

    def _may_pass(self, queue: TopicQueue, batch: AppendBatch, error: KafkaError | None) -> bool:
        if isinstance(error, _TOO_FEW_IN_SYNC):
            self._too_few_until = self._loop.time() + _TOO_FEW_SECONDS
        if isinstance(error, _LOST_SEQUENCE) and batch.attempts == 1:  # certainly not stored
            queue.renew()
            batch.data, batch.attempts = b"", 0
            return True
        if error is None or not (error.retriable or type(error) in TRANSIENT_ERRORS):
            return False
        if error.invalid_metadata:
            self._connection.forget_leader(queue.partition)
        return True

    def _schedule_expiry(self) -> None:
        if self._looking is None:
            self._looking = self._loop.call_later(_EXPIRY_CHECK_SECONDS, self._expire_requests)

    def _expire_requests(self) -> None:
        self._looking = None
        now = self._loop.time() if self._connection.reachable else float("inf")
        for queue in list(self._busy):
            queue.expire(now)
        if self._busy:
            self._schedule_expiry()

    async def _ask_identity(self) -> Producer:
        def answer(response: Any) -> Producer:
            check(response.error_code)
            return Producer(response.producer_id, response.producer_epoch)

        request = InitProducerIdRequest(None, 0)
        return await await_refusable(self._connection.ask_any(request, answer, until=self._connection.deadline()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._supervisor.task(PART, work, self._end, may_end=True)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        """Fail all calls and refuse new ones, after a defect: the state of the topics is unknown."""
        self._closing = True
        for queue in list(self._queues.values()):
            queue.fail(LogUnavailable())
            self._mark_idle(queue)
        self._idle.set()


class _ProduceResult(NamedTuple):
    error: KafkaError | None
    offset: int = -1
    time: Milliseconds = Milliseconds(-1)
