"""What tables said before late messages came, beside what they say now: each run left its version of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ams.pipeline.report.page import Rows, Section
from ams.pipeline.tables import rows_of
from ams.tables.snapshot import open_table

_TEXT = (
    "At {:%Y-%m-%d %H:%M:%S} UTC the results of a monitoring host and the jobs of a site had not come. Each run leaves "
    "a version of its tables, which can be read for 400 days: rows_of(spark, table, at), with a number or a time."
)

Figures = Mapping[str, float]
"""A figure of each site."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of sites that a table tells."""

    path: str
    """Of the table, below the folder of the demo."""
    figure: str
    site: str
    """The column with the site."""
    value: Column
    where: Column

    def read(self, table: DataFrame) -> Figures:
        """Return the figure of each site."""
        found = table.where(self.where).groupBy(self.site).agg(self.value.alias("value"))
        return {row[self.site]: row["value"] for row in found.collect()}


def section(spark: SparkSession, folder: Path, day: date, before: datetime) -> Section:
    """Return a section that shows what two jobs said of a day at a time, and what they say now."""
    known = F.col("availability") >= 0  # it is -1 where it is not defined
    of_the_day = (F.col("type") == "endpoint_group") & (F.col("date") == f"{day}") & known
    shown = (
        Shown(
            "availability/results/figures",
            "Availability, %",
            "endpoint_group",
            F.max("availability").cast("double"),
            of_the_day,
        ),
        Shown("accounting/results/job_summaries", "Jobs", "site", F.sum("jobs"), F.lit(True)),
    )
    return Section(
        "What yesterday's report said", _TEXT.format(before), [_rows(spark, folder, each, before) for each in shown]
    )


def _rows(spark: SparkSession, folder: Path, shown: Shown, before: datetime) -> Rows:
    path = folder / shown.path
    then, now = shown.read(rows_of(spark, path, before)), shown.read(rows_of(spark, path))
    body = changed(then, now)
    head = (
        "Site",
        *(f"{shown.figure}: version {open_table(str(path), at).version}" for at in (before, None)),
        "Change",
    )
    return Rows(head, body, f"{shown.path}: of {len(now)} sites {len(body)} have other figures now.")


def changed(then: Figures, now: Figures) -> list[tuple[str, float | None, float | None, float]]:
    """Return the sites whose figure is another one now, with both and the change.

    >>> changed({"A": 1.0, "B": 2.0}, {"A": 1.0, "B": 5.0, "C": 4.0})
    [('B', 2.0, 5.0, 3.0), ('C', None, 4.0, 4.0)]
    """
    sites = sorted(site for site in {*then, *now} if then.get(site) != now.get(site))
    return [(site, then.get(site), now.get(site), now.get(site, 0) - then.get(site, 0)) for site in sites]
