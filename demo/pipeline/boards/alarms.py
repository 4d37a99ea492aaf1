"""Alarms as parts of a page, read from the tables that the job writes."""

from typing import TYPE_CHECKING

from ams.pipeline.jobs.alarms.parse import STATUSES
from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section

if TYPE_CHECKING:
    from ams.pipeline.postgres import Session

SITES = 20
"""Sites in the plot, those with the most alarms."""
OPEN = 50
"""Open alarms on the page, the oldest ones."""


def sections(connection: "Session", project: str) -> list[Section]:
    """Return what the page says of a project's alarms: how many each site had, and which are open."""
    return [Section("Alarms", content=[_plot(connection, project), open_rows(connection, project)])]


def open_rows(connection: "Session", project: str) -> Rows:
    """Return the oldest open alarms of metrics."""
    words = """
        SELECT site, service, hostname, metric, status, to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), reports
        FROM open_alarms WHERE project = %s AND level = 'metric' AND kind = 'alarm' ORDER BY since, alarm LIMIT %s
    """
    found = connection.execute(words, (project, OPEN)).fetchall()
    return Rows(
        ("Site", "Service", "Host", "Metric", "Status", "Since (UTC)", "Reports"), found, "Open, the oldest first."
    )


def _plot(connection: "Session", project: str) -> Figure:
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
