"""The availability board: sites and days as plain rows, and as the parts of a page with plots."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section, page

DAYS = 14
"""Days on the board, the last ones that have figures."""
SITES = 40
"""Sites in the plots, the least available ones; the table has them all."""
AVAILABILITY, RELIABILITY = 80, 85
"""What sites usually promise, in per cent."""


class SiteFigures(NamedTuple):
    """The figures of a site on a day, in per cent; None where they are not defined."""

    site: str
    date: str
    availability: float | None
    reliability: float | None
    partial: bool


class Board(NamedTuple):
    """What the board shows."""

    figures: Sequence[SiteFigures]
    timelines: Mapping[str, Sequence[plots.Span]]
    """The statuses of each site on the last day."""

    @property
    def days(self) -> list[str]:
        """The days, oldest first."""
        return sorted({each.date for each in self.figures})

    @property
    def last(self) -> dict[str, SiteFigures]:
        """The figures of the last day, by site."""
        return {each.site: each for each in self.figures if each.date == self.days[-1]}

    @property
    def sites(self) -> list[str]:
        """The sites, the least available on the last day first, those without figures last."""
        known = {site: each.availability for site, each in self.last.items() if each.availability is not None}
        return sorted({each.site for each in self.figures}, key=lambda site: (known.get(site, 101), site))


def board(figures: DataFrame, statuses: DataFrame) -> Board:
    """Collect what the board shows from `columns.FIGURES` and `columns.STATUSES`."""
    sites = figures.where("type = 'endpoint_group'")
    days = [row["date"] for row in sites.select("date").distinct().orderBy(F.desc("date")).limit(DAYS).collect()]
    percents = (F.when(F.col(name) >= 0, F.col(name).cast("double")) for name in ("availability", "reliability"))
    shown = sites.where(F.col("date").isin(days)).select("endpoint_group", "date", *percents, "partial")
    return Board([SiteFigures(*row) for row in shown.collect()], _timelines(statuses, days[0]) if days else {})


def _timelines(statuses: DataFrame, day: str) -> dict[str, list[plots.Span]]:
    of_sites = statuses.where((F.col("type") == "endpoint_group") & (F.col("date") == day))
    seconds = (F.unix_timestamp(name) for name in ("start", "end"))
    strips: dict[str, list[plots.Span]] = {}
    for site, start, end, status in of_sites.orderBy("start").select("endpoint_group", *seconds, "status").collect():
        begin, until = (datetime.fromtimestamp(second, UTC) for second in (start, end))
        strips.setdefault(site, []).append(plots.Span(begin, until, status))
    return strips


def sections(shown: Board) -> list[Section]:
    """Make the parts of a page about the board."""
    if not shown.figures:
        return [Section("Availability", "No day has been computed yet.")]
    days, last, worst = shown.days, shown.last, shown.sites[:SITES]
    known = {(each.site, each.date): each.availability for each in shown.figures}
    cells = {site: [known.get((site, day)) for day in days] for site in worst}
    strips = {site: shown.timelines[site] for site in worst if site in shown.timelines}
    span = f"Availability of sites in per cent, {days[0]} to {days[-1]}, the least available first."
    body = [(site, last[site].availability, last[site].reliability) for site in shown.sites if site in last]
    table = Rows(("Site", "Availability, %", "Reliability, %"), body, f"All sites on {days[-1]}.")
    return [
        Section("Availability", _verdict(list(last.values()), days[-1]), [Figure(plots.board(cells, days), span)]),
        Section("Statuses", content=[Figure(plots.timelines(strips), f"Statuses of sites on {days[-1]}, UTC.")]),
        Section("Figures", content=[table]),
    ]


def as_page(shown: Board) -> str:
    """Return the board as a page that stands alone."""
    return page("Availability and reliability", "What monitoring found of the sites, day by day.", sections(shown))


def _verdict(sites: Sequence[SiteFigures], day: str) -> str:
    met = sum((each.availability or 0) >= AVAILABILITY and (each.reliability or 0) >= RELIABILITY for each in sites)
    unfinished = " The day is not over." if any(each.partial for each in sites) else ""
    promise = f"{AVAILABILITY} % availability and {RELIABILITY} % reliability"
    return f"{met} of {len(sites)} sites reached {promise} on {day}.{unfinished}"
