"""The pipeline demo: what it says to its jobs is what they take."""

from pathlib import Path

from demo.pipeline import working, worlds


def test_every_job_takes_what_is_said_to_it_and_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    plans = [working.planned(task) for task in worlds.tasks(worlds.yesterday(), tmp_path, with_database=True)]

    assert plans[-1].options["topics"] == ("alarms", "status_events", "alerts")
    assert len({plan.name for plan in plans}) == len(plans)
