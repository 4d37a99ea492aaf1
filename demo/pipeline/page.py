"""The page: what each job found, drawn."""

from datetime import date
from pathlib import Path

import psycopg

from ams.pipeline.jobs.accounting import report as accounting
from ams.pipeline.jobs.alarms import report as alarms
from ams.pipeline.jobs.archive.table import Selection, archived
from ams.pipeline.jobs.availability import board
from ams.pipeline.jobs.cloud import report as cloud
from ams.pipeline.jobs.federation import report as federation
from ams.pipeline.jobs.usage.job import count
from ams.pipeline.jobs.usage.report import sections as usage_sections
from ams.pipeline.report.page import Section, page
from ams.pipeline.session import local_session
from demo.pipeline.worlds import PROJECT


def write(folder: Path, day: date, today: date, url: str) -> Path:
    """Write the page into the folder of the demo; return where."""
    path = folder / "report.html"
    lead = f"Accounting, monitoring, alarms, clouds and a federation on {day}, made up, through AMS and its pipeline."
    sections = [*_from_spark(folder, today), *_from_files(folder)]
    if url:
        with psycopg.connect(url) as database:
            sections.append(alarms.section(database))
    path.write_text(page("A day in five worlds", lead, sections), encoding="utf-8")
    return path


def _from_spark(folder: Path, today: date) -> list[Section]:
    spark = local_session("report")
    try:
        shown = board.board(*(spark.read.parquet(str(_results(folder, "availability") / name)) for name in _TABLES))
        messages = archived(spark, str(folder / "archive"), Selection(PROJECT, ("*",)))
        return [*board.sections(shown), *usage_sections(count(messages, f"{today:%Y-%m}", ""))]
    finally:
        spark.stop()


_TABLES = ("figures", "statuses")


def _from_files(folder: Path) -> list[Section]:
    of_accounting = _results(folder, "accounting")
    months = [
        accounting.section(accounting.read_month(of_accounting, each)) for each in accounting.months(of_accounting)
    ]
    return [
        *months[-1:],
        cloud.section(_results(folder, "cloud-info")),
        federation.section(_results(folder, "federation")),
    ]


def _results(folder: Path, job: str) -> Path:
    return folder / job / "results"
