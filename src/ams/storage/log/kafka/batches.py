"""Produce batches: whole requests to one topic, sent together.

The broker stores a batch wholly or not at all, with consecutive offsets. A batch has a producer id and a sequence
number, so that a retry is stored once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable
from ams.core.messages import Fragment
from ams.core.names import Offset
from ams.storage.log.base import Appended
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.records import Header

GATHER_BYTES = 512 * 1024  # limit for further requests in a batch: keeps reads of a few messages cheap
LAST_EPOCH = 2**15 - 1
LAST_SEQUENCE = 2**31 - 1
_MAX_BATCH_RECORDS = 2**21  # more than fit into a batch
_RECORD_BYTES = 40  # upper bound for a record's overhead
_HEADER_BYTES = 10
_RECORDS_PER_TURN = 500  # records encoded in one turn of the event loop
Record = tuple[bytes, list[Header]]  # value and headers


class Unsent(LogUnavailable):
    """An append was cancelled before it was sent: it is not stored, and never will be."""


class Producer(NamedTuple):
    """Kafka's producer id and epoch. A higher epoch fences off batches of lower ones."""

    id: int
    epoch: int


class AppendRequest:
    """One append: stored wholly in one batch, or not at all."""

    __slots__ = ("data_bytes", "done", "fragments", "records", "size", "times", "until")

    def __init__(
        self,
        records: list[Record],
        fragments: Sequence[Fragment],
        data_bytes: int,
        until: float,
        times: Sequence[Milliseconds] | None = None,
    ) -> None:
        """`until` is the loop time at which the caller gives up; `times` are only for loading."""
        self.records, self.times, self.fragments = records, times, fragments
        self.data_bytes, self.until = data_bytes, until
        self.size = upper_size(records)
        self.done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """Fail the call, unless it was cancelled."""
        if not self.done.done():
            self.done.set_exception(error)

    def expire(self, now: float, error: type[Exception]) -> None:
        """Fail the call if its time is over."""
        if self.until <= now:
            self.fail(error())


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
            if not each.done.done():
                each.done.set_result(Appended(first, count, time))
            first = Offset(first + count)


class TopicQueue:
    """The requests of one topic; at most one batch is in flight. Starts without a producer."""

    __slots__ = ("batch", "partition", "producer", "queued", "quiet", "sequence", "waiting", "worn")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.waiting: deque[AppendRequest] = deque()
        self.batch: AppendBatch | None = None
        self.queued = False  # whether it has pending requests
        self.quiet: asyncio.Future[None] | None = None  # completes when no request is pending
        self.producer: Producer | None = None
        self.worn = -1  # id of the producer whose epochs are used up
        self.sequence = 0

    def fail(self, error: Exception) -> None:
        """Fail all calls. If the brokers are away, requests that were not sent get `Unsent`."""
        unsent = Unsent() if isinstance(error, LogUnavailable) else error
        batch, self.batch = self.batch, None
        for each in batch.requests if batch else ():
            each.fail(error if batch and batch.attempts else unsent)
        if batch and batch.attempts:
            self.renew()
        while self.waiting:
            self.waiting.popleft().fail(unsent)

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
