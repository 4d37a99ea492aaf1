"""The availability board: figures of sites by day, and the page with plots."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section, page

DAYS = 14
SITES = 40  # sites in the plots, the least available ones; the table has them all
AVAILABILITY, RELIABILITY = 80, 85  # what sites usually promise, in per cent


class Board(NamedTuple):
    """Data of the board."""

    figures: pd.DataFrame
    """Of each site and day: `site`, `date`, `availability`, `reliability`, `partial`; NaN is not defined."""
    timelines: Mapping[str, Sequence[plots.PlotSpan]]  # the statuses of each site on the last day

    @property
    def availability(self) -> pd.DataFrame:
        """Availability by site and day; lowest on the last day first, sites without figures last."""
        cells = self.figures.pivot(index="site", columns="date", values="availability")
        return cells.sort_values(cells.columns[-1], kind="stable")


def board(figures: DataFrame, statuses: DataFrame) -> Board:
    """Collect the board's data from `figures.FIGURES` and `figures.STATUSES`."""
    sites = figures.where("type = 'endpoint_group'").withColumnRenamed("endpoint_group", "site")
    days = [row["date"] for row in sites.select("date").distinct().orderBy(F.desc("date")).limit(DAYS).collect()]
    names = ("availability", "reliability")
    percents = (F.when(F.col(name) >= 0, F.col(name).cast("double")).alias(name) for name in names)
    shown = sites.where(F.col("date").isin(days)).select("site", "date", *percents, "partial")
    seconds = (F.unix_timestamp(name) for name in ("start", "end"))
    of_day = statuses.where((F.col("type") == "endpoint_group") & (F.col("date") == max(days, default="")))
    strips: dict[str, list[plots.PlotSpan]] = {}
    rows = of_day.orderBy("start").select("endpoint_group", *seconds, "status").collect() if days else []
    for site, start, end, status in rows:
        begin, until = (datetime.fromtimestamp(second, UTC) for second in (start, end))
        strips.setdefault(site, []).append((begin, until, status))
    return Board(shown.toPandas(), strips)


def sections(shown: Board) -> list[Section]:
    """Return the sections of the page."""
    if shown.figures.empty:
        return [Section("Availability", "No day has been computed yet.")]
    cells = shown.availability
    days, worst = list(cells.columns), cells.index[:SITES]
    last = shown.figures[shown.figures["date"] == days[-1]].set_index("site")
    last = last.loc[cells.index.intersection(last.index)]
    strips = {site: shown.timelines[site] for site in worst if site in shown.timelines}
    span = f"Availability of sites in per cent, {days[0]} to {days[-1]}, the least available first."
    drawn = Figure(plots.board({site: list(cells.loc[site]) for site in worst}, days), span)
    met = ((last["availability"] >= AVAILABILITY) & (last["reliability"] >= RELIABILITY)).sum()
    unfinished = " The day is not over." if last["partial"].any() else ""
    promise = f"{AVAILABILITY} % availability and {RELIABILITY} % reliability"
    verdict = f"{met} of {len(last)} sites reached {promise} on {days[-1]}.{unfinished}"
    body = list(last[["availability", "reliability"]].itertuples(name=None))
    table = Rows(("Site", "Availability, %", "Reliability, %"), body, f"All sites on {days[-1]}.")
    return [
        Section("Availability", verdict, [drawn]),
        Section("Statuses", content=[Figure(plots.timelines(strips), f"Statuses of sites on {days[-1]}, UTC.")]),
        Section("Figures", content=[table]),
    ]


def as_page(shown: Board) -> str:
    """Return the board as a self-contained page."""
    return page("Availability and reliability", "What monitoring found of the sites, day by day.", sections(shown))
