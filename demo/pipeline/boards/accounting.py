"""A month of accounting: plain rows from the result files, and the parts of a page made of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars
from ams.pipeline.tables import listed

BENCHMARKS: Final = ("hepscore23", "hepspec", "si2k")
"""Which normalised time is shown of several; all three are on the scale of HEP-SPEC06."""
_HOUR, _TERABYTE = 3600, 10**12


@dataclass(frozen=True, slots=True)
class Work:
    """What the jobs of a site or VO, or a part of them, came to; times in hours."""

    jobs: int
    wall: float
    cpu: float
    normalised_cpu: float


@dataclass(frozen=True, slots=True)
class Month:
    """A month, by names in their order; summaries that sites made themselves are counted with what we summed."""

    month: str
    by_site: Mapping[str, Work]
    by_site_and_vo: Mapping[str, Mapping[str, float]]
    """Normalised CPU hours."""
    machines: Mapping[str, tuple[int, float]]
    """Virtual machines of a site, and their CPU hours."""
    storage: Mapping[str, float]
    """Terabytes of a site, on average over the days it told of."""
    losses: Sequence[tuple[str, str, int, int, int, int]]
    """Site, submit host, told, came, missing and surplus, where the numbers differ."""


def months(results: Path) -> list[str]:
    """Return the months there are job summaries of, oldest first."""
    names = ("job_summaries", "site_summaries")
    return sorted({row["month"] for name in names for row in listed(results / name, columns=("month",))})


def read_month(results: Path, month: str) -> Month:
    """Read what a run of the job computed for a month from its folder `results`."""
    summaries = [*_rows(results, "job_summaries", month), *_rows(results, "site_summaries", month)]
    by_site, by_vo = _sums(summaries)
    machines: dict[str, tuple[int, float]] = {}
    for row in _rows(results, "vm_summaries", month):
        count, hours = machines.get(row["site"], (0, 0.0))
        machines[row["site"]] = (count + row["vms"], hours + (row["cpu"] or 0) / _HOUR)
    storage: defaultdict[str, float] = defaultdict(float)
    for row in _rows(results, "storage_summaries", month):
        storage[row["site"] or "-"] += row["average_used"] / _TERABYTE
    return Month(
        month, by_site, by_vo, dict(sorted(machines.items())), dict(sorted(storage.items())), _losses(results, month)
    )


def sections(month: Month) -> list[Section]:
    """Return the sections of a page that show a month."""
    sites = list(month.by_site)
    vos = sorted({vo for each in month.by_site_and_vo.values() for vo in each})
    bars = {vo: [month.by_site_and_vo[site].get(vo, 0.0) for site in sites] for vo in vos}
    jobs = [(site, each.jobs, each.wall, each.cpu, each.normalised_cpu) for site, each in month.by_site.items()]
    other = sorted({*month.machines, *month.storage})
    clouds = [(site, *month.machines.get(site, (0, 0.0)), month.storage.get(site, 0.0)) for site in other]
    head = ("Site", "Jobs", "Wall hours", "CPU hours", "Normalised CPU hours")
    content: list[Figure | Rows] = [
        Rows(head, jobs, "Jobs by site"),
        Rows(("Site", "Machines", "CPU hours", "Terabytes"), clouds, "Virtual machines and storage by site"),
    ]
    if bars:
        content.insert(0, Figure(stacked_bars(bars, sites, "hours"), "Normalised CPU hours by site and VO"))
    if month.losses:
        lost = ("Site", "Submit host", "Told", "Came", "Missing", "Surplus")
        content.append(Rows(lost, month.losses, "Where sites say another number of jobs than came"))
    return [Section(f"Accounting of {month.month}", "Usage by the month jobs ended in.", content)]


def _sums(summaries: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Work], dict[str, dict[str, float]]]:
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    by_vo: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in summaries:
        normalised = _normalised(row) / _HOUR
        values = (row["jobs"], (row["wall"] or 0) / _HOUR, (row["cpu"] or 0) / _HOUR, normalised)
        sums[row["site"]] = [old + new for old, new in zip(sums[row["site"]], values, strict=True)]
        by_vo[row["site"]][row["vo"] or "-"] += normalised
    work = {site: Work(int(jobs), wall, cpu, last) for site, (jobs, wall, cpu, last) in sorted(sums.items())}
    return work, {site: dict(sorted(vos.items())) for site, vos in sorted(by_vo.items())}


def _normalised(row: Mapping[str, Any]) -> int:
    found = {each["benchmark"]: each["cpu"] or 0 for each in row["normalised"] or ()}
    known = [found[name] for name in BENCHMARKS if name in found]
    return next(iter([*known, *found.values()]), 0)


def _losses(results: Path, month: str) -> list[tuple[str, str, int, int, int, int]]:
    different = [row for row in _rows(results, "sync", month) if row["missing"] or row["surplus"]]
    return sorted(
        (
            row["site"],
            row["submit_host"] or "-",
            row["told"],
            max(row["arrived"], row["summarised"]),
            row["missing"],
            row["surplus"],
        )
        for row in different
    )


def _rows(results: Path, name: str, month: str) -> list[dict[str, Any]]:
    return listed(results / name, [{"month": month}])
