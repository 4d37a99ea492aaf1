"""The page: what each job found, drawn."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from ams.pipeline.jobs import metrics
from ams.pipeline.jobs.archive import Selection, archived
from ams.pipeline.jobs.availability import board as availability
from ams.pipeline.postgres import connected
from ams.pipeline.report.page import Section, page, put
from ams.pipeline.session import local_session
from ams.pipeline.tables import rows_of
from demo.pipeline import tables, versions
from demo.pipeline.boards import accounting, alarms, cloud, federation
from demo.pipeline.worlds import PROJECT

_LEAD = "Accounting, monitoring, alarms, clouds and a federation on {}, made up, through AMS and its pipeline."


def write(folder: Path, day: date, before: datetime, url: str, master: str) -> Path:
    """Write the page into the folder of the demo; return where.

    Args:
        folder: of the demo.
        day: what the jobs tell of.
        before: when two of them had told of it without what came late.
        url: of the database of alarms, if there is one.
        master: of Spark.
    """
    path = folder / "report.html"
    sections = [*_from_spark(folder, day, before, master), *_from_files(folder), *_from_database(url)]
    put(path, page("A day in five worlds", _LEAD.format(day), [*sections, tables.section(folder)]))
    return path


def _from_spark(folder: Path, day: date, before: datetime, master: str) -> list[Section]:
    spark = local_session("report", settings={"spark.master": master})
    try:
        found = (rows_of(spark, _results(folder, "availability") / name) for name in ("figures", "statuses"))
        shown = availability.sections(availability.board(*found))
        messages = archived(spark, str(folder / "archive"), Selection(PROJECT))
        month = metrics.count(messages, f"{datetime.now(UTC):%Y-%m}", "")
        return [*shown, versions.section(spark, folder, day, before), *metrics.sections(month)]
    finally:
        spark.stop()


def _from_files(folder: Path) -> Iterator[Section]:
    results = _results(folder, "accounting")
    for month in accounting.months(results)[-1:]:
        yield from accounting.sections(accounting.read_month(results, month))
    yield from cloud.sections(json.loads((_results(folder, "cloud-info") / "catalogue.json").read_bytes()))
    yield from federation.sections(_results(folder, "federation"))


def _from_database(url: str) -> list[Section]:
    if not url:
        return []
    with connected(url) as connection:
        return alarms.sections(connection, PROJECT)


def _results(folder: Path, job: str) -> Path:
    return folder / job / "results"
