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


@pytest.mark.parametrize("name", JOBS)
def test_every_option_of_a_job_says_what_it_means(name: str) -> None:
    assert [each.name for each in described(load(name).options) if not each.meaning] == []


@pytest.mark.parametrize("name", JOBS)
def test_how_much_is_read_at_once_may_change_from_run_to_run(name: str) -> None:
    job = load(name)

    assert {each.name for each in described(job.options)} & {"batch_messages"} <= job.harmless
