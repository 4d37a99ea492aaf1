"""A page says what it was given, escaped, and needs nothing else."""

import re
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from ams.pipeline.report.page import Figure, Rows, Section, page, put
from ams.pipeline.report.plots import STATUS_COLOURS, Span, board, stacked_bars, timelines

MIDNIGHT = datetime(2024, 3, 5, tzinfo=UTC)
DRAWN = {
    "stacked bars": lambda: stacked_bars({"atlas": [175e3, 2.0], "<cms>": [0.5, 0.0]}, ["SITE-A", "SITE-B"], "hours"),
    "a board": lambda: board({"SITE-A": [99.5, nan], "SITE-B": [0.0, 100.0]}, ["5 March", "6 March"]),
    "timelines": lambda: timelines({"ce01.example.org": [Span(MIDNIGHT, MIDNIGHT + timedelta(hours=3), "CRITICAL")]}),
    "nothing": lambda: stacked_bars({}, [], "hours"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_is_a_well_formed_picture_and_the_same_each_time(name: str) -> None:
    drawn = DRAWN[name]()

    assert Xml.fromstring(drawn).tag.endswith("svg")
    assert drawn == DRAWN[name]()


def words(drawn: str) -> set[str]:
    return {each.text for each in Xml.fromstring(drawn).iter() if each.text}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stacked bars", {"SITE-A", "100,000"}),
        ("a board", {"SITE-A", "99.5", "-", "6 March"}),
        ("timelines", {"00:00", "01:00", "02:00", "CRITICAL", "ce01.example.org"}),
    ],
)
def test_the_words_of_a_plot_are_text(name: str, expected: set[str]) -> None:
    assert expected <= words(DRAWN[name]())


def test_statuses_have_their_own_colours_and_counts_whole_numbers() -> None:
    drawn = stacked_bars({"WARNING": [1.0], "CRITICAL": [2.0]}, ["SITE-A"], "alarms")

    assert {STATUS_COLOURS["WARNING"], STATUS_COLOURS["CRITICAL"]} <= set(re.findall(r"#[0-9a-f]{6}", drawn))
    assert {"0", "1", "2", "3"} <= words(drawn)
    assert not {"0.5", "1.5"} & words(drawn)


def test_a_page_shows_its_sections_escapes_what_they_say_and_fetches_nothing() -> None:
    rows = Rows(("topic", "messages", "share"), [("<script>", 12345, 0.5), (None, True, -1), ("jobs", 7, None)], "All")
    plots = Section("Plots", content=[Figure(DRAWN["stacked bars"](), "Hours of sites")])

    written = page("Report", "of a day", [Section("Usage <1>", "a & b", [rows]), plots])

    assert "Usage &lt;1&gt;" in written
    assert "a &amp; b" in written
    assert '<td>&lt;script&gt;</td><td class="number">12,345</td><td class="number">0.50</td>' in written
    assert '<td>-</td><td>True</td><td class="number">-1</td>' in written
    assert '<th scope="col">topic</th><th scope="col">messages</th><th scope="col" class="number">share</th>' in written
    assert "<figcaption>Hours of sites</figcaption>" in written
    assert written.count("<svg") == 1
    assert not re.findall(r"<script|<link|<img|src=|@import|url\(http", written)


def test_a_page_is_put_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    for text in ("old", "Ζεύς"):
        put(tmp_path / "results" / "page.html", text)

    assert [each.name for each in (tmp_path / "results").iterdir()] == ["page.html"]
    assert (tmp_path / "results" / "page.html").read_text(encoding="utf-8") == "Ζεύς"
