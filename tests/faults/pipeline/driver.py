"""Runs one job to its end, as a process that can be killed: `python -m tests.faults.pipeline.driver FILE`.

FILE is JSON: `job` (`module:JOB`, or the path of a definition), `work`, `source` (options of `format("ams")`),
`options` of the job, and `settings` of the session.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ams.pipeline.definition.plans import is_file, read_plan
from ams.pipeline.jobs.base import Job
from ams.pipeline.running import Run
from ams.pipeline.session import local_session


def main(file: str) -> None:
    """Run what the file says."""
    told = json.loads(Path(file).read_text())
    name, runs = _plan(told["job"], told["options"])
    spark = local_session(name, memory="512m", settings=told.get("settings"))
    runs(Run(spark, Path(told["work"]), told["source"]))
    spark.stop()


def _plan(target: str, options: object) -> tuple[str, Callable[[Run], None]]:
    if is_file(target):
        plan = read_plan(target)
        return plan.name, plan.run
    module, _, name = target.partition(":")
    job: Job[Any] = getattr(importlib.import_module(module), name)
    return job.name, lambda run: job.run(run, msgspec.convert(options, job.options))


if __name__ == "__main__":
    main(sys.argv[1])
