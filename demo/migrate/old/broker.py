"""Records in Kafka as the reference writes and reads them: partition 0 of `PROJECT_UUID.TOPIC`, one after the other."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

GATHER_SECONDS = 0.3
LONGEST_SECONDS = 300.0
_FETCH_BYTES = 8 << 20


class Range(NamedTuple):
    min: int
    max: int


class Broker:
    """One producer, and one reader for each topic, for which all pulls of the topic wait."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", max_request_size=2_000_000)
        self._ranges = AIOKafkaConsumer(bootstrap_servers=servers)
        self._readers: dict[str, AIOKafkaConsumer] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        await self._producer.start()
        await self._ranges.start()

    async def range(self, topic: str) -> Range:
        place = TopicPartition(topic, 0)
        first = await self._ranges.beginning_offsets([place])
        end = await self._ranges.end_offsets([place])
        return Range(first[place], end[place])

    async def publish(self, topic: str, message: Mapping[str, Any]) -> str:
        """Store a message; return the id that the publisher is told: the end there was before."""
        identity = str((await self.range(topic)).max)
        await self._producer.send_and_wait(topic, record(identity, message), partition=0)
        return identity

    async def read(self, topic: str, offset: int, most: int, *, wait: bool) -> list[bytes]:
        """Return records from an offset on, as many as there are soon, or with `wait` when as many are there."""
        async with self._locks[topic]:
            if (await self.range(topic)).max <= offset:
                return []
            reader, place = await self._reader(topic), TopicPartition(topic, 0)
            reader.seek(place, offset)
            found: list[bytes] = []
            until = time.monotonic() + (LONGEST_SECONDS if wait else GATHER_SECONDS)
            while len(found) < most and time.monotonic() < until:
                got = await reader.getmany(place, timeout_ms=100, max_records=most - len(found))
                found += [each.value or b"" for records in got.values() for each in records]
                if found and not got and not wait:
                    break
                if not wait and offset + len(found) >= (await self.range(topic)).max:
                    break
            return found

    async def _reader(self, topic: str) -> AIOKafkaConsumer:
        if topic not in self._readers:
            reader = AIOKafkaConsumer(
                bootstrap_servers=self._servers, enable_auto_commit=False, auto_offset_reset="earliest",
                max_partition_fetch_bytes=_FETCH_BYTES, fetch_max_wait_ms=50,
            )  # fmt: skip
            await reader.start()
            reader.assign([TopicPartition(topic, 0)])
            self._readers[topic] = reader
        return self._readers[topic]


def record(identity: str, message: Mapping[str, Any]) -> bytes:
    """Return a record; nothing is in it when an attribute has what breaks JSON that is put together by hand."""
    try:
        attributes = joined(message.get("attributes"))
    except ValueError:
        return b""
    said = {
        "messageId": identity, **attributes, "data": message.get("data") or "",
        "publishTime": publish_time(time.time_ns()),
    }  # fmt: skip
    return json.dumps(said, indent=3, ensure_ascii=False).encode()


def joined(attributes: Mapping[str, str] | None) -> Mapping[str, Any]:
    """Return the field `attributes` as JSON put together by hand says it, twice in its way; raises `ValueError`."""
    pairs = ",".join(f'"{key}":"{value}"' for key, value in (attributes or {}).items())
    found = json.loads(f"{{{pairs}}}")
    return {"attributes": found} if found else {}


def publish_time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    digits = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}{digits}Z"
