"""A month of accounting as a part of a page, from the result tables of the job."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars
from ams.pipeline.tables import listed

BENCHMARKS = ("hepscore23", "hepspec", "si2k")
"""Which normalised time is shown of several; all three are on the scale of HEP-SPEC06."""
_HOUR, _TERABYTE = 3600, 10**12
_WORK = ("Site", "Jobs", "Wall hours", "CPU hours", "Normalised CPU hours")
_CLOUD = ("Site", "Machines", "CPU hours", "Terabytes")
_LOSS = ("Site", "Submit host", "Told", "Came", "Missing", "Surplus")


def months(results: Path) -> list[str]:
    """Return the months there are job summaries of, oldest first."""
    names = ("job_summaries", "site_summaries")
    return sorted({row["month"] for name in names for row in listed(results / name, columns=("month",))})


def sections(results: Path, month: str) -> list[Section]:
    """Return the sections of a page that show a month.

    Summaries that sites made themselves count with those that the job made. Storage is the average over days.
    """

    def rows(name: str) -> list[dict[str, Any]]:
        return listed(results / name, [{"month": month}])

    work: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    hours: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in [*rows("job_summaries"), *rows("site_summaries")]:
        values = (row["jobs"], (row["wall"] or 0) / _HOUR, (row["cpu"] or 0) / _HOUR, _normalised(row) / _HOUR)
        work[row["site"]] = [old + new for old, new in zip(work[row["site"]], values, strict=True)]
        hours[row["vo"] or "-"][row["site"]] += values[-1]
    clouds: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for row in rows("vm_summaries"):
        clouds[row["site"]][0] += row["vms"]
        clouds[row["site"]][1] += (row["cpu"] or 0) / _HOUR
    for row in rows("storage_summaries"):
        clouds[row["site"] or "-"][2] += row["average_used"] / _TERABYTE
    content: list[Figure | Rows] = [
        Rows(_WORK, [(site, *work[site]) for site in sorted(work)], "Jobs by site"),
        Rows(_CLOUD, [(site, *clouds[site]) for site in sorted(clouds)], "Virtual machines and storage by site"),
    ]
    if hours:
        bars = {vo: [hours[vo][site] for site in sorted(work)] for vo in sorted(hours)}
        content.insert(0, Figure(stacked_bars(bars, sorted(work), "hours"), "Normalised CPU hours by site and VO"))
    if losses := sorted(_loss(row) for row in rows("sync") if row["missing"] or row["surplus"]):
        content.append(Rows(_LOSS, losses, "Where sites say another number of jobs than came"))
    return [Section(f"Accounting of {month}", "Usage by the month jobs ended in.", content)]


def _normalised(row: Mapping[str, Any]) -> int:
    found = {each["benchmark"]: each["cpu"] or 0 for each in row["normalised"] or ()}
    known = [found[name] for name in BENCHMARKS if name in found]
    return next(iter([*known, *found.values()]), 0)


def _loss(row: Mapping[str, Any]) -> tuple[str, str, int, int, int, int]:
    came = max(row["arrived"], row["summarised"])
    return row["site"], row["submit_host"] or "-", row["told"], came, row["missing"], row["surplus"]
