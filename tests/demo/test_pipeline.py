"""The pipeline demo: what it says to its jobs is what they take, and its page tells of their tables."""

from pathlib import Path

import pyarrow as pa

from ams.pipeline.report.page import Rows
from ams.tables.table import Table
from demo.pipeline import page, working, worlds


def test_every_job_takes_what_is_said_to_it_and_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    plans = [working.planned(task) for task in worlds.tasks(worlds.yesterday(), tmp_path, with_database=True)]

    assert plans[-1].options["topics"] == ("alarms", "status_events", "alerts")
    assert len({plan.name for plan in plans}) == len(plans)


def test_some_messages_of_accounting_and_monitoring_come_late_and_no_others() -> None:
    late = {each.topic for each in worlds.messages(worlds.yesterday()) if worlds.is_late(each)}

    assert late == {"gLite-APEL", "metric_data"}


def test_the_page_names_every_table_with_its_rows_and_version(tmp_path: Path) -> None:
    schema = pa.schema([("site", pa.string())])
    table = Table(str(tmp_path / "accounting" / "results" / "sites"), schema)
    for sites in (["A"], ["A", "B"]):
        table.replace(table.write("result", [pa.record_batch([sites], schema=schema)]))

    [rows, _] = page.tables(tmp_path).content

    assert isinstance(rows, Rows)
    assert rows.body == [("accounting", "accounting/results/sites", 2, 2)]
    assert page.changed({"A": 1.0}, {"A": 1.0, "B": 4.0}) == [("B", None, 4.0, 4.0)]
