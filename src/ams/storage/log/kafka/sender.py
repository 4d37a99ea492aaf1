"""The sender: takes requests of all topics to their leaders, each stored once, whole, in the order of its topic.

One batch of a topic is on its way at a time; what comes meanwhile is gathered into the next one. Batches with the same
leader share a request when they are ready together. A batch whose fate is not known is sent again as it is, with its
sequence number; given up, it is shut out by the next one's epoch
(`docs/decisions/0009-requests-of-our-own-to-kafka.md`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from aiokafka import errors
from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import AmsError, LogUnavailable, TooLarge, TopicGone
from ams.core.messages import Fragment
from ams.core.names import Offset, TopicId
from ams.core.supervisor import Supervisor
from ams.storage.log.base import Appended
from ams.storage.log.kafka.administration import refusable
from ams.storage.log.kafka.batches import GATHER_BYTES, Batch, Producer, Record, Request, TopicQueue, Unsent, make
from ams.storage.log.kafka.connection import PASSING, Connection, Lane, NodeId, check, error_of
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition

logger = structlog.get_logger("ams.log")
PART = "writing of the log"
LANES = tuple(Lane(f"publish {number}") for number in range(4))
FLYING_BYTES = 64 * 2**20  # bytes on their way at once, to all brokers
BATCH_OVERHEAD = 1024  # bytes of a batch beside its records, and more
_ALL = -1  # acknowledged by all brokers in sync
_PAUSE = 0.05  # seconds before a batch is sent again
_LOOK_EVERY = 0.25  # seconds between looks at what waited too long
_TOO_FEW = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)
_TOO_FEW_SECONDS = 15.0  # how long too few brokers count as in sync while nothing is published
_LOST_SEQUENCE = (errors.OutOfOrderSequenceNumber, errors.UnknownProducerId, errors.InvalidProducerEpoch)
Stored = Callable[[Partition, Appended, Sequence[Fragment], int], None]  # where, fragments and data bytes


@dataclass(slots=True)
class _Broker:
    """Queues that wait for a broker, and connections to it that are free."""

    ready: deque[TopicQueue] = field(default_factory=deque)
    free: list[Lane] = field(default_factory=lambda: list(LANES))
    called: bool = False


class Sender:
    """Sends requests; made by `KafkaLog`. Used from one event loop."""

    def __init__(self, connection: Connection, options: KafkaOptions, stored: Stored, supervisor: Supervisor) -> None:
        """`stored` is called before those who wait are."""
        self._supervisor, self._connection, self._options, self._stored = supervisor, connection, options, stored
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicId, TopicQueue] = {}
        self._brokers: dict[NodeId, _Broker] = {}
        self._busy: set[TopicQueue] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer: Producer | None = None
        self._identifying: asyncio.Task[Producer] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._flying = 0
        self._too_few_until = 0.0
        self._closing = False

    def submit(
        self,
        partition: Partition,
        records: list[Record],
        fragments: Sequence[Fragment],
        data_bytes: int,
        times: Sequence[Milliseconds] | None = None,
        *,
        until: float,
    ) -> "asyncio.Future[Appended]":
        """Queue a request behind those of its topic, which waits until loop time `until`; raises `TooLarge`.

        `times` are those of messages that are loaded; the answer's time is -1 then, unless the broker gave its own. The
        future raises `Unsent` when it was given up before it was sent, `LogUnavailable` when it may be stored, or
        `TopicGone`.
        """
        if self._closing or not self._connection.reachable or until <= self._loop.time():
            raise Unsent
        request = Request(records, fragments, data_bytes, until, times)
        if request.size + BATCH_OVERHEAD > self._options.max_batch_bytes:
            raise TooLarge
        queue = self._queues.get(partition.topic)
        if queue is None:
            queue = self._queues[partition.topic] = TopicQueue(partition)
        queue.waiting.append(request)
        if not queue.queued:
            self._go_on(queue)
        return request.done

    async def identify(self) -> Producer:
        """Return the identity batches are sent with; ask for one when there is none yet. Raises `LogUnavailable`."""
        if self._producer is not None:
            return self._producer
        if self._identifying is None or self._identifying.done():
            self._identifying = asyncio.create_task(self._ask_identity())
        self._producer = await asyncio.shield(self._identifying)
        return self._producer

    @property
    def refusal(self) -> str | None:
        """Why brokers refuse what is sent to them, so that it waits in vain; None while they do not."""
        return "too few brokers are in sync" if self._loop.time() < self._too_few_until else None

    def forget(self, topic: TopicId) -> None:
        """Fail all requests that wait for a topic that is gone.

        Should it be there all the same, as when a broker had not heard of it yet, it goes on with another producer:
        sequence numbers that begin again would be taken for repeats.
        """
        queue = self._queues.pop(topic, None)
        if queue is not None:
            queue.fail(TopicGone())
            self._producer = None

    async def quiet(self, topic: TopicId) -> None:
        """Wait until nothing of a topic is on its way."""
        while (queue := self._queues.get(topic)) is not None and queue.queued:
            if queue.quiet is None:
                queue.quiet = self._loop.create_future()
            await asyncio.wait((queue.quiet,))

    async def close(self) -> None:
        """Send the accepted requests that callers still wait for, and end."""
        self._closing = True
        await self._idle.wait()
        for task in [*self._tasks, *([self._identifying] if self._identifying else [])]:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()

    def _go_on(self, queue: TopicQueue, pause: float = 0) -> None:
        """See that a queue with work is on its way, and one without is not looked at."""
        queue.queued = queue.batch is not None or bool(queue.waiting)
        if not queue.queued:
            self._rest(queue)
            return
        self._busy.add(queue)
        self._idle.clear()
        self._look_later()
        node = None if pause or queue.producer is None else self._connection.leaders.known(queue.partition.name)
        if node is None:
            self._run(self._find_leader(queue, pause))
        else:
            self._enqueue(queue, node)

    def _rest(self, queue: TopicQueue) -> None:
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
                    self._producer = None  # the queue used up its epochs
                queue.producer = await self.identify()
            node = await refusable(self._connection.leader(queue.partition, until=until))
        except AmsError as error:
            queue.fail(error)
            self._go_on(queue)
        except Exception:  # a defect must not hold up this topic for good
            self._supervisor.survive(PART)
            queue.fail(LogUnavailable())
            self._go_on(queue)
        else:
            self._enqueue(queue, node)

    def _enqueue(self, queue: TopicQueue, node: NodeId) -> None:
        broker = self._brokers.setdefault(node, _Broker())
        broker.ready.append(queue)
        self._call(node, broker)

    def _call(self, node: NodeId, broker: _Broker) -> None:
        """Send at the end of this turn of the event loop, together with all that it brings."""
        if not broker.called:
            broker.called = True
            self._loop.call_soon(self._dispatch, node, broker)

    def _dispatch(self, node: NodeId, broker: _Broker) -> None:
        broker.called = False
        try:
            while broker.ready and broker.free and self._flying < FLYING_BYTES:
                load = self._load(broker)
                if load:
                    self._run(self._carry(node, broker, broker.free.pop(), load))
        except Exception as error:
            self._supervisor.failed(PART, error, self._end)

    def _load(self, broker: _Broker) -> list[tuple[TopicQueue, Batch]]:
        """Take batches for one request: the first, of any size, and more while they are small."""
        load: list[tuple[TopicQueue, Batch]] = []
        size = 0
        while broker.ready:
            queue = broker.ready[0]
            batch = queue.next_batch(self._options.max_batch_bytes - BATCH_OVERHEAD, self._loop.time())
            if batch is not None and load and size + batch.size > GATHER_BYTES:
                break
            broker.ready.popleft()
            if batch is None or queue.producer is None:
                self._go_on(queue)
                continue
            batch.attempts += 1  # before it is made, which takes its time: from now on no caller gets `Unsent`
            load.append((queue, batch))
            size += batch.size
        self._flying += size
        return load

    async def _carry(self, node: NodeId, broker: _Broker, lane: Lane, load: list[tuple[TopicQueue, Batch]]) -> None:
        try:
            answers = await self._answers(node, lane, load)
        except KafkaError as error:  # it is not known what the broker did, nor whether it still leads others
            answers = {queue.partition.name: _ProduceResult(error) for queue, _ in load}
            ready, broker.ready = broker.ready, deque()
            for queue in ready:
                self._go_on(queue)
        except Exception as error:  # a defect must not hold up these topics for good
            self._supervisor.survive(PART)
            answers = {queue.partition.name: _ProduceResult(KafkaError(repr(error))) for queue, _ in load}
        broker.free.append(lane)
        self._flying -= sum(batch.size for _, batch in load)
        for queue, batch in load:
            self._take(queue, batch, answers.get(queue.partition.name) or _ProduceResult(KafkaError("not answered")))
        for other in [each for each, waiting in self._brokers.items() if waiting.ready]:
            self._call(other, self._brokers[other])

    async def _answers(
        self, node: NodeId, lane: Lane, load: list[tuple[TopicQueue, Batch]]
    ) -> dict[str, "_ProduceResult"]:
        topics: Any = []
        for queue, batch in load:
            if not batch.data:
                await make(queue, batch, self._options.max_batch_bytes, self._clock.wall())
            topics.append((queue.partition.name, [(0, batch.data)]))
        request = ProduceRequest(None, _ALL, int(self._options.request_timeout * 900), topics)
        response = await self._connection.send(node, request, lane)
        return {
            name: _ProduceResult(error_of(code), offset, Milliseconds(time))
            for name, [(_, code, offset, time, *_)] in response.topics
        }

    def _take(self, queue: TopicQueue, batch: Batch, answer: "_ProduceResult") -> None:
        pause = 0.0
        if queue.batch is not batch:  # the topic is gone
            self._go_on(queue)
            return
        if answer.error is None and answer.offset >= 0:
            self._is_stored(queue, batch, answer)
        elif batch.is_awaited and self._may_pass(queue, batch, answer.error):
            pause = _PAUSE
        else:
            logger.warning("publish.given_up", name=queue.partition.name, messages=batch.count, why=repr(answer.error))
            for each in batch.requests:
                each.fail(LogUnavailable())
            queue.give_up()
        self._go_on(queue, pause)

    def _is_stored(self, queue: TopicQueue, batch: Batch, answer: "_ProduceResult") -> None:
        first = Offset(answer.offset + queue.partition.first)
        self._too_few_until = 0.0
        queue.settle()
        fragments = [each for request in batch.requests for each in request.fragments]
        data_bytes = sum(request.data_bytes for request in batch.requests)
        time = answer.time if answer.time >= 0 else batch.time  # a topic loaded just now, or with weaker settings
        self._stored(queue.partition, Appended(first, batch.count, time), fragments, data_bytes)
        batch.stored(first, time)

    def _may_pass(self, queue: TopicQueue, batch: Batch, error: KafkaError | None) -> bool:
        if isinstance(error, _TOO_FEW):
            self._too_few_until = self._loop.time() + _TOO_FEW_SECONDS
        if isinstance(error, _LOST_SEQUENCE) and batch.attempts == 1:  # surely not stored, neither now nor before
            queue.renew()
            batch.data, batch.attempts = b"", 0
            return True
        if error is None or not (error.retriable or type(error) in PASSING):
            return False
        if error.invalid_metadata:
            self._connection.leaders.forget(queue.partition.name)
        return True

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = self._loop.call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        """Tell those who waited too long, or all of them while no broker answers."""
        self._looking = None
        now = self._loop.time() if self._connection.reachable else float("inf")
        for queue in list(self._busy):
            queue.expire(now)
        if self._busy:
            self._look_later()

    async def _ask_identity(self) -> Producer:
        def answer(response: Any) -> Producer:
            check(response.error_code)
            return Producer(response.producer_id, response.producer_epoch)

        request = InitProducerIdRequest(None, 0)
        return await refusable(self._connection.ask_any(request, answer, until=self._connection.deadline()))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._supervisor.task(PART, work, self._end, may_end=True)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        """Fail all that waits, and take nothing any more: topics whose state is not known cannot go on."""
        self._closing = True
        for queue in list(self._queues.values()):
            queue.fail(LogUnavailable())
            self._rest(queue)
        self._idle.set()


class _ProduceResult(NamedTuple):
    error: KafkaError | None
    offset: int = -1
    time: Milliseconds = Milliseconds(-1)
