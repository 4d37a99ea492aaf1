"""The jobs by name, each loaded when it is asked for."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ams.pipeline.errors import WrongOption

if TYPE_CHECKING:
    from ams.pipeline.jobs.base import Job

JOBS: Mapping[str, str] = {
    "accounting": "ams.pipeline.jobs.accounting.job:JOB",
    "alarms": "ams.pipeline.jobs.alarms:JOB",
    "archive": "ams.pipeline.jobs.archive:JOB",
    "archive-check": "ams.pipeline.jobs.archive:CHECK",
    "availability": "ams.pipeline.jobs.availability.job:JOB",
    "cloud-info": "ams.pipeline.jobs.cloud.job:JOB",
    "federation": "ams.pipeline.jobs.federation:JOB",
    "metrics": "ams.pipeline.jobs.metrics:JOB",
    "replay": "ams.pipeline.jobs.replay:JOB",
    "republish": "ams.pipeline.jobs.republish:JOB",
    "schema-check": "ams.pipeline.jobs.schema_check:JOB",
}


def load(name: str) -> "Job[Any]":
    """Load a job; raise `WrongOption` for a name that none has."""
    if name not in JOBS:
        raise WrongOption("job", f"there is no job {name!r}; there are {', '.join(sorted(JOBS))}")
    module, _, attribute = JOBS[name].partition(":")
    job: Job[Any] = getattr(importlib.import_module(module), attribute)
    return job
