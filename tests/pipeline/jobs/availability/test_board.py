"""The availability board of plain rows."""

from datetime import UTC, datetime

import pandas as pd

from ams.pipeline.jobs.availability.board import Board, as_page, sections
from ams.pipeline.report.plots import Span

COLUMNS = ["site", "date", "availability", "reliability", "partial"]
FIGURES = pd.DataFrame(
    [
        ("SITE-A", "2024-03-04", 100.0, 100.0, False),
        ("SITE-B", "2024-03-05", None, None, True),
        ("SITE-A", "2024-03-05", 70.81509, 89.46537, True),
        ("SITE-C", "2024-03-05", 98.0, 99.0, True),
    ],
    columns=COLUMNS,
)
SPANS = {"SITE-A": [Span(datetime(2024, 3, 5, tzinfo=UTC), datetime(2024, 3, 6, tzinfo=UTC), "CRITICAL")]}


def test_the_least_available_site_comes_first_and_one_without_figures_last() -> None:
    cells = Board(FIGURES, SPANS).availability
    [*_, figures] = sections(Board(FIGURES, SPANS))

    assert list(cells.columns) == ["2024-03-04", "2024-03-05"]
    assert list(cells.index) == ["SITE-A", "SITE-C", "SITE-B"]
    assert [row[:2] for row in figures.content[0].body][:2] == [("SITE-A", 70.81509), ("SITE-C", 98.0)]


def test_the_page_tells_who_met_the_targets() -> None:
    found = as_page(Board(FIGURES, SPANS))

    assert "1 of 3 sites reached 80 % availability and 85 % reliability on 2024-03-05. The day is not over." in found
    assert "70.8" in found
    assert "nan" not in found
    assert found.count("<svg") == 2


def test_a_board_without_days_says_so() -> None:
    assert sections(Board(FIGURES[:0], {}))[0].text == "No day has been computed yet."
