"""One job after the other, in this process: as `ams pipeline run`, with the driver's Java started only once."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from ams.pipeline.definition.plans import read_plan
from ams.pipeline.running import Plan
from ams.pipeline.starting import Ended, Setup, start
from cluster.postgres import Postgres, is_installed
from cluster.spark import SparkCluster
from demo.pipeline.worlds import PROJECT, Task
from demo.service import Service

WORKERS = 2
"""Workers of the cluster, each with one core."""


def planned(task: Task) -> Plan:
    """Read what is said to a job; raises what a wrong option does, which is better known before the first job runs."""
    return read_plan(task.job, [f"{name}={value}" for name, value in task.options.items()])


def work(plan: Plan, service: Service, folder: Path, master: str) -> Ended:
    """Run a job in its folder, without what it prints, which the page shows; raises what a run raises.

    Ctrl-C ends a job after its batch at work, and then the demo.
    """
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
    """Let the jobs, which take secrets from the environment only, find them there."""
    os.environ["AMS_TOKEN"] = service.token_file.read_text().strip()
    if url:
        os.environ["AMS_PIPELINE_DATABASE"] = url
