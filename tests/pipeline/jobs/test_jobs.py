"""What holds for every job."""

import pytest

from ams.pipeline.jobs import JOBS, load
from ams.pipeline.jobs.base import described


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_listed_under_its_name_in_a_line_without_a_full_stop(name: str) -> None:
    job = load(name)

    assert job.name == name
    assert job.summary[0].isupper()
    assert not job.summary.endswith(".")
    # How much is read at once may change from run to run.
    assert {each.name for each in described(job.options)} & {"batch_messages"} <= job.harmless
