"""Loads messages with their offsets and publish times from another log into an unused topic.

During a load the topic has CreateTime timestamps, a weaker setting than promised. So it refuses other messages until a
load has ended. Missing offsets are filled with records that readers skip.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterator, Sequence

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, LogUnavailable
from ams.core.messages import Stored, parse
from ams.core.names import Offset
from ams.core.runs import Columns
from ams.storage.log.base import check_load
from ams.storage.log.kafka.administration import alter, delete_records, describe
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.reader import KafkaReader
from ams.storage.log.kafka.records import HOLE, encode
from ams.storage.log.kafka.sender import AppendRequest, Record, Sender, upper_size
from ams.storage.log.kafka.topics import APPEND_TIME, CREATE_TIME, TIMES

_PAUSE = 0.05
_SETTLE_SECONDS = 0.2  # time for a broker to apply a changed setting
_BYTES, _RECORDS = 2**20, 2000  # limits of a request; one message may exceed the bytes
_FILLER: Record = (b"", [(HOLE, b"")])


class Loader:
    """Loads topics."""

    def __init__(self, connection: KafkaConnection, options: KafkaOptions, reader: KafkaReader, sender: Sender) -> None:
        self._connection, self._options, self._reader, self._sender = connection, options, reader, sender

    async def load(
        self, partition: Partition, batches: AsyncIterable[Sequence[Stored]], loaded: Callable[[Sequence[Stored]], None]
    ) -> None:
        """Store messages with their offsets and times (`Log.load`); `loaded` is called with each stored batch."""
        oldest, end = await self._reader.bounds(partition)
        time = await self._reader.last_time(partition) or Milliseconds(0)
        is_empty = oldest == end
        await self._set_times(partition, CREATE_TIME)
        try:
            async for batch in batches:
                check_load(Columns.of(batch), end, time)
                for first, records, times in _parts(batch, end, time):
                    await self._send(partition, first, records, times)
                if not batch:
                    continue
                loaded(batch)
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
        for _ in range(int(self._options.patience / _PAUSE)):
            if await is_set():
                break
            await asyncio.sleep(_PAUSE)
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _send(
        self, partition: Partition, first: Offset, records: list[Record], times: Sequence[Milliseconds]
    ) -> None:
        request = AppendRequest(records, (), 0, self._connection.deadline(), times)
        appended = await self._sender.submit(partition, request)
        if appended.first != first:
            raise InvalidInput(f"another producer publishes to {partition.name}: offset {first} is taken")
        if appended.time >= 0:
            raise LogUnavailable(f"a broker gave messages of {partition.name} other times: drop it, and load it again")


def _parts(
    batch: Sequence[Stored], end: Offset, time: Milliseconds
) -> Iterator[tuple[Offset, list[Record], list[Milliseconds]]]:
    records: list[Record] = []
    times: list[Milliseconds] = []
    first, size = end, 0
    for offset, record, at in _records(batch, end, time):
        bytes_ = upper_size([record])
        if len(records) >= _RECORDS or (size and size + bytes_ > _BYTES):
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
