"""Parts of the demo's page, made from the results of the jobs: accounting, alarms, clouds and the federation."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ams.pipeline.jobs.alarm_messages import STATUSES
from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars
from ams.tables.files import Partition
from ams.tables.table import exists, open_table

if TYPE_CHECKING:
    from ams.pipeline.postgres import Session


BENCHMARKS = ("hepscore23", "hepspec", "si2k")
"""The unit of normalised time shown, if there are several; all three are on the scale of HEP-SPEC06."""
_HOUR, _TERABYTE = 3600, 10**12
_WORK = ("Site", "Jobs", "Wall hours", "CPU hours", "Normalised CPU hours")
_CLOUD = ("Site", "Machines", "CPU hours", "Terabytes")
_LOSS = ("Site", "Submit host", "Told", "Came", "Missing", "Surplus")


def read_rows(
    path: Path, partitions: Iterable[Partition] | None = None, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a small table without Spark; empty if there is no table."""
    if not exists(str(path)):
        return []
    found = open_table(str(path))
    return [row for batch in found.batches(columns, found.select(partitions)) for row in batch.to_pylist()]


def months(results: Path) -> list[str]:
    names = ("job_summaries", "site_summaries")
    return sorted({row["month"] for name in names for row in read_rows(results / name, columns=("month",))})


def accounting_sections(results: Path, month: str) -> list[Section]:
    """Return the sections of a page for a month; sites' own summaries count too, and storage is the average of days."""

    def rows(name: str) -> list[dict[str, Any]]:
        return read_rows(results / name, [{"month": month}])

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


SITES = 20
OPEN = 50  # open alarms on the page, the oldest ones


def alarm_sections(connection: "Session", project: str) -> list[Section]:
    return [Section("Alarms", content=[_alarm_plot(connection, project), open_rows(connection, project)])]


def open_rows(connection: "Session", project: str) -> Rows:
    words = """
        SELECT site, service, hostname, metric, status, to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), reports
        FROM open_alarms WHERE project = %s AND level = 'metric' AND kind = 'alarm' ORDER BY since, alarm LIMIT %s
    """
    found = connection.execute(words, (project, OPEN)).fetchall()
    return Rows(
        ("Site", "Service", "Host", "Metric", "Status", "Since (UTC)", "Reports"), found, "Open, the oldest first."
    )


def _alarm_plot(connection: "Session", project: str) -> Figure:
    words = """
        SELECT site, status, count(*) FROM alarm_changes
        WHERE project = %s AND kind = 'alarm' AND status <> 'OK' GROUP BY site, status
    """
    counts: dict[str, dict[str, int]] = {}
    for site, status, count in connection.execute(words, (project,)):
        counts.setdefault(site, {})[status] = count
    most = sorted(counts, key=lambda site: (-sum(counts[site].values()), site))[:SITES]
    bad = [status for status in STATUSES[1:] if any(status in counts[site] for site in most)]
    series = {status: [float(counts[site].get(status, 0)) for site in most] for status in bad}
    return Figure(plots.stacked_bars(series, most, "alarms"), "How often something went wrong at a site, by status.")


VOS = 12  # VOs in the plot, those with the most images; the table has them all

Catalogue = Mapping[str, Any]


def cloud_sections(catalogue: Catalogue) -> list[Section]:
    stale = sum(site["stale"] for site in catalogue["sites"])
    hours = f"{catalogue['stale_after_hours']:g} hours"
    most = sorted(catalogue["vos"].items(), key=lambda each: (-_different(each[1], "images"), each[0]))[:VOS]
    series = {kind: [float(_different(places, kind)) for _, places in most] for kind in ("images", "flavours")}
    bars = {"images": series["images"], "sizes": series["flavours"]}
    drawn = plots.stacked_bars(bars, [vo for vo, _ in most], "different ones")
    plot = Figure(drawn, "Images and sizes a VO may use.")
    text = f"{len(catalogue['sites'])} sites, {stale} of them silent for more than {hours}."
    return [
        Section("What VOs find", content=[plot, vo_rows(catalogue)]),
        Section("Clouds", text, [site_rows(catalogue)]),
    ]


def vo_rows(catalogue: Catalogue) -> Rows:
    body = [
        (
            vo or "(nobody's)",
            len({place["site"] for place in places}),
            _different(places, "images"),
            _different(places, "flavours"),
        )
        for vo, places in sorted(catalogue["vos"].items())
    ]
    return Rows(("VO", "Sites", "Images", "Sizes"), body)


def site_rows(catalogue: Catalogue) -> Rows:
    order = sorted(catalogue["sites"], key=lambda site: (-site["silent_hours"], site["topic"]))
    body = [
        (
            site["site"],
            site["endpoint_id"],
            site["shape"],
            site["silent_hours"],
            "stale" if site["stale"] else "",
            len(site["vos"]),
            site["images"],
            site["flavours"],
            site["cores"],
        )
        for site in order
    ]
    return Rows(("Site", "Endpoint", "Shape", "Hours silent", "State", "VOs", "Images", "Sizes", "Cores"), body)


def _different(places: list[dict[str, Any]], kind: str) -> int:
    return len({name for place in places for name in place[kind]})


_DEPLOYMENT_HEAD = ("Registry", "Service", "Environment", "State", "Since", "Deployer", "Error")


def federation_sections(results: Path) -> list[Section]:
    rows = read_rows(results / "deployments")
    states = Counter(row["state"] for row in rows)
    bars = stacked_bars({"deployments": [float(count) for count in states.values()]}, list(states), "deployments")
    waiting = sorted(
        (row for row in rows if row["state"] not in ("deployed", "deleted")),
        key=lambda row: (row["registry"], row["id"]),
    )
    body = [
        (
            row["registry"],
            row["service_name"],
            row["environment"],
            row["state"],
            f"{row['state_since']:%Y-%m-%d %H:%M}" if row["state_since"] else None,
            row["deployer"],
            row["error"],
        )
        for row in waiting
    ]
    text = f"{len(rows)} services, {len(waiting)} of which are not as their registry wants them."
    content: list[Figure | Rows] = [
        Figure(bars, "Deployments by state."),
        Rows(_DEPLOYMENT_HEAD, body, "What is still to be done."),
    ]
    return [Section("Federation", text, content)]
