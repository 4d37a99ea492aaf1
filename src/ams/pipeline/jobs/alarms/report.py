"""Open alarms for a page, read from the tables of the job."""

from collections import Counter

import psycopg

from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars

MOST = 20
"""Alarms that are listed; all are counted."""
_OPEN = """
    SELECT site, service, hostname, metric, status, since, reports FROM open_alarms
    ORDER BY array_position(ARRAY['CRITICAL', 'DOWNTIME', 'MISSING', 'UNKNOWN', 'WARNING'], status), since, alarm
"""


def section(database: psycopg.Connection) -> Section:
    """Return the section of a page that shows which alarms are open."""
    rows = database.execute(_OPEN).fetchall()
    count, changes = database.execute("SELECT count(*), sum(changes) FROM alarms").fetchone() or (0, 0)
    statuses = Counter(status for _, _, _, _, status, _, _ in rows)
    bars = stacked_bars({"open": [float(each) for each in statuses.values()]}, list(statuses), "alarms")
    body = [(*words, f"{since:%Y-%m-%d %H:%M}", reports) for *words, since, reports in rows[:MOST]]
    head = ("Site", "Service", "Host", "Metric", "Status", "Since", "Reports")
    return Section(
        "Alarms",
        f"{count} alarms with {changes or 0} changes of status; {len(rows)} are open.",
        [Figure(bars, "Open alarms by status"), Rows(head, body, f"The {len(body)} gravest that are open")],
    )
