"""Parts of the pipeline demo: its made-up messages fit the jobs, its jobs accept their options, its pages show
tables."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.envelope import EnvelopeTrust
from ams.pipeline.jobs.accounting.reader import parse
from ams.pipeline.jobs.availability.inputs import AvailabilityOptions, Inputs
from ams.pipeline.report.page import Rows, page
from ams.tables.table import Table
from demo.pipeline import boards, worlds
from demo.pipeline import page as pages
from demo.pipeline.samples import NONE, monitoring
from demo.pipeline.samples import accounting as records

DAY = date(2024, 3, 5)
NOW = datetime(2024, 4, 1, tzinfo=UTC)


def test_every_job_takes_what_is_said_to_it_and_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    plans = [worlds.planned(task) for task in worlds.tasks(worlds.yesterday(), tmp_path, with_database=True)]
    assert plans[-1].options["topics"] == ("alarms", "status_events", "alerts")
    assert len({plan.name for plan in plans}) == len(plans)


def test_a_seed_makes_the_same_messages_and_the_files_of_monitoring_fit_them(tmp_path: Path) -> None:
    made = list(monitoring.messages(1, DAY, sites=1))
    found = Inputs(AvailabilityOptions(**monitoring.files(1, DAY, tmp_path, sites=5)))

    assert made == list(monitoring.messages(1, DAY, sites=1)) != list(monitoring.messages(2, DAY, sites=1))
    assert {sample.topic for sample in made} == set(monitoring.TOPICS)
    assert len(found.sites["2024-03-05"]) == 5
    assert {each.service for each in found.lists.downtimes[""]} <= set(found.rules[""].metrics)


def test_records_are_signed_by_their_sites_and_some_sealed_for_the_service(tmp_path: Path) -> None:
    made = list(records.messages(5, DAY, jobs=600, machines=12, encrypted=0.3, keys=str(tmp_path), mishaps=NONE))
    trust = EnvelopeTrust(str(tmp_path / "ca.pem"), str(tmp_path / "service.key"), str(tmp_path / "service.pem"))

    found = [(each.topic, record) for each in made for record in parse(each.data, {}, trust, signed_only=True, now=NOW)]

    assert {topic for topic, _ in found} == set(records.TOPICS)
    assert not [record for _, record in found if isinstance(record, Broken)]
    assert 0 < sum(b"enveloped-data" in each.data for each in made) < len(made)
    assert (tmp_path / "service.key").stat().st_mode & 0o077 == 0


def test_the_page_names_every_table_with_its_rows_and_version(tmp_path: Path) -> None:
    schema = pa.schema([("site", pa.string())])
    table = Table(str(tmp_path / "accounting" / "results" / "sites"), schema)
    for sites in (["A"], ["A", "B"]):
        table.replace(table.write("result", [pa.record_batch([sites], schema=schema)]))

    [rows, _] = pages.tables(tmp_path).content

    assert isinstance(rows, Rows)
    assert rows.body == [("accounting", "accounting/results/sites", 2, 2)]
    assert pages.changed({"A": 1.0}, {"A": 1.0, "B": 4.0}) == [("B", None, 4.0, 4.0)]


def test_boards_show_what_came_and_that_nothing_came(tmp_path: Path) -> None:
    storage = pa.table({"month": ["2024-03"], "site": ["SITE-A"], "average_used": [25 * 10**11]})
    table = Table(tmp_path / "storage_summaries", storage.schema, ("month",))
    table.replace(table.write("made-up", storage.to_batches()))
    catalogue: dict[str, Any] = {"stale_after_hours": 12, "sites": [], "vos": {}}

    for folder, expected in ((tmp_path, [[], [("SITE-A", 0, 0.0, 2.5)]]), (tmp_path / "none", [[], []])):
        [section] = boards.accounting_sections(folder, "2024-03")
        assert [each.body for each in section.content if isinstance(each, Rows)] == expected
        assert "Accounting of 2024-03" in page("Accounting", "", [section])
    assert "0 sites" in page("Clouds", "", boards.cloud_sections(catalogue))
