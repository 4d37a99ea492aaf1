"""Spark: a topic read through `format("ams")` and from Kafka; topics archived to a Delta table, which is read too."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.jobs.archive import read_archive
from ams.pipeline.session import local_session
from bench import preparing
from bench.cluster import broker
from bench.processes import ROOT, Failed, Service, last_line
from bench.report import Result, at_least, progress
from bench.run import Bench
from local_cluster.jars import CannotFetch, connector_jars

CORES = 2
BACKLOGS = 10
"""Ordinary backlogs that are read."""
TOPICS = 4
"""Topics that are archived."""
MICRO = 1e6
MIB = 2**20
LOOK_SECONDS = 0.1


@dataclass
class RunCost:
    """Cost of a run. A driver starts Java and workers, so all processes of its session count."""

    seconds: float = 0.0
    memory: int = 0
    """The largest resident set of all its processes together, in bytes."""
    said: str = ""
    _cpu: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())

    def look(self, session: int) -> None:
        resident = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:  # the fields behind the name: state, parent, group, session ...
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat[3]) == session:
                self._cpu[int(entry.name)] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                resident += int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
        self.memory = max(self.memory, resident)


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
        ours = read_archive(session, str(path))
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


def pipeline(service: Service, project: str, work: Path, name: str, *options: str) -> RunCost:
    """Run a job of `ams pipeline` to its end; raises `Failed` when it fails."""
    settings = [word for option in options for word in ("--set", option)]
    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", name, "--work", str(work), *settings]
    where = {"AMS_ENDPOINT": service.url, "AMS_TOKEN": service.token, "AMS_PROJECT": project}
    taken, ended = RunCost(), threading.Event()
    started = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **where}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip

        def look() -> None:
            while not ended.wait(LOOK_SECONDS):
                taken.look(process.pid)

        looking = threading.Thread(target=look)
        looking.start()
        taken.said, _ = process.communicate()
        ended.set()
        looking.join()
    taken.seconds = time.perf_counter() - started
    if process.returncode:
        raise Failed(f"ams pipeline run {name} ended with {process.returncode}: {last_line(taken.said)}")
    return taken
