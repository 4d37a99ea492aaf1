"""Direct access to Kafka: topics and messages made and read without the engine's log."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from ams.core.names import Offset, new_topic_id
from ams.core.supervisor import Supervisor
from ams.storage.log.base import Bounds
from ams.storage.log.kafka.administration import alter, create_topics, describe, wait_for_leaders
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.fetch import SCAN, fetch_part
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import FIRST, Partition, partition_of
from ams.storage.log.kafka.reader import KafkaReader
from ams.storage.log.kafka.records import batches
from tests.support.parts import kafka_servers


async def raw_batches(servers: str, partition: Partition, bounds: Bounds) -> list[tuple[int, list[bytes]]]:
    found = []
    async with open_connection(servers) as connection:
        at = bounds.oldest
        while at < bounds.end:
            until = asyncio.get_running_loop().time() + 8
            for batch in batches((await fetch_part(connection, partition, at, 2**20, SCAN, until=until)).data):
                found.append((batch.base_offset, [record.value for record in batch]))
                at = batch.next_offset + partition.first
    return found


@contextlib.asynccontextmanager
async def open_connection(servers: str) -> AsyncIterator[KafkaConnection]:
    connection = await KafkaConnection.open(KafkaOptions(servers=servers, prefix="none", replication=1, min_isr=1))
    try:
        yield connection
    finally:
        await connection.close()


async def make_topic(servers: str, name: str, **configs: str) -> None:
    """Create a topic directly; in names of settings an underscore stands for a dot."""
    async with open_connection(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        given = {name.replace("_", "."): value for name, value in configs.items()}
        assert await create_topics(connection, [(name, given)], 1, until) == [None]
        for node in connection.links.nodes():
            await wait_for_leaders(connection, node, [name])


async def change_topic(servers: str, partition: Partition, **configs: str | None) -> None:
    """Change settings of a topic directly; the broker applies them when this returns."""
    changes = {name.replace("_", "."): value for name, value in configs.items()}
    async with open_connection(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        await alter(connection, partition, changes, until)
        while True:
            found = (await describe(connection, [partition.name], changes, until))[partition.name]
            if all(value in (None, found[name]) for name, value in changes.items()):
                return
            await asyncio.sleep(0.02)


async def settings(servers: str, partition: Partition, *names: str) -> dict[str, str]:
    async with open_connection(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        return dict((await describe(connection, [partition.name], names, until))[partition.name])


@contextlib.asynccontextmanager
async def administration() -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_servers())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def make(*, first: Offset = FIRST) -> Partition:
    partition = partition_of(f"raw-{uuid.uuid4().hex[:8]}", new_topic_id(), "project.topic", first)
    configs = {"message_timestamp_type": "LogAppendTime", "max_message_bytes": str(17 * 2**20)}
    await make_topic(kafka_servers(), partition.name, **configs)
    return partition


async def delete(partition: Partition) -> None:
    async with administration() as admin:
        await admin.delete_topics([partition.name])


async def delete_before(partition: Partition, offset: int) -> None:
    """Delete messages as retention does, up to the broker's offset."""
    async with administration() as admin:
        await admin.delete_records({TopicPartition(partition.name, 0): RecordsToDelete(before_offset=offset)})


@contextlib.asynccontextmanager
async def producer(**settings: object) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=kafka_servers(), max_request_size=17 * 2**20, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def produce(partition: Partition, values: Sequence[bytes | None], **settings: object) -> None:
    """Store values in order; returns when the last is stored."""
    async with producer(**settings) as made:
        for value in values[:-1]:
            await made.send(partition.name, value)
        await made.send_and_wait(partition.name, values[-1])


@contextlib.asynccontextmanager
async def open_reader(**changes: Any) -> AsyncIterator[tuple[KafkaConnection, KafkaReader]]:
    given = KafkaOptions(servers=kafka_servers(), **({"replication": 1, "min_isr": 1} | changes))
    connection = await KafkaConnection.open(given)
    reader = KafkaReader(connection, given, Supervisor())
    try:
        yield connection, reader
    finally:
        await reader.close()
        await connection.close()
