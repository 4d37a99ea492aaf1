"""Kafka as others use it: topics and messages made without any code of the engine's."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from ams.core.names import Offset, new_topic_id
from ams.core.supervisor import Supervisor
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import FIRST, Partition, partition_of
from ams.storage.log.kafka.reader import Reader
from tests.support.parts import kafka_servers

BIG = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(17 * 2**20)}


@contextlib.asynccontextmanager
async def administration() -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_servers())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def make(*, first: Offset = FIRST) -> Partition:
    """Make a topic as ours are and return where it is."""
    partition = partition_of(f"raw-{uuid.uuid4().hex[:8]}", new_topic_id(), "project.topic", first)
    async with administration() as admin:
        while (await admin.describe_cluster())["controller_id"] < 0:  # brokers that have just started elect one
            await asyncio.sleep(0.05)
        await admin.create_topics([NewTopic(partition.name, 1, 1, topic_configs=BIG)])
    return partition


async def delete(partition: Partition) -> None:
    async with administration() as admin:
        await admin.delete_topics([partition.name])


async def delete_before(partition: Partition, offset: int) -> None:
    """Take messages away as retention does, by the broker's offsets."""
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
    """Store values, in their order; the last is there when this returns."""
    async with producer(**settings) as made:
        for value in values[:-1]:
            await made.send(partition.name, value)
        await made.send_and_wait(partition.name, values[-1])


@contextlib.asynccontextmanager
async def opened(**changes: Any) -> AsyncIterator[tuple[Connection, Reader]]:
    """Open a connection and a reader, as one node of a service has them."""
    given = KafkaOptions(servers=kafka_servers(), **({"replication": 1, "min_isr": 1} | changes))
    connection = await Connection.open(given)
    reader = Reader(connection, given, Supervisor())
    try:
        yield connection, reader
    finally:
        await reader.close()
        await connection.close()
