"""A topic read by Spark: through `format("ams")`, and the same messages from Kafka by Spark's own source."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.session import local_session
from bench import preparing
from bench.cluster import broker
from bench.processes import Failed, Service
from bench.report import Result, at_least
from bench.run import Bench
from cluster.jars import CannotFetch, connector_jars

CORES = 2
BACKLOGS = 10
"""Ordinary backlogs that are read."""
MICRO = 1e6


class Read(NamedTuple):
    """What one reading took."""

    seconds: float
    service_cpu: float
    """Processor seconds of the service meanwhile."""


def spark_read(bench: Bench) -> Iterator[Result]:
    """Yield the one result; every column of every message is read, and nothing is done with it."""
    messages = bench.plan.backlog * BACKLOGS
    with bench.service() as service, broker(bench) as servers:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "read", 1)
        preparing.fill(service, [topic], messages)
        spark = _session()
        try:
            ours = _on_ams(spark, service)
            theirs = _on_kafka(spark, servers, ours)
            _read(service, _on_ams(spark, service, endingOffsets="1000"))
            pairs = bench.in_turn(
                f"read {messages} messages from AMS, and from Kafka",
                lambda: _read(service, ours),
                lambda: _read(service, theirs),
            )
        finally:
            spark.stop()
    yield Result(
        "spark-read",
        {"messages": messages, "cores": CORES},
        {
            "messages_s": messages / median(each.seconds for each, _ in pairs),
            "kafka_messages_s": messages / median(each.seconds for _, each in pairs),
            "service_cpu_us": MICRO * median(each.service_cpu for each, _ in pairs) / messages,
        },
        median(theirs.seconds / ours.seconds for ours, theirs in pairs),
        "messages/s of Spark's Kafka source",
        at_least(0.67),
    )


def _session() -> SparkSession:
    try:
        jars = ",".join(map(str, connector_jars()))
    except CannotFetch as error:
        raise Failed(str(error)) from error
    return local_session("bench", cores=CORES, settings={"spark.jars": jars})


def _on_ams(spark: SparkSession, service: Service, **more: str) -> DataFrame:
    where = {"endpoint": service.url, "token": service.token, "topic": "BENCH/read-0", "minPartitions": str(CORES)}
    return spark.read.format("ams").options(**where, **more).load()


def _on_kafka(spark: SparkSession, servers: str, messages: DataFrame) -> DataFrame:
    """Write the messages to a topic on Kafka of one partition; return it as Spark reads it."""
    asyncio.run(_make_topic(servers))
    where = {"kafka.bootstrap.servers": servers}
    messages.selectExpr("data AS value").write.format("kafka").options(**where, topic="bench").save()
    return spark.read.format("kafka").options(**where, subscribe="bench", minPartitions=str(CORES)).load()


async def _make_topic(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("bench", 1, 1)])
    finally:
        await admin.close()


def _read(service: Service, frame: DataFrame) -> Read:
    before, began = service.processor_seconds(), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return Read(time.perf_counter() - began, service.processor_seconds() - before)
