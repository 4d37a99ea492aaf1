"""Topics to a Delta table, reading it, and counting in it, with the processor time of a message.

`ams archive` keeps the same topics without Spark, Spark's own reader of Parquet reads the same files beside, and DuckDB
counts beside.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from ams.pipeline.jobs.archive import archived
from ams.pipeline.session import local_session
from bench import preparing
from bench.report import Result, at_least, progress
from bench.run import Bench
from bench.spark import RunCost, ams, pipeline

TOPICS = 4
CORES = 2
BACKLOGS = 10
"""Ordinary backlogs that are archived."""
MICRO = 1e6
MIB = 2**20


def spark_archive(bench: Bench) -> Iterator[Result]:
    """Yield results for archiving, for the same by `ams archive`, for reading, and for the report of usage.

    A run without data measures the start alone.
    """
    messages = bench.plan.backlog * BACKLOGS
    with bench.service() as service, tempfile.TemporaryDirectory(dir=bench.folder) as made:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "archive", TOPICS)
        progress(f"  fill {TOPICS} topics with {messages} messages")
        preparing.fill(service, topics, messages // TOPICS)
        path, work = Path(made) / "archive", Path(made) / "work"
        progress("  archive them, and once more nothing")
        first, again = (pipeline(service, "BENCH", work, "archive", f"path={path}") for _ in range(2))
        yield _result("spark-archive", messages, first, again, {"disk_mib": _size(path) / MIB})

        progress("  archive them without Spark, and once more nothing")
        bare = [ams(service, "BENCH", "archive", str(Path(made) / "bare"), "--no-merge") for _ in range(2)]
        yield _without_spark(messages, *bare, first, again)

        yield _read(bench, path, messages)

        progress("  count them, with Spark and with DuckDB")
        counted = pipeline(service, "BENCH", Path(made) / "usage", "metrics", f"archive={path}")
        cpu, seconds, found = _by_duckdb(path)
        assert found == messages, f"DuckDB finds {found} of {messages}"
        beside = {"duckdb_s": seconds, "duckdb_cpu_us": MICRO * cpu / messages}
        yield _result("spark-metrics", messages, counted, again, beside)


def _without_spark(messages: int, run: RunCost, start: RunCost, spark: RunCost, spark_start: RunCost) -> Result:
    result = _result("ams-archive", messages, run, start, {"spark_seconds": spark.seconds})
    seconds, theirs = run.seconds - start.seconds, spark.seconds - spark_start.seconds
    result.ratio, result.against = (
        theirs / max(seconds, 0.001),
        "messages/s of the job archive on 2 cores, starts left out",
    )
    return result


def _result(case: str, messages: int, run: RunCost, start: RunCost, more: dict[str, float]) -> Result:
    figures = {
        "seconds": run.seconds,
        "start_s": start.seconds,
        "messages_s": messages / max(run.seconds - start.seconds, 0.001),
        "cpu_us": MICRO * (run.cpu_seconds - start.cpu_seconds) / messages,
        "memory_mib": run.memory / MIB,
    }
    return Result(case, {"messages": messages, "topics": TOPICS}, figures | more)


def _read(bench: Bench, path: Path, messages: int) -> Result:
    """Read every column of every message as jobs do, and by Spark's own reader, to which the files are named."""
    spark = local_session("bench", cores=CORES)
    try:
        ours = archived(spark, str(path))
        theirs = spark.read.option("basePath", str(path)).parquet(*DeltaTable(str(path)).file_uris())
        for each in (ours, theirs):
            _scan(each)
        pairs = bench.in_turn("read them, and by Spark's own reader", lambda: _scan(ours), lambda: _scan(theirs))
    finally:
        spark.stop()
    return Result(
        "spark-archive-read",
        {"messages": messages, "cores": CORES},
        {
            "messages_s": messages / median(each for each, _ in pairs),
            "spark_messages_s": messages / median(each for _, each in pairs),
        },
        median(theirs / ours for ours, theirs in pairs),
        "messages/s of Spark's own reader",
        at_least(0.5),
    )


def _scan(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _by_duckdb(path: Path) -> tuple[float, float, int]:
    """Return processor seconds, seconds, and the messages DuckDB finds when it counts as the report does."""
    sizes = "count(*), sum(octet_length(data)), quantile_cont(octet_length(data), 0.95), max(octet_length(data))"
    cpu, started = time.process_time(), time.perf_counter()
    with duckdb.connect() as connection:
        connection.register("archive", DeltaTable(str(path)).to_pyarrow_dataset())
        rows = connection.execute(f"SELECT topic, date, {sizes} FROM archive GROUP BY ALL").fetchall()
    return time.process_time() - cpu, time.perf_counter() - started, sum(row[2] for row in rows)


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*.parquet"))
