"""The page: each job's results as plots; two jobs' results before late messages came; and their tables."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ams.pipeline.jobs import metrics
from ams.pipeline.jobs.archive import Selection, read_archive
from ams.pipeline.jobs.availability import job as availability
from ams.pipeline.postgres import open_session
from ams.pipeline.report.page import Rows, Section, page, put
from ams.pipeline.session import local_session
from ams.pipeline.tables import rows_of
from ams.tables.table import open_table
from demo.pipeline.boards import accounting_sections, alarm_sections, cloud_sections, federation_sections, months
from demo.pipeline.worlds import PROJECT

_LEAD = "Accounting, monitoring, alarms, clouds and a federation on {}, made up, through AMS and its pipeline."
_BEFORE = (
    "At {:%Y-%m-%d %H:%M:%S} UTC the results of a monitoring host and the jobs of a site had not come. Each run leaves "
    "a version of its tables, which can be read for 400 days: rows_of(spark, table, at), with a number or a time."
)
_TABLES = (
    "Delta tables in {}, which any program for Delta tables reads. In the examples PATH is that folder and the name of "
    "a table; an earlier version is read by its number or by a time."
)
_READING = (
    ("deltalake", 'DeltaTable("PATH").to_pyarrow_table()', 'DeltaTable("PATH", version=1)'),
    ("Polars", 'polars.scan_delta("PATH").collect()', 'polars.scan_delta("PATH", version=1)'),
    (
        "DuckDB",
        'rows = DeltaTable("PATH").to_pyarrow_dataset(); duckdb.sql("SELECT * FROM rows")',
        'rows = DeltaTable("PATH", version=1).to_pyarrow_dataset()',
    ),
    ("DuckDB, with its extension delta", "SELECT * FROM delta_scan('PATH')", "-"),
    ("Spark, with ams", 'rows_of(spark, "PATH")', 'rows_of(spark, "PATH", 1)'),
)

Figures = Mapping[str, float]


def write(folder: Path, day: date, before: datetime, url: str, master: str) -> Path:
    """Write the page; `before` is the time of two jobs' results without late messages."""
    path = folder / "report.html"
    sections = _from_spark(folder, day, before, master)
    accounting = _results(folder, "accounting")
    for month in months(accounting)[-1:]:
        sections += accounting_sections(accounting, month)
    sections += cloud_sections(json.loads((_results(folder, "cloud-info") / "catalogue.json").read_bytes()))
    sections += federation_sections(_results(folder, "federation"))
    if url:
        with open_session(url) as connection:
            sections += alarm_sections(connection, PROJECT)
    put(path, page("A day in five worlds", _LEAD.format(day), [*sections, tables(folder)]))
    return path


def _from_spark(folder: Path, day: date, before: datetime, master: str) -> list[Section]:
    spark = local_session("report", settings={"spark.master": master})
    try:
        found = (rows_of(spark, _results(folder, "availability") / name) for name in ("figures", "statuses"))
        shown = availability.sections(availability.board(*found))
        messages = read_archive(spark, str(folder / "archive"), Selection(PROJECT))
        month = metrics.count(messages, f"{datetime.now(UTC):%Y-%m}", "")
        return [*shown, _versions(spark, folder, day, before), *metrics.sections(month)]
    finally:
        spark.stop()


def _results(folder: Path, job: str) -> Path:
    return folder / job / "results"


def _versions(spark: SparkSession, folder: Path, day: date, before: datetime) -> Section:
    """Return a section with two jobs' earlier results of a day, and the current ones."""

    def compared(table: Path, figure: str, site: str, value: Column, where: Column) -> Rows:
        then, now = (
            {row["site"]: row["value"] for row in rows.where(where).groupBy(F.col(site).alias("site")).agg(
                value.alias("value")).collect()}
            for rows in (rows_of(spark, table, before), rows_of(spark, table))
        )  # fmt: skip
        body = changed(then, now)
        heads = (f"{figure}: version {open_table(str(table), at).version}" for at in (before, None))
        text = f"{table.relative_to(folder)}: of {len(now)} sites {len(body)} have other figures now."
        return Rows(("Site", *heads, "Change"), body, text)

    known = F.col("availability") >= 0  # it is -1 where it is not defined
    of_the_day = (F.col("type") == "endpoint_group") & (F.col("date") == f"{day}") & known
    figures, jobs = _results(folder, "availability") / "figures", _results(folder, "accounting") / "job_summaries"
    best = F.max("availability").cast("double")
    rows = [
        compared(figures, "Availability, %", "endpoint_group", best, of_the_day),
        compared(jobs, "Jobs", "site", F.sum("jobs"), F.lit(True)),
    ]
    return Section("What yesterday's report said", _BEFORE.format(before), rows)


def changed(then: Figures, now: Figures) -> list[tuple[str, float | None, float | None, float]]:
    """Return the sites with a changed figure, with both values and the change.

    >>> changed({"A": 1.0, "B": 2.0}, {"A": 1.0, "B": 5.0, "C": 4.0})
    [('B', 2.0, 5.0, 3.0), ('C', None, 4.0, 4.0)]
    """
    sites = sorted(site for site in {*then, *now} if then.get(site) != now.get(site))
    return [(site, then.get(site), now.get(site), now.get(site, 0) - then.get(site, 0)) for site in sites]


def tables(folder: Path) -> Section:
    rows = []
    for path in sorted(each.parent for each in folder.rglob("_delta_log")):
        table, name = open_table(str(path)), str(path.relative_to(folder))
        rows.append((name.partition("/")[0], name, sum(file.rows for file in table.files), table.version))
    content = [
        Rows(("Job", "Table", "Rows", "Version"), rows, "What the jobs left."),
        Rows(("Program", "All rows", "As they were"), _READING, "How to read a table."),
    ]
    return Section("Tables", _TABLES.format(folder), content)
