"""The last step of the main job: one small job on Spark reads what the topics hold and says who used how much."""

import importlib.util
import os
import subprocess
from pathlib import Path

from ams.pipeline.errors import Unavailable
from ams.pipeline.java import java
from demo.service import Service, python
from demo.traffic import PROJECT

MISSING = "Who used how much is computed on Spark, which needs {}; left out."

WORK = Path("ams-pipeline", "demo")
"""The folder of the run, beside the data; not the job's own, which belongs to a run by hand."""


def report(service: Service) -> bool:
    """Run `ams pipeline run metrics` and let it print its table; return whether it did what it should.

    Where there is no Java for it, or this environment was made before there was one, say so; that is well too.
    """
    lacking = _lacking()
    if lacking:
        print(MISSING.format(lacking), flush=True)
        return True
    print("Now one small job on Spark reads the topics and says who used how much (half a minute):\n", flush=True)
    return _run(service, service.data.absolute().parent / WORK) == 0


def _lacking() -> str:
    try:
        java()
    except Unavailable:
        return "Java 17 or newer"
    return "" if importlib.util.find_spec("pyspark") else "PySpark (make setup brings it)"


def _run(service: Service, work: Path) -> int:
    connection = {
        "AMS_ENDPOINT": service.url,
        "AMS_TOKEN_FILE": str(service.token_file.absolute()),
        "AMS_CA": str(service.ca.absolute()),
        "AMS_PROJECT": PROJECT,
    }
    command = python("ams.cli.main", "pipeline", "run", "metrics", "--work", str(work))
    return subprocess.run(command, env={**os.environ, **connection}, check=False).returncode  # noqa: S603  # our own
