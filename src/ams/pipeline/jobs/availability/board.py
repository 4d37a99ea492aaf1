"""The availability board: sites and days as plain rows, and as the parts of a page with plots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
TARGETS = {"availability": 80.0, "reliability": 85.0}
"""What sites usually promise, in per cent."""


class SiteFigures(NamedTuple):
    """The figures of a site on a day, in per cent; None where they are not defined."""

    site: str
    date: str
    availability: float | None
    reliability: float | None
    partial: bool


@dataclass(frozen=True, slots=True)
class Board:
    """What the board shows."""

    figures: Sequence[SiteFigures]
    timelines: Mapping[str, Sequence[plots.Span]]
    """The statuses of each site on the last day."""

    @property
    def days(self) -> list[str]:
        """The days, oldest first."""
        return sorted({each.date for each in self.figures})

    @property
    def sites(self) -> list[str]:
        """The sites, the least available on the last day first."""
        last = self.days[-1:]
        known = {each.site: each.availability for each in self.figures if [each.date] == last}
        return sorted({each.site for each in self.figures}, key=lambda site: (_rank(known.get(site)), site))


def board(figures: DataFrame, statuses: DataFrame) -> Board:
    """Collect what the board shows.

    Args:
        figures: `columns.FIGURES`.
        statuses: `columns.STATUSES`.
    """
    sites = figures.where(F.col("type") == "endpoint_group")
    days = [row["date"] for row in sites.select("date").distinct().orderBy(F.desc("date")).limit(DAYS).collect()]
    shown = sites.where(F.col("date").isin(days)).orderBy("endpoint_group", "date").collect()
    rows = [
        SiteFigures(
            row["endpoint_group"], row["date"], _known(row["availability"]), _known(row["reliability"]), row["partial"]
        )
        for row in shown
    ]
    return Board(rows, _timelines(statuses, days[0]) if days else {})


def _timelines(statuses: DataFrame, day: str) -> dict[str, list[plots.Span]]:
    of_sites = (F.col("type") == "endpoint_group") & (F.col("date") == day)
    seconds = (F.unix_timestamp(name).alias(name) for name in ("start", "end"))
    found = statuses.where(of_sites).orderBy("endpoint_group", "start").select("endpoint_group", *seconds, "status")
    strips: dict[str, list[plots.Span]] = {}
    for site, start, end, status in found.collect():
        strips.setdefault(site, []).append(plots.Span(_time(start), _time(end), status))
    return strips


def sections(shown: Board) -> list[Section]:
    """Make the parts of a page about the board."""
    if not shown.figures:
        return [Section("Availability", "No day has been computed yet.")]
    days, last, worst = shown.days, shown.days[-1], shown.sites[:SITES]
    by_place = {(each.site, each.date): each for each in shown.figures}
    cells = {site: [_availability(by_place.get((site, day))) for day in days] for site in worst}
    captions = [
        f"Availability of sites in per cent, {days[0]} to {last}, the least available first.",
        f"Statuses of sites on {last}, UTC.",
    ]
    strips = {site: shown.timelines[site] for site in worst if site in shown.timelines}
    return [
        Section("Availability", _verdict(shown, last), [Figure(plots.board(cells, days), captions[0])]),
        Section("Statuses", content=[Figure(plots.timelines(strips), captions[1])]),
        Section("Figures", content=[_table(shown, last)]),
    ]


def as_page(shown: Board) -> str:
    """Return the board as a page that stands alone."""
    return page("Availability and reliability", "What monitoring found of the sites, day by day.", sections(shown))


def _verdict(shown: Board, day: str) -> str:
    today = [each for each in shown.figures if each.date == day]
    met = sum(
        (each.availability or 0) >= TARGETS["availability"] and (each.reliability or 0) >= TARGETS["reliability"]
        for each in today
    )
    unfinished = " The day is not over." if any(each.partial for each in today) else ""
    return f"{met} of {len(today)} sites reached {TARGETS['availability']:.0f} % availability and " + (
        f"{TARGETS['reliability']:.0f} % reliability on {day}.{unfinished}"
    )


def _table(shown: Board, day: str) -> Rows:
    found = {each.site: each for each in shown.figures if each.date == day}
    body = [(site, found[site].availability, found[site].reliability) for site in shown.sites if site in found]
    return Rows(("Site", "Availability, %", "Reliability, %"), body, f"All sites on {day}.")


def _availability(figures: SiteFigures | None) -> float | None:
    return figures.availability if figures else None


def _known(figure: object) -> float | None:
    value = float(str(figure))
    return value if value >= 0 else None


def _rank(availability: float | None) -> float:
    return 101.0 if availability is None else availability


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
