"""The availability board of plain rows."""

from datetime import UTC, datetime

from ams.pipeline.jobs.availability.board import Board, SiteFigures, as_page, sections
from ams.pipeline.report.plots import Span

FIGURES = [
    SiteFigures("SITE-A", "2024-03-04", 100.0, 100.0, False),
    SiteFigures("SITE-A", "2024-03-05", 70.81509, 89.46537, True),
    SiteFigures("SITE-B", "2024-03-05", None, None, True),
    SiteFigures("SITE-C", "2024-03-05", 98.0, 99.0, True),
]
SPANS = {"SITE-A": [Span(datetime(2024, 3, 5, tzinfo=UTC), datetime(2024, 3, 6, tzinfo=UTC), "CRITICAL")]}


def test_the_least_available_site_comes_first_and_one_without_figures_last() -> None:
    board = Board(FIGURES, SPANS)

    assert board.days == ["2024-03-04", "2024-03-05"]
    assert board.sites == ["SITE-A", "SITE-C", "SITE-B"]


def test_the_page_tells_who_met_the_targets() -> None:
    found = as_page(Board(FIGURES, SPANS))

    assert "1 of 3 sites reached 80 % availability and 85 % reliability on 2024-03-05. The day is not over." in found
    assert "70.8" in found
    assert found.count("<svg") == 2


def test_a_board_without_days_says_so() -> None:
    assert sections(Board([], {}))[0].text == "No day has been computed yet."
