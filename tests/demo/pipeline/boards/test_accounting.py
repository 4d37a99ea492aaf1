from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ams.pipeline.report.page import Rows, page
from ams.tables.table import Table
from demo.pipeline.boards.accounting import months, sections


def write(results: Path, name: str, rows: list[dict[str, Any]]) -> None:
    made = pa.Table.from_pylist([{**row, "month": "2024-03"} for row in rows])
    table = Table(results / name, made.schema, ("month",))
    table.replace(table.write("made-up", made.to_batches()))


def summary(site: str, vo: str | None, jobs: int, hours: int, **levels: int) -> dict[str, Any]:
    normalised = [{"benchmark": name, "wall": 0, "cpu": 3600 * cpu} for name, cpu in levels.items()]
    work = {"wall": 7200 * hours, "cpu": 3600 * hours, "normalised": normalised or None}
    return {"site": site, "vo": vo, "jobs": jobs, **work, "latest_end": datetime(2024, 3, 5, tzinfo=UTC)}


def test_a_month_is_told_by_site_and_drawn_by_vo(tmp_path: Path) -> None:
    ours = [
        summary("SITE-B", "atlas", 10, 5, hepspec=50, hepscore23=70),
        summary("SITE-B", None, 1, 1),
        summary("SITE-A", "cms", 2, 3, si2k=4),
    ]
    write(tmp_path, "job_summaries", ours)
    write(tmp_path, "site_summaries", [summary("SITE-C", "cms", 7, 2, hepspec=20)])
    machines = [{"site": "SITE-B", "vms": vms, "cpu": cpu} for vms, cpu in ((3, 36000), (1, None))]
    write(tmp_path, "vm_summaries", machines)
    write(tmp_path, "storage_summaries", [{"site": "SITE-A", "average_used": 25 * 10**11}])
    sync = {"submit_host": "ce01", "told": 12, "arrived": 11, "summarised": 0, "missing": 1, "surplus": 0}
    write(tmp_path, "sync", [{"site": "SITE-B", **sync}, {"site": "SITE-A", **sync, "missing": 0}])

    [section] = sections(tmp_path, "2024-03")
    work, clouds, losses = [each.body for each in section.content if isinstance(each, Rows)]

    assert months(tmp_path) == ["2024-03"]
    assert work == [("SITE-A", 2, 6.0, 3.0, 4.0), ("SITE-B", 11, 12.0, 6.0, 70.0), ("SITE-C", 7, 4.0, 2.0, 20.0)]
    assert clouds == [("SITE-A", 0, 0.0, 2.5), ("SITE-B", 4, 10.0, 0.0)]
    assert losses == [("SITE-B", "ce01", 12, 11, 1, 0)]
    shown = page("Accounting", "", [section])
    assert all(word in shown for word in ("Accounting of 2024-03", "<svg", "SITE-C", "ce01", "Missing"))


def test_a_month_of_which_nothing_came_is_empty(tmp_path: Path) -> None:
    [section] = sections(tmp_path, "2024-03")

    assert months(tmp_path) == []
    assert [each.body for each in section.content if isinstance(each, Rows)] == [[], []]
    assert "Accounting of 2024-03" in page("Accounting", "", [section])
