"""Runs jobs to their end, as a process that can be killed: `python -m tests.faults.pipeline.driver FILE ...`.

FILE is JSON: `job` (`module:JOB`), `work`, `source` (options of `format("ams")`),
`options` of the job, and `settings` of the session. Jobs run one after another in one session. A job that fails
writes the reason to `FAILURE_FILE` in its work folder, and the next one runs.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ams.pipeline.jobs.base import Job
from ams.pipeline.run import Run
from ams.pipeline.session import local_session

FAILURE_FILE = "failed"


def main(files: list[str]) -> int:
    failures = 0
    for told in [json.loads(Path(file).read_text()) for file in files]:
        name, runs = _plan(told["job"], told["options"])
        spark = local_session(name, memory="512m", settings=told.get("settings") or {})
        try:
            runs(Run(spark, Path(told["work"]), told["source"]))
        except Exception:
            traceback.print_exc()
            (Path(told["work"]) / FAILURE_FILE).write_text(traceback.format_exc())
            failures += 1
    spark.stop()
    return 1 if failures else 0


def _plan(target: str, options: object) -> tuple[str, Callable[[Run], None]]:
    module, _, name = target.partition(":")
    job: Job[Any] = getattr(importlib.import_module(module), name)
    return job.name, lambda run: job.run(run, msgspec.convert(options, job.options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
