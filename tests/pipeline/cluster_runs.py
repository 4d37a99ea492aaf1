"""Runs of `ams pipeline` on a cluster of Spark, as somebody types them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cluster.spark import SparkCluster
from tests.pipeline.garden import Garden

SECONDS = 240


class Told(NamedTuple):
    """What came of a run."""

    code: int
    out: str
    errors: str

    @property
    def messages(self) -> int:
        """How many messages it says it had."""
        [found] = re.findall(r'"messages": (\d+)', self.out)
        return int(found)

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return self.errors.splitlines()[-1]


def environment(garden: Garden) -> dict[str, str]:
    """Return that of somebody whose sources and Python no executor is told."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_") and name not in hidden}
    source = {"AMS_ENDPOINT": garden.served.run.base_url, "AMS_TOKEN": garden.served.token, "AMS_PROJECT": garden.name}
    return own | source


def command(cluster: SparkCluster, *words: str) -> list[str]:
    """Return a command that runs a job or a definition."""
    small = ["--memory", "512m", "--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    return [sys.executable, "-m", "ams.cli.main", "pipeline", "run", *words, "--master", cluster.url, *small]


def run(cluster: SparkCluster, garden: Garden, folder: Path, job: str, *flags: str, **options: object) -> Told:
    """Run a job in a folder to its end."""
    settings = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    words = command(cluster, job, "--work", str(folder), "-o", "json", *flags, *settings)
    done = subprocess.run(
        words, env=environment(garden), cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Told(done.returncode, done.stdout, done.stderr)


def eventually(true: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    """Wait until something is true of a run that goes on."""
    give_up = time.monotonic() + SECONDS
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.1)
