"""The catalogue as parts of a page."""

from typing import Any

from ams.pipeline.report.page import page
from demo.pipeline.boards.cloud import sections, site_rows, vo_rows

SITE = {"topic": "t", "site": "A", "endpoint_id": "1G0", "shape": "ldif", "vos": ["ops"], "images": 2, "flavours": 1}
CATALOGUE: dict[str, Any] = {
    "stale_after_hours": 12.0,
    "sites": [
        {**SITE, "silent_hours": 0.5, "stale": False, "cores": 64},
        {**SITE, "site": "B", "silent_hours": 13.0, "stale": True, "cores": None},
    ],
    "vos": {
        "": [{"site": "A", "images": ["x"], "flavours": []}],
        "ops": [
            {"site": "A", "images": ["x", "y"], "flavours": ["small"]},
            {"site": "B", "images": ["x"], "flavours": ["small"]},
        ],
    },
}


def test_a_vo_finds_different_images_and_sizes() -> None:
    assert vo_rows(CATALOGUE).body == [("(nobody's)", 1, 1, 0), ("ops", 2, 2, 1)]


def test_the_longest_silent_site_comes_first() -> None:
    rows = [row[:5] for row in site_rows(CATALOGUE).body]

    assert rows == [("B", "1G0", "ldif", 13.0, "stale"), ("A", "1G0", "ldif", 0.5, "")]


def test_the_parts_make_a_page_also_of_an_empty_catalogue() -> None:
    assert "2 sites, 1 of them silent for more than 12 hours." in page("Clouds", "", sections(CATALOGUE))
    assert "0 sites" in page("Clouds", "", sections({"stale_after_hours": 12, "sites": [], "vos": {}}))
