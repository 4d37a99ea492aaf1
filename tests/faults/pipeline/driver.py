"""Runs one job to its end, as a process that can be killed: `python -m tests.faults.pipeline.driver FILE`.

FILE is JSON: `job` (`module:JOB`), `work`, `source` (options of `format("ams")`), `options` of the job, and `settings`
of the session.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from ams.pipeline.jobs.base import Job
from ams.pipeline.running import Run
from ams.pipeline.session import local_session


def main(file: str) -> None:
    """Run what the file says."""
    told = json.loads(Path(file).read_text())
    module, _, name = told["job"].partition(":")
    job: Job[Any] = getattr(importlib.import_module(module), name)
    spark = local_session(job.name, memory="512m", settings=told.get("settings"))
    job.run(Run(spark, Path(told["work"]), told["source"]), msgspec.convert(told["options"], job.options))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
