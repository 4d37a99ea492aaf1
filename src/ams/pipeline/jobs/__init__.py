"""The jobs by name, each loaded when it is asked for."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ams.pipeline.errors import WrongOption

if TYPE_CHECKING:
    from ams.pipeline.jobs.base import Job

JOBS: Mapping[str, str] = {
    "accounting": "ams.pipeline.jobs.accounting.job:JOB",
    "alarms": "ams.pipeline.jobs.alarms.job:JOB",
    "archive": "ams.pipeline.jobs.archive.job:JOB",
    "archive-check": "ams.pipeline.jobs.archive.job:CHECK",
    "availability": "ams.pipeline.jobs.availability.job:JOB",
    "cloud-info": "ams.pipeline.jobs.cloud.job:JOB",
    "federation": "ams.pipeline.jobs.federation.job:JOB",
    "metrics": "ams.pipeline.jobs.usage.job:JOB",
    "replay": "ams.pipeline.jobs.replay.job:JOB",
    "republish": "ams.pipeline.jobs.republish.job:JOB",
    "schema-check": "ams.pipeline.jobs.schema_check.job:JOB",
}
"""Name to `module:JOB`."""


def load(name: str) -> "Job[Any]":
    """Load a job; raise `WrongOption` for a name that none has."""
    if name not in JOBS:
        raise WrongOption("job", f"there is no job {name!r}; there are {', '.join(sorted(JOBS))}")
    module, _, attribute = JOBS[name].partition(":")
    job: Job[Any] = getattr(importlib.import_module(module), attribute)
    return job
