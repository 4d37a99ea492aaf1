"""Topics to a Delta table, and counting in them, with the processor time of a message; DuckDB counts beside."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from bench import preparing
from bench.report import Result, progress
from bench.run import Bench
from bench.spark import RunCost, pipeline

TOPICS = 4
BACKLOGS = 10
"""Ordinary backlogs that are archived."""
MICRO = 1e6
MIB = 2**20


def spark_archive(bench: Bench) -> Iterator[Result]:
    """Yield a result for archiving and one for the report of usage. A run without data measures the start alone."""
    messages = bench.plan.backlog * BACKLOGS
    with bench.service() as service, tempfile.TemporaryDirectory(dir=bench.folder) as made:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "archive", TOPICS)
        progress(f"  fill {TOPICS} topics with {messages} messages")
        preparing.fill(service, topics, messages // TOPICS)
        path, work = Path(made) / "archive", Path(made) / "work"
        progress("  archive them, and once more nothing")
        first, again = (pipeline(service, "BENCH", work, "archive", f"path={path}") for _ in range(2))
        yield _result("spark-archive", messages, first, again, {"disk_mib": _size(path) / MIB})

        progress("  count them, with Spark and with DuckDB")
        counted = pipeline(service, "BENCH", Path(made) / "usage", "metrics", f"archive={path}")
        cpu, seconds, found = _by_duckdb(path)
        assert found == messages, f"DuckDB finds {found} of {messages}"
        beside = {"duckdb_s": seconds, "duckdb_cpu_us": MICRO * cpu / messages}
        yield _result("spark-metrics", messages, counted, again, beside)


def _result(case: str, messages: int, run: RunCost, start: RunCost, more: dict[str, float]) -> Result:
    figures = {
        "seconds": run.seconds,
        "start_s": start.seconds,
        "messages_s": messages / max(run.seconds - start.seconds, 0.001),
        "cpu_us": MICRO * (run.cpu_seconds - start.cpu_seconds) / messages,
        "memory_mib": run.memory / MIB,
    }
    return Result(case, {"messages": messages, "topics": TOPICS}, figures | more)


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
