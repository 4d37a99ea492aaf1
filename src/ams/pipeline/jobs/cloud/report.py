"""The catalogue for a page: what each VO finds, and how the sites are."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ams.pipeline.report.page import Figure, Rows, Section
from ams.pipeline.report.plots import stacked_bars

_GIBIBYTE = 1024
"""Of memory, in MiB."""


def section(results: Path) -> Section:
    """Return the section of a page that shows what a run of the job found, from its folder `results`."""
    sites = _rows(results, "sites")
    images, flavours = (_by_vo(_rows(results, name)) for name in ("images", "flavours"))
    vos = sorted({*images, *flavours} - {""})
    cores = {"cores": [float(each["cores"] or 0) for each in sites]}
    offered = [
        (vo, len({each["site"] for each in images[vo]}), _different(images[vo]), _different(flavours[vo])) for vo in vos
    ]
    described = [
        (
            each["site"],
            "silent" if each["stale"] else "ok",
            each["silent_hours"],
            each["cores"],
            _in_gib(each["ram_mb"]),
            each["images"],
            each["flavours"],
        )
        for each in sites
    ]
    return Section(
        "Cloud catalogue",
        f"{len(sites)} sites, {sum(each['stale'] for each in sites)} of them silent for too long.",
        [
            Figure(stacked_bars(cores, [each["site"] for each in sites], "cores"), "Cores of each site"),
            Rows(("VO", "Sites", "Images", "Flavours"), offered, "What each VO finds, by name"),
            Rows(("Site", "State", "Silent hours", "Cores", "Memory, GiB", "Images", "Flavours"), described, "Sites"),
        ],
    )


def _by_vo(rows: list[dict[str, Any]]) -> Mapping[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["vo"]].append(row)
    return found


def _different(rows: list[dict[str, Any]]) -> int:
    return len({row["name"] for row in rows})


def _in_gib(mebibytes: int | None) -> int | None:
    return None if mebibytes is None else mebibytes // _GIBIBYTE


def _rows(results: Path, name: str) -> list[dict[str, Any]]:
    path = results / name / "data.parquet"
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist() if path.exists() else []
    return sorted(rows, key=lambda row: (row["site"] or "", row["topic"] or ""))
