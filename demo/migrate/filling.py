"""Write a day to MongoDB and Kafka."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pymongo
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition

from demo.migrate.day import Day, Log, records

DATABASE = "argo_msg"
BATCH_BYTES = 400_000
_AT_ONCE = 8


def write_documents(day: Day, uri: str) -> None:
    """Fill the database, which is empty."""
    with pymongo.MongoClient[dict[str, Any]](uri) as client:
        for name, documents in day.collections.items():
            client[DATABASE][name].insert_many(documents)


async def write_messages(day: Day, servers: str) -> None:
    """Fill the topics; what is not kept any more is deleted as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, acks=1, max_batch_size=BATCH_BYTES, max_request_size=2 * BATCH_BYTES, linger_ms=0
    )
    await admin.start()
    await producer.start()
    logs = [each for each in day.logs if each.end]
    try:
        await admin.create_topics([_topic(each) for each in logs])
        turns, now = asyncio.Semaphore(_AT_ONCE), datetime.now(UTC)

        async def write(log: Log) -> None:
            async with turns:
                await _write(producer, log, day.seed, now)

        await asyncio.gather(*map(write, logs))
        cut = {TopicPartition(each.name, 0): RecordsToDelete(before_offset=each.first) for each in logs if each.first}
        await admin.delete_records(cut)
    finally:
        await producer.stop()
        await admin.close()


def _topic(log: Log) -> NewTopic:
    settings = {"retention.ms": str(log.retention_ms)} if log.retention_ms else {}
    return NewTopic(log.name, 2 if log.elsewhere else 1, 1, topic_configs=settings)


async def _write(producer: AIOKafkaProducer, log: Log, seed: int, now: datetime) -> None:
    batch = producer.create_batch()
    for moment, value in records(log, seed, now):
        if batch.append(key=None, value=value, timestamp=moment) is None:
            await (await producer.send_batch(batch, log.name, partition=0))
            batch = producer.create_batch()
            batch.append(key=None, value=value, timestamp=moment)
    if batch.record_count():
        await (await producer.send_batch(batch, log.name, partition=0))
    for number in range(log.elsewhere):
        await producer.send(log.name, b"%d" % number, partition=1)
