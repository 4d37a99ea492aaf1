"""Jobs on a cluster of Spark with executors of one core and 1 GiB: a topic is archived, then published on."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from bench import numbered, preparing
from bench.executors import CORES, FLAGS, Memory, cluster, watched
from bench.processes import Failed, Service
from bench.report import Result, at_most, progress
from bench.run import Bench
from bench.spark import RunCost, pipeline
from cluster.spark import SparkCluster

DISK_PER_MESSAGE = 1500
"""Free bytes wanted for each message: in the topic, in the table, in the topics it is published on to; and as many."""
TOPIC = "projects/BENCH/topics/numbered-0"
SITES = [f"projects/BENCH/topics/SITE_{number}" for number in range(numbered.SITES)]
RULES = 'rules=[{attribute: site, to: ["SITE_{site}"]}]'
FLAT = 1.2
"""How much more memory executors may take in the last third of a run than in the one before."""


def spark_cluster(bench: Bench) -> Iterator[Result]:
    """Yield a result for archiving and one for publishing on; both are compared with the topic by counts and hashes.

    A run without data measures the start alone.
    """
    messages = bench.plan.numbered
    if shutil.disk_usage(bench.folder).free < messages * DISK_PER_MESSAGE:
        raise Failed(f"the disk has no space for {messages} messages")
    with bench.service() as service, cluster(bench) as spark, tempfile.TemporaryDirectory(dir=bench.folder) as made:
        preparing.topics(service, preparing.project(service, "BENCH"), "numbered", 1)
        progress(f"  publish {messages} messages")
        numbered.publish(service, TOPIC, messages)
        there = numbered.held_by_site(service, TOPIC)
        path = Path(made) / "archive"

        progress("  archive them on a cluster")
        yield _measured(spark, service, Path(made) / "1", messages, "archive", f"path={path}", "topics=[numbered-0]")
        _same(
            "the archive", _archived(path), (sum(each.messages for each in there), sum(each.hashes for each in there))
        )
        shutil.rmtree(path)

        progress("  publish them on, by an attribute")
        options = ("topics=[numbered-0]", RULES, "create_topics=true")
        yield _measured(spark, service, Path(made) / "2", messages, "republish", *options)
        for topic, expected in zip(SITES, there, strict=True):
            found = numbered.held(service, topic)
            _same(topic, (found.messages, found.in_order), (expected.messages, expected.in_order))


def _measured(spark: SparkCluster, service: Service, work: Path, messages: int, job: str, *options: str) -> Result:
    flags = (*FLAGS, "--master", spark.url)
    with watched(spark) as memory:
        run = pipeline(service, "BENCH", work, job, *options, flags=flags)
    start = pipeline(service, "BENCH", work, job, *options, flags=flags)
    return _result(f"spark-cluster-{job}", messages, run, start, memory)


def _result(case: str, messages: int, run: RunCost, start: RunCost, memory: Memory) -> Result:
    seconds = max(run.seconds - start.seconds, 0.001)
    return Result(
        case,
        {"messages": messages, "bytes": numbered.SIZE, "cores": CORES},
        {
            "seconds": run.seconds,
            "start_s": start.seconds,
            "messages_s": messages / seconds,
            "messages_s_core": messages / seconds / CORES,
            **memory.figures(),
        },
        memory.growth,
        "memory of executors in the second third of the run",
        at_most(FLAT),
    )


def _same(what: str, found: tuple[int, object], expected: tuple[int, object]) -> None:
    if found != expected:
        raise Failed(f"{what} has {found[0]} messages in place of {expected[0]}, or others")
    progress(f"  {what}: {found[0]} messages, their hashes are those of the topic")


def _archived(path: Path) -> tuple[int, int]:
    with duckdb.connect() as connection:
        connection.register("archive", DeltaTable(str(path)).to_pyarrow_dataset())
        [(count, hashes)] = connection.execute(f"SELECT {numbered.HASHES} FROM archive").fetchall()
    return count, int(hashes)
