"""EGI's jobs on a cluster of Spark with executors of one core and 1 GiB, and the same by one process without Spark."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import psycopg
from deltalake import DeltaTable

from ams.client import Client
from bench import preparing
from bench.executors import CORES, FLAGS, MIB, cluster, live, logging_collections, watched
from bench.processes import Failed, Service, answered
from bench.report import Result, progress
from bench.run import Bench
from bench.spark import pipeline
from bench.without_spark import Answer, Question
from cluster.postgres import Postgres, is_installed
from cluster.spark import SparkCluster
from demo.pipeline.samples import Sample, accounting, alarms, cloud, federation, monitoring
from demo.pipeline.samples.worlds import requests

SEED = 1
IMAGES, HOURS = 200, 24
LONGEST = 3600.0
"""Seconds that one process may take."""


@dataclass(frozen=True)
class Work:
    """A job, so many records for it, and where the number is that both must find."""

    job: str
    samples: Callable[[date, int], Iterator[Sample]]
    options: Callable[[date, int, Path], Mapping[str, str]]
    figure: str
    """In SQL over the result of the name before the colon, or over the database."""


def _sites(records: int) -> int:
    """Sites of monitoring with so many results a day."""
    return max(1, round(records / 1140))


def _clouds(records: int) -> int:
    return max(3, round(records / (IMAGES * HOURS)))


WORKS = (
    Work(
        "accounting",
        lambda day, records: accounting.messages(SEED, day, jobs=records, signed=False),
        lambda *_: {},
        "job_summaries:sum(jobs)",
    ),
    Work(
        "availability",
        lambda day, records: monitoring.messages(SEED, day, sites=_sites(records)),
        lambda day, records, folder: monitoring.files(SEED, day, folder, sites=_sites(records)),
        "figures:count(*) FILTER (type IN ('endpoint', 'service', 'endpoint_group') AND date = '{day}')",
    ),
    Work(
        "alarms",
        lambda day, records: alarms.messages(SEED, day, outages=records // 15),
        lambda *_: {"topics": f"[{', '.join(alarms.TOPICS)}]"},
        "postgres:SELECT sum(reports) FROM alarms",
    ),
    Work(
        "cloud-info",
        lambda day, records: cloud.messages(SEED, day, sites=_clouds(records), images=IMAGES, hours=HOURS),
        lambda *_: {},
        "sites:sum(images)",
    ),
    Work(
        "federation",
        lambda day, records: federation.messages(SEED, day, services=round(records / 4.57)),
        lambda *_: {},
        "versions:count(*) FILTER (version > 0)",
    ),
)


def spark_jobs(bench: Bench) -> Iterator[Result]:
    """Yield a result for each job: its records a second to those of one process that does its main work."""
    if not is_installed():
        raise Failed("PostgreSQL is needed for the alarms")
    records, day = bench.plan.records, datetime.now(UTC).date() - timedelta(days=1)
    for work in WORKS:
        with contextlib.ExitStack() as stack:
            service = stack.enter_context(bench.service())
            spark = stack.enter_context(cluster(bench))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=bench.folder)))
            database = stack.enter_context(_database(folder)) if work.job == "alarms" else ""
            yield _measured(spark, service, work, records, day, folder, database)


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    postgres = Postgres(folder / "postgresql")
    postgres.start()
    try:
        yield postgres.url()
    finally:
        postgres.stop()


def _measured(
    spark: SparkCluster, service: Service, work: Work, records: int, day: date, folder: Path, database: str
) -> Result:
    progress(f"  {work.job}: publish {records} records")
    messages, topics = _published(service, work.samples(day, records))
    files = work.options(day, records, folder / "files")
    flags = (*FLAGS, "--master", spark.url)
    options = [f"{name}={value}" for name, value in files.items()]

    progress(f"  {work.job}: on a cluster, again with nothing to do, and by one process")
    environment = {"AMS_PIPELINE_DATABASE": database} if database else {}
    with watched(spark) as memory:
        logged = (*flags, *logging_collections(folder))
        run = pipeline(service, "BENCH", folder / "work", work.job, *options, flags=logged, environment=environment)
    found = _figure(work, folder / "work", day, database)
    start = pipeline(service, "BENCH", folder / "work", work.job, *options, flags=flags, environment=environment)
    paths = dict(files) if work.job == "availability" else {}
    asked = Question(work.job, service.url, service.token, topics, day.isoformat(), paths)
    beside = answered("bench.without_spark", asked, Answer, LONGEST)
    if beside.rows != found:
        raise Failed(f"{work.job} finds {found}, one process without Spark {beside.rows}")
    seconds = run.seconds - start.seconds
    if seconds <= 0:
        raise Failed(f"{work.job} took no longer than a run with nothing to do: take more records")
    return Result(
        "spark-jobs",
        {"job": work.job, "records": records, "messages": messages, "cores": CORES},
        {
            "seconds": run.seconds,
            "start_s": start.seconds,
            "records_s_core": records / seconds / CORES,
            **memory.figures(),
            "growth": memory.growth,
            **{f"live_{name}": figure for name, figure in live(folder)._asdict().items()},
            "beside_s": beside.seconds,
            "beside_records_s_core": records / beside.seconds / (1 if work.job == "availability" else CORES),
            "beside_mib": beside.memory / MIB,
        },
        beside.seconds / seconds,
        "records/s of numpy" if work.job == "availability" else "records/s of DuckDB",
    )


def _published(service: Service, samples: Iterator[Sample]) -> tuple[int, list[str]]:
    """Publish in their order; return how many messages, and the paths of the topics."""
    preparing.project(service, "BENCH")
    made: set[str] = set()
    count = 0
    with Client(service.url, service.token) as client:
        project = client.project("BENCH")
        for each in requests(samples):
            if each.topic not in made:
                project.topic(each.topic).create()
                made.add(each.topic)
            project.topic(each.topic).publish(each.messages)
            count += len(each.messages)
    return count, [f"projects/BENCH/topics/{name}" for name in sorted(made)]


def _figure(work: Work, folder: Path, day: date, database: str) -> int:
    name, _, query = work.figure.partition(":")
    if name == "postgres":
        with closing(psycopg.connect(database)) as connection:
            return int((connection.execute(query).fetchone() or [0])[0])
    with duckdb.connect() as connection:
        connection.register("found", DeltaTable(os.fspath(folder / "results" / name)).to_pyarrow_dataset())
        [(found,)] = connection.execute(f"SELECT {query.format(day=day)} FROM found").fetchall()
    return int(found)
