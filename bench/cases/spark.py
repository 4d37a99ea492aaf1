"""Spark: a topic read through `format("ams")` and from Kafka; topics archived to a Delta table, which is read too."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.jobs.archive import archived
from ams.pipeline.session import local_session
from bench import preparing
from bench.cluster import broker
from bench.pipeline_run import RunCost, pipeline
from bench.processes import Failed, Service
from bench.report import Result, at_least, progress
from bench.run import Bench
from cluster.jars import CannotFetch, connector_jars

CORES = 2
BACKLOGS = 10
"""Ordinary backlogs that are read."""
TOPICS = 4
"""Topics that are archived."""
MICRO = 1e6
MIB = 2**20


def spark(bench: Bench) -> Iterator[Result]:
    """Yield results for reading a topic, for archiving, and for reading the archive."""
    messages = bench.plan.backlog * BACKLOGS
    yield _topic(bench, messages)
    with bench.service() as service, tempfile.TemporaryDirectory(dir=bench.folder) as made:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "archive", TOPICS)
        progress(f"  fill {TOPICS} topics with {messages} messages")
        preparing.fill(service, topics, messages // TOPICS)
        path, work = Path(made) / "archive", Path(made) / "work"
        progress("  archive them, and once more nothing, which measures the start alone")
        first, again = (pipeline(service, "BENCH", work, "archive", f"path={path}") for _ in range(2))
        yield _archive(messages, first, again)
        yield _table(bench, path, messages)


def _topic(bench: Bench, messages: int) -> Result:
    """Read every column of every message of a topic, on AMS and on Kafka."""
    with bench.service() as service, broker(bench) as brokers:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "read", 1)
        preparing.fill(service, [topic], messages)
        session = _session()
        try:
            ours = _on_ams(session, service)
            theirs = _on_kafka(session, brokers.servers, ours)
            _scan(_on_ams(session, service, endingOffsets="1000"))
            before = service.processor_seconds()
            what = f"read {messages} messages from AMS, and from Kafka"
            pairs = bench.in_turn(what, lambda: _scan(ours), lambda: _scan(theirs))
            service_seconds = (service.processor_seconds() - before) / len(pairs)
        finally:
            session.stop()
    more = {"service_cpu_us": MICRO * service_seconds / messages}
    return _compared("spark-read", messages, pairs, "kafka_messages_s", "Spark's Kafka source", 0.67, **more)


def _session() -> SparkSession:
    try:
        jars = ",".join(map(str, connector_jars()))
    except CannotFetch as error:
        raise Failed(str(error)) from error
    return local_session("bench", cores=CORES, settings={"spark.jars": jars})


def _on_ams(session: SparkSession, service: Service, **more: str) -> DataFrame:
    where = {"endpoint": service.url, "token": service.token, "topic": "BENCH/read-0", "minPartitions": str(CORES)}
    return session.read.format("ams").options(**where, **more).load()


def _on_kafka(session: SparkSession, servers: str, messages: DataFrame) -> DataFrame:
    """Write the messages to a topic on Kafka of one partition; return it as Spark reads it."""
    asyncio.run(_make_topic(servers))
    where = {"kafka.bootstrap.servers": servers}
    messages.selectExpr("data AS value").write.format("kafka").options(**where, topic="bench").save()
    return session.read.format("kafka").options(**where, subscribe="bench", minPartitions=str(CORES)).load()


async def _make_topic(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("bench", 1, 1)])
    finally:
        await admin.close()


def _archive(messages: int, run: RunCost, start: RunCost) -> Result:
    values = {
        "seconds": run.seconds,
        "start_s": start.seconds,
        "messages_s": messages / max(run.seconds - start.seconds, 0.001),
        "cpu_us": MICRO * (run.cpu_seconds - start.cpu_seconds) / messages,
        "memory_mib": run.memory / MIB,
    }
    return Result("spark-archive", {"messages": messages, "topics": TOPICS}, values)


def _table(bench: Bench, path: Path, messages: int) -> Result:
    """Read every column of the archive as jobs do, and by Spark's own reader of Parquet."""
    session = local_session("bench", cores=CORES)
    try:
        ours = archived(session, str(path))
        theirs = session.read.option("basePath", str(path)).parquet(*DeltaTable(str(path)).file_uris())
        for each in (ours, theirs):
            _scan(each)
        pairs = bench.in_turn("read them, and by Spark's own reader", lambda: _scan(ours), lambda: _scan(theirs))
    finally:
        session.stop()
    return _compared("spark-archive-read", messages, pairs, "parquet_messages_s", "Spark's own reader of Parquet", 0.5)


def _scan(frame: DataFrame) -> float:
    """Read every column and do nothing with it; return the seconds."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _compared(
    case: str, messages: int, pairs: list[tuple[float, float]], key: str, than: str, goal: float, **more: float
) -> Result:
    values = {
        "messages_s": messages / median(ours for ours, _ in pairs),
        key: messages / median(theirs for _, theirs in pairs),
    }
    ratio = median(theirs / ours for ours, theirs in pairs)
    params: dict[str, int | str] = {"messages": messages, "cores": CORES}
    return Result(case, params, values | more, ratio, f"messages/s of {than}", at_least(goal))
