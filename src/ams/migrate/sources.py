"""Reads the reference: documents in MongoDB, messages in Kafka.

Collections are read whole: thousands of small documents, without an index. Messages are in partition 0 of
`PROJECT_UUID.TOPIC`; offsets are their ids. Long topics are read in child processes, in parallel with storing.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from array import array
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import lru_cache, partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from bson import decode_file_iter
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON

from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import Unavailable
from ams.core.messages import Stored, message, quoted_base64
from ams.core.names import Offset
from ams.core.runs import Columns
from ams.migrate.conversion import NO_MESSAGES, Document, Documents, KafkaBounds, kept_for, milliseconds
from ams.storage.export_format import Message

Batches = AsyncGenerator[Sequence[Stored], None]
MONGODB_SECONDS = 10  # timeout of the server, unless its URI has another
# Dates as milliseconds: "never" is the year 1, which many calendars cannot hold.
_CODEC: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
_PROCESSES = 2
_PARALLEL_READ_MESSAGES = 10_000  # shorter topics are read in this process
PART_MESSAGES = 20_000  # per part; a process reads one part at a time
PART_BYTES = 32 * 2**20  # a part with more bytes ends early
POLL_LIMIT = 2_000  # records per poll
QUIET_SECONDS = 30.0  # without a record, until reading fails
FETCH_BYTES = 16 * 2**20
FETCH_WAIT_MS = 10  # wait at the end of a topic; the consumer fetches nothing else meanwhile
_decode = msgspec.json.Decoder().decode


class DecodedPart(NamedTuple):
    """Messages that a process returns."""

    messages: Columns
    following: int  # offset after it


class Readers:
    """Pool of processes that call `read(START, END)`, a picklable function, part by part."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"), _begin)

    async def batches(self, read: Callable[[int, int], DecodedPart], start: int, end: int, earliest: int) -> Batches:
        """Yield the messages from `start` up to `end`, in order, none with a time before `earliest`."""
        loop = asyncio.get_running_loop()
        bounds = deque((first, min(first + PART_MESSAGES, end)) for first in range(start, end, PART_MESSAGES))
        under_way: deque[tuple[int, asyncio.Future[DecodedPart]]] = deque()

        def begin(first: int, last: int) -> asyncio.Future[DecodedPart]:
            return loop.run_in_executor(self._pool, read, first, last)

        try:
            while bounds or under_way:
                while bounds and len(under_way) <= _PROCESSES:
                    first, last = bounds.popleft()
                    under_way.append((last, begin(first, last)))
                last, future = under_way.popleft()
                part = await future
                while True:
                    batch = part.messages
                    for number, time in enumerate(batch.times):  # times of the previous part may be later
                        if time >= earliest:
                            break
                        batch.times[number] = earliest
                    if batch:
                        earliest = batch.times[-1]
                        yield batch
                    if part.following >= last:
                        break
                    part = await begin(part.following, last)
        except BrokenProcessPool:
            raise Unavailable("a process that reads messages ended") from None
        finally:
            for _, future in under_way:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    parent = multiprocessing.parent_process()

    def follow() -> None:  # end with the parent, however it ends
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


async def part_of(batches: Batches, end: int) -> DecodedPart:
    """Return the first part of the messages up to `end`."""
    messages, size = Columns(array("q"), array("q"), []), 0
    async with aclosing(batches):
        async for batch in batches:
            messages.extend(Columns.of(batch))
            size += sum(len(each.fragment) for each in batch)
            if size >= PART_BYTES:
                return DecodedPart(messages, messages.offsets[-1] + 1)
    return DecodedPart(messages, end)


class Kafka(contextlib.AbstractAsyncContextManager["Kafka"]):
    """The reference's brokers, read only: no consumer group, no offset commits."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._consumers: list[AIOKafkaConsumer] = []
        self._idle: list[AIOKafkaConsumer] = []
        self._readers: Readers | None = None
        self._bounds: dict[str, KafkaBounds] = {}
        self.other_partitions: dict[str, int] = {}  # messages in other partitions, which nobody can read, by topic

    async def __aexit__(self, *_: object) -> None:
        if self._readers:
            self._readers.close()
        await self.stop()

    async def stop(self) -> None:
        """Close the connections."""
        for each in self._consumers:
            with contextlib.suppress(KafkaError):
                await each.stop()

    def bounds(self, topic: str) -> KafkaBounds:
        """Return a topic's bounds; a topic without messages does not exist."""
        return self._bounds.get(topic, NO_MESSAGES)

    async def look(self) -> None:
        """Refresh topics and bounds. Raises `Unavailable`."""
        async with self._reader() as consumer:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await admin.start()
            try:
                described = [each for each in await admin.describe_topics() if "." in each["topic"]]
                topics = [each["topic"] for each in described]
                ages = await _ages(admin, topics)
            finally:
                await admin.close()
            places = [TopicPartition(it["topic"], each["partition"]) for it in described for each in it["partitions"]]
            # One request for all: the consumer would look up each topic in turn, with 0.1 s pauses.
            await consumer._client.set_topics(topics)
            firsts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
            now, read = SystemClock().wall(), [each for each in places if each.partition == 0]
            young = await consumer.offsets_for_times({each: now - kept_for(ages.get(each.topic)) for each in read})
        self._bounds, self.other_partitions = {}, {}
        for each in places:
            first, end, since = firsts[each], ends[each], young.get(each)
            if each.partition == 0:
                young_offset = end if since is None else since.offset
                self._bounds[each.topic] = KafkaBounds(first, end, ages.get(each.topic), young_offset)
            elif end > first:
                self.other_partitions[each.topic] = self.other_partitions.get(each.topic, 0) + end - first

    def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> Batches:
        """Yield a topic's messages from `start` up to `end`, in order; unreadable ones are left out.

        No publish time is before `earliest`. Raises `Unavailable`.
        """
        if end - start <= _PARALLEL_READ_MESSAGES:
            return self.read(topic, start, end, earliest)
        self._readers = self._readers or Readers()
        return self._readers.batches(partial(read_part, self._servers, topic), start, end, earliest)

    async def read(self, topic: str, start: int, end: int, earliest: int = 0) -> Batches:
        """Like `batches`, in this process."""
        place = TopicPartition(topic, 0)
        async with self._reader() as consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            while start < end:
                try:
                    found = await consumer.getmany(place, timeout_ms=int(QUIET_SECONDS * 1000), max_records=POLL_LIMIT)
                except KafkaError as error:  # it went away, or the next messages expired
                    raise Unavailable(f"Kafka cannot be read on: {error}") from None
                records: Sequence[Any] = found.get(place, [])
                if not records:
                    raise Unavailable(f"Kafka gives no record of {topic} after {start}, and it ends at {end}")
                start = records[-1].offset + 1
                if start > end:
                    records = [each for each in records if each.offset < end]
                if batch := to_stored_messages(records, earliest):
                    earliest = batch[-1].time
                    yield batch

    @contextlib.asynccontextmanager
    async def _reader(self) -> AsyncIterator[AIOKafkaConsumer]:
        """Yield a consumer of its own: several topics may be read in parallel. Raises `Unavailable`."""
        try:
            if self._idle:
                consumer = self._idle.pop()
            else:
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self._servers, enable_auto_commit=False, auto_offset_reset="none",
                    max_partition_fetch_bytes=FETCH_BYTES, fetch_max_wait_ms=FETCH_WAIT_MS,
                )  # fmt: skip
                self._consumers.append(consumer)
                await consumer.start()
            try:
                yield consumer
            finally:
                self._idle.append(consumer)
        except KafkaError as error:
            raise Unavailable(f"Kafka cannot be read: {error}") from None


def read_part(servers: str, topic: str, start: int, end: int) -> DecodedPart:
    """Read a part of a topic; runs in a child process."""
    running, kafka = _of_process(servers)
    return running.run(part_of(kafka.read(topic, start, end), end))


@lru_cache(1)
def _of_process(servers: str) -> tuple[asyncio.Runner, Kafka]:
    running, kafka = asyncio.Runner(), Kafka(servers)

    def leave() -> None:
        running.run(kafka.stop())
        running.close()

    Finalize(None, leave, exitpriority=1)
    return running, kafka


async def _ages(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> Mapping[str, int]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    answers = await admin.describe_configs(asked) if asked else []
    return {
        name: int(value)
        for answer in answers
        for _, _, _, name, settings in answer.resources
        for setting, value, *_ in settings
        if setting == "retention.ms" and value is not None
    }


class Record(NamedTuple):
    """A record of Kafka."""

    offset: int
    value: bytes | None
    timestamp: int  # by the clock of the broker


class _Usual(msgspec.Struct, gc=False):
    data: msgspec.Raw = msgspec.Raw()  # raw JSON text
    attributes: dict[str, str] | None = None
    published: str = msgspec.field(name="publishTime", default="")


_usual = msgspec.json.Decoder(_Usual).decode


def to_stored_messages(records: Sequence[Record], earliest: int) -> Sequence[Stored]:
    """Convert records to messages for the log, in order; unreadable ones are left out."""
    try:
        usual = [_usual(each.value or b"") for each in records]
        fragments = [quoted_base64(bytes(each.data), each.attributes) for each in usual]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        found = []
        for record in records:
            read = message_of(record.offset, record.value, record.timestamp, earliest)
            if read is not None:
                earliest = read.time
                fragment = message(read.data, read.attributes).fragment
                found.append(Stored(Offset(read.offset), Milliseconds(earliest), fragment))
        return found
    times, second, start = array("q"), "", None
    for each, record in zip(usual, records, strict=True):
        said = each.published
        if said[:20] != second:  # many messages share a second
            second = said[:20]
            start = _moment(f"{second}000Z") if second[19:] == "." else None
        digits = said[20:23]
        if start and said[-1:] == "Z" and digits.isascii() and digits.isdigit():
            time = start + int(digits)
        else:
            time = _time(said, record.timestamp)
        if time > earliest:
            earliest = time
        times.append(earliest)
    return Columns(array("q", [each.offset for each in records]), times, fragments)


def message_of(offset: int, value: bytes | None, written: int, earliest: int) -> Message | None:
    """Return the message of a record; None if it is unreadable.

    The id in the record is ignored: it is wrong if several clients published at once. Times are cut to milliseconds and
    never decrease, although the nodes' clocks differed. `written` is the broker's time.
    """
    try:
        said = _decode(value or b"")
        if isinstance(said, str):  # JSON text within JSON, from the reference's migration tool
            said = _decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, Mapping):
        return None
    data, attributes = said.get("data", ""), _attributes(said.get("attributes"))
    if not isinstance(data, str) or attributes is None:
        return None
    time = max(_time(said.get("publishTime"), written), earliest)
    return Message(offset=offset, time=time, data=data, attributes=attributes)


def _attributes(said: Any) -> Mapping[str, str] | None:
    """Return attributes; before 2017 they were a list of keys and values."""
    if said is None:
        return {}
    if isinstance(said, list):
        try:
            said = {each["key"]: each["value"] for each in said}
        except (KeyError, TypeError):
            return None
    if not isinstance(said, dict) or not all(isinstance(each, str) for pair in said.items() for each in pair):
        return None
    return said


def _time(said: Any, otherwise: int) -> int:
    moment = _moment(said)
    return max(otherwise, 0) if moment is None else moment


def _moment(said: Any) -> int | None:
    try:
        return max(milliseconds(datetime.fromisoformat(said)), 0)
    except (ValueError, TypeError):
        return None


def read_documents(source: str, database: str) -> Documents:
    """Read AMS's collections from `mongodb://...` or a `mongodump` folder. `Unavailable` names no password."""
    return Documents(**read_collections(source, database, [each.name for each in fields(Documents)]))


def read_collections(source: str, database: str, names: Sequence[str]) -> Mapping[str, Sequence[Document]]:
    """Read collections as `read_documents` does; a dump must have the first of them."""
    if not source.startswith(("mongodb://", "mongodb+srv://")):
        return _read_dump(Path(source), database, names)

    import pymongo
    from pymongo.errors import PyMongoError

    # In pymongo an argument overrides the URI.
    is_said = "serverselectiontimeoutms=" in source.lower()
    waits: dict[str, Any] = {} if is_said else {"serverSelectionTimeoutMS": MONGODB_SECONDS * 1000}
    try:
        with pymongo.MongoClient[dict[str, Any]](source, **waits) as client:
            found = client.get_database(database, codec_options=_CODEC)
            return {name: list(found[name].find().sort("_id", 1)) for name in names}
    except (PyMongoError, ValueError) as error:  # ValueError: invalid URI
        raise Unavailable(f"MongoDB cannot be read: {type(error).__name__}") from None


def _read_dump(folder: Path, database: str, names: Sequence[str]) -> Mapping[str, Sequence[Document]]:
    place = folder / database if (folder / database).is_dir() else folder
    found: dict[str, Sequence[Document]] = {}
    for file in (place / f"{name}.bson" for name in names):
        try:
            with file.open("rb") as opened:
                found[file.stem] = sorted(decode_file_iter(opened, _CODEC), key=lambda each: str(each.get("_id", "")))
        except FileNotFoundError:
            continue
        except (InvalidBSON, OSError) as error:
            raise Unavailable(f"{file} cannot be read: {error}") from None
    if names[0] not in found:
        raise Unavailable(f"{place} holds no dump of the reference: {names[0]}.bson is missing")
    return found


@dataclass(frozen=True, slots=True)
class ReferenceSource:
    """The open reference. All methods raise `Unavailable`, which names no secret."""

    mongodb: str = field(repr=False)
    database: str
    messages: Kafka  # bounds are of the last `look`; none before the first

    async def documents(self) -> Documents:
        """Read all documents, and refresh the bounds."""
        found = await asyncio.to_thread(read_documents, self.mongodb, self.database)
        await self.messages.look()  # after the documents: so no position is past its topic's end
        return found


@contextlib.asynccontextmanager
async def old_source(mongodb: str, database: str, kafka: str) -> AsyncIterator[ReferenceSource]:
    """Open the reference at these addresses until the block ends."""
    async with Kafka(kafka) as messages:
        yield ReferenceSource(mongodb, database, messages)


OpenReference = Callable[[], contextlib.AbstractAsyncContextManager[ReferenceSource]]  # as `old_source`
