"""States of deployments, as a part of a page."""

from collections import Counter
from pathlib import Path

from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars
from ams.pipeline.tables import listed

_HEAD = ("Registry", "Service", "Environment", "State", "Since", "Deployer", "Error")


def sections(results: Path) -> list[Section]:
    """Return what the page says of deployments, from the folder `results` of a run of the job."""
    rows = listed(results / "deployments")
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
        Rows(_HEAD, body, "What is still to be done."),
    ]
    return [Section("Federation", text, content)]
