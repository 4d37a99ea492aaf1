"""Messages of the reference, copied from its Kafka into a new installation, and the same records written to a file."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import bson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from ams.cli.installation import installation
from ams.core.settings import Settings
from ams.migrate.cutting import Move, copy
from ams.migrate.records import AT_ONCE, FETCH_BYTES
from ams.migrate.sources import Place, opened
from bench.cluster import broker
from bench.report import Result, at_least
from bench.run import Bench

TOPICS = 8
DATA = "QUJDREVGR0hJ" * 50
"""600 bytes, as accounting records of sites have."""
YEAR_MS = 365 * 86_400_000
PROJECT = "8f1c0a54-0000-4000-8000-000000000001"


def migrate_copy(bench: Bench) -> Iterator[Result]:
    """Yield the one result: every record has a publish time of its own."""
    messages = bench.plan.backlog * 50 // TOPICS * TOPICS
    names = [f"{PROJECT}.topic-{number}" for number in range(TOPICS)]
    with broker(bench) as servers, bench.data_folder() as folder:
        folder.mkdir()
        asyncio.run(_fill(servers, names, messages // TOPICS))
        _dump(folder / "argo_msg", names)
        turn = iter(range(1000))
        pairs = bench.in_turn(
            f"copy {messages} messages",
            lambda: _copied(folder, servers, folder / f"data-{next(turn)}"),
            lambda: asyncio.run(_bare(servers, names, messages // TOPICS, folder / f"bare-{next(turn)}")),
        )
    ours, bare = (median(each) for each in zip(*pairs, strict=True))
    yield Result(
        "migrate-copy",
        {"messages": messages, "topics": TOPICS, "bytes": len(DATA)},
        {"messages_s": messages / ours, "bare_messages_s": messages / bare},
        median(theirs / mine for mine, theirs in pairs),
        "messages/s of a bare copy to a file",
        at_least(0.5),
    )


def _copied(folder: Path, servers: str, data: Path) -> float:
    settings = Settings.load({"data": str(data), "min_free_bytes": 0, "reserve_bytes": 0}, {}, None, print)
    place = Place(mongodb=str(folder), kafka=servers)
    move = Move(partial(opened, place), lambda: installation(settings), str(data))
    began = time.perf_counter()
    asyncio.run(copy(move, lambda *_: None))
    return time.perf_counter() - began


async def _bare(servers: str, names: list[str], count: int, file: Path) -> float:
    """Read all records by the same library, and write them to a file that is synced after each group."""
    began = time.perf_counter()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )  # fmt: skip
    await consumer.start()
    try:
        with file.open("wb") as opened_file:
            for name in names:
                async for values in _values(consumer, TopicPartition(name, 0), count):
                    opened_file.write(b"".join(values))
                    opened_file.flush()
                    os.fdatasync(opened_file.fileno())
    finally:
        await consumer.stop()
    return time.perf_counter() - began


async def _values(consumer: AIOKafkaConsumer, place: TopicPartition, count: int) -> AsyncIterator[list[bytes]]:
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    while count:
        found = await consumer.getmany(place, timeout_ms=10_000, max_records=AT_ONCE)
        values = [record.value for record in found.get(place, [])]
        count -= len(values)
        yield values


async def _fill(servers: str, names: list[str], count: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(each, 1, 1, topic_configs={"retention.ms": str(YEAR_MS)}) for each in names])
    await admin.close()
    now = int(time.time() * 1000) - count
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5, max_batch_size=1 << 19) as producer:
        for name in names:
            last = None
            for number in range(count):
                last = await producer.send(name, _record(now + number), partition=0)
            if last is not None:
                await last


def _record(moment: int) -> bytes:
    """Return a record as the reference writes them."""
    published = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment / 1000)) + f".{moment % 1000:03}123456Z"
    return (
        f'{{\n   "messageId": "1",\n   "attributes": {{\n      "site": "GR-01-AUTH"\n   }},\n   "data": "{DATA}",'
        f'\n   "publishTime": "{published}"\n}}'
    ).encode()


def _dump(folder: Path, names: list[str]) -> None:
    """Write the collections as `mongodump` does."""
    folder.mkdir()
    documents = {
        "projects": [{"_id": bson.ObjectId(), "uuid": PROJECT, "name": "BENCH"}],
        "topics": [
            {"_id": bson.ObjectId(), "project_uuid": PROJECT, "name": each.partition(".")[2], "acl": []}
            for each in names
        ],
    }
    for name, found in documents.items():
        (folder / f"{name}.bson").write_bytes(b"".join(map(bson.encode, found)))
