from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ams.pipeline.report.page import page
from ams.tables.table import Table
from demo.pipeline.boards.accounting import Work, months, read_month, sections


def write(results: Path, name: str, rows: list[dict[str, Any]]) -> None:
    made = pa.Table.from_pylist([{**row, "month": "2024-03"} for row in rows])
    table = Table(results / name, made.schema, ("month",))
    table.replace(table.write("made-up", made.to_batches()))


def summary(site: str, vo: str | None, jobs: int, hours: int, **levels: int) -> dict[str, Any]:
    normalised = [{"benchmark": name, "wall": 0, "cpu": 3600 * cpu} for name, cpu in levels.items()]
    ended = datetime(2024, 3, 5, tzinfo=UTC)
    return {
        "site": site,
        "vo": vo,
        "jobs": jobs,
        "wall": 7200 * hours,
        "cpu": 3600 * hours,
        "normalised": normalised or None,
        "latest_end": ended,
    }


def test_a_month_is_told_by_site_and_drawn_by_vo(tmp_path: Path) -> None:
    ours = [
        summary("SITE-B", "atlas", 10, 5, hepspec=50, hepscore23=70),
        summary("SITE-B", None, 1, 1),
        summary("SITE-A", "cms", 2, 3, si2k=4),
    ]
    write(tmp_path, "job_summaries", ours)
    write(tmp_path, "site_summaries", [summary("SITE-C", "cms", 7, 2, hepspec=20)])
    write(
        tmp_path,
        "vm_summaries",
        [{"site": "SITE-B", "vms": 3, "cpu": 36000}, {"site": "SITE-B", "vms": 1, "cpu": None}],
    )
    write(tmp_path, "storage_summaries", [{"site": "SITE-A", "average_used": 25 * 10**11}])
    sync = {"submit_host": "ce01", "told": 12, "arrived": 11, "summarised": 0, "missing": 1, "surplus": 0}
    write(tmp_path, "sync", [{"site": "SITE-B", **sync}, {"site": "SITE-A", **sync, "missing": 0}])

    month = read_month(tmp_path, "2024-03")

    assert months(tmp_path) == ["2024-03"]
    assert month.by_site == {
        "SITE-A": Work(2, 6.0, 3.0, 4.0),
        "SITE-B": Work(11, 12.0, 6.0, 70.0),
        "SITE-C": Work(7, 4.0, 2.0, 20.0),
    }
    assert month.by_site_and_vo["SITE-B"] == {"-": 0.0, "atlas": 70.0}
    assert month.machines == {"SITE-B": (4, 10.0)}
    assert month.storage == {"SITE-A": 2.5}
    assert month.losses == [("SITE-B", "ce01", 12, 11, 1, 0)]
    shown = page("Accounting", "", sections(month))
    assert all(word in shown for word in ("Accounting of 2024-03", "<svg", "SITE-C", "ce01", "Missing"))


def test_a_month_of_which_nothing_came_is_empty(tmp_path: Path) -> None:
    month = read_month(tmp_path, "2024-03")

    assert months(tmp_path) == []
    assert (month.by_site, month.machines, month.storage, month.losses) == ({}, {}, {}, [])
    assert "Accounting of 2024-03" in page("Accounting", "", sections(month))
