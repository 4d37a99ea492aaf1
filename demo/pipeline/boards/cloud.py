"""The cloud catalogue as parts of a page, from the file `catalogue.json` alone."""

from collections.abc import Mapping
from typing import Any

from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section

VOS = 12
"""VOs in the plot, those with the most images; the table has them all."""

Catalogue = Mapping[str, Any]


def sections(catalogue: Catalogue) -> list[Section]:
    """Return what the page says of clouds: who finds what, and which sites are there or have fallen silent."""
    stale = sum(site["stale"] for site in catalogue["sites"])
    hours = f"{catalogue['stale_after_hours']:g} hours"
    text = f"{len(catalogue['sites'])} sites, {stale} of them silent for more than {hours}."
    return [
        Section("What VOs find", content=[_plot(catalogue), vo_rows(catalogue)]),
        Section("Clouds", text, [site_rows(catalogue)]),
    ]


def vo_rows(catalogue: Catalogue) -> Rows:
    """Return a row for each VO: at how many sites it finds how many different images and sizes."""
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
    """Return a row for each site's endpoint, the longest silent first."""
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


def _plot(catalogue: Catalogue) -> Figure:
    most = sorted(catalogue["vos"].items(), key=lambda each: (-_different(each[1], "images"), each[0]))[:VOS]
    series = {kind: [float(_different(places, kind)) for _, places in most] for kind in ("images", "flavours")}
    names = {"images": series["images"], "sizes": series["flavours"]}
    return Figure(plots.stacked_bars(names, [vo for vo, _ in most], "different ones"), "Images and sizes a VO may use.")


def _different(places: list[dict[str, Any]], kind: str) -> int:
    return len({name for place in places for name in place[kind]})
