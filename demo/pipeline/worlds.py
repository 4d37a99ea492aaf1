"""The day: which messages there are, which jobs look at them, and one job after the other in this process.

Jobs run as by `ams pipeline run`, with the driver's Java started only once.
"""

import io
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from ams.pipeline.job_run import RunPlan, RunResult, Setup, start
from ams.pipeline.plans import read_plan
from demo.pipeline.samples import Sample, accounting, alarms, cloud, federation, monitoring
from demo.service import Service
from local_cluster.postgres import Postgres, is_installed
from local_cluster.spark import SparkCluster

PROJECT = "egi"
SEED = 1
LATE = (b"mon3.example.org", b"Site: SITE-C\n")
"""Texts in messages that come a day late: those of a monitoring host, and those of a site about its jobs."""
EARLY = ("accounting", "availability")


@dataclass(frozen=True, slots=True)
class Task:
    job: str
    options: Mapping[str, str] = field(default_factory=dict)


def yesterday() -> date:
    return datetime.now(UTC).date() - timedelta(days=1)


def messages(day: date) -> Iterator[Sample]:
    return itertools.chain(
        accounting.messages(SEED, day),
        monitoring.messages(SEED, day),
        alarms.messages(SEED, day),
        cloud.messages(SEED, day, hours=6),
        federation.messages(SEED, day),
    )


def is_late(sample: Sample) -> bool:
    return any(each in sample.data.replace(b"\r\n", b"\n") for each in LATE)


def tasks(day: date, folder: Path, *, with_database: bool) -> list[Task]:
    archive = folder / "archive"
    found = [
        Task("archive", {"path": str(archive)}),
        Task("metrics", {"archive": str(archive)}),
        Task("accounting"),
        Task("availability", monitoring.files(SEED, day, folder / "monitoring")),
        Task("cloud-info"),
        Task("federation"),
    ]
    return [*found, Task("alarms", {"topics": f"[{', '.join(alarms.TOPICS)}]"})] if with_database else found


WORKERS = 2


def planned(task: Task) -> RunPlan:
    """Read the options of a job; wrong ones raise here, before the first job runs."""
    return read_plan(task.job, [f"{name}={value}" for name, value in task.options.items()])


def work(plan: RunPlan, service: Service, folder: Path, master: str) -> RunResult:
    """Run a job in its folder, without its output; Ctrl-C ends it after its current batch, and then the demo."""
    source = {"endpoint": service.url, "project": PROJECT, "ca": str(service.ca.absolute())}
    with redirect_stdout(io.StringIO()):
        ended = start(plan, Setup(work=folder, project=PROJECT, source=source, master=master, settings={}, say=_quiet))
    if ended.stopped:
        raise KeyboardInterrupt
    return ended


def _quiet(_text: str) -> None:
    """Say nothing of progress: each job here is done in seconds."""


@contextmanager
def cluster() -> Iterator[str]:
    """Start a master of Spark and workers; yields what drivers call it by. Raises `DidNotStart`."""
    with (
        tempfile.TemporaryDirectory(prefix="ams-spark-") as folder,
        SparkCluster(Path(folder), workers=WORKERS) as spark,
    ):
        yield spark.url


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Start a PostgreSQL for the alarms; yields its URL, and an empty one where none is installed."""
    if not is_installed():
        yield ""
        return
    postgres = Postgres(folder / "postgresql", careless=True)
    postgres.start()
    try:
        yield postgres.url()
    finally:
        postgres.stop()


def hand_over(service: Service, url: str) -> None:
    """Put secrets into the environment, the only place where the jobs look for them."""
    os.environ["AMS_TOKEN"] = service.token_file.read_text().strip()
    if url:
        os.environ["AMS_PIPELINE_DATABASE"] = url
