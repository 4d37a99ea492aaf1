import importlib
import re
from collections.abc import Callable

import pytest
from _pytest.mark import ParameterSet

from ams.wire.actions import ACTIONS
from tests.contract import delivery, parallel, versions
from tests.contract.lines import LINES
from tests.contract.rows import Request, Row
from tests.contract.runner import Runner, is_hot

MODULES = (
    "transport", "access", "users", "registrations", "resources", "delivery", "push", "schemas", "metrics", "ours",
    "ours_push", "parallel", "standing", "versions",
)  # fmt: skip
ROWS: list[Row] = [row for name in MODULES for row in importlib.import_module(f"tests.contract.{name}").ROWS]
ON_BOTH_SHAPES = {
    (row.line, row.served): row for module in (delivery, parallel) for row in reversed(module.ROWS)
}.values()
"""The first row of each line about messages: `make test` runs them on Kafka and PostgreSQL too."""
OWN_CLOCKS = pytest.mark.embedded("brokers and PostgreSQL go by clocks of their own, which nobody can move")


def _row_param(row: Row, *marks: pytest.MarkDecorator) -> ParameterSet:
    marks += (OWN_CLOCKS,) if row.needs_clock else ()
    return pytest.param(row, marks=marks, id=f"{row.line}: {row.says}")


@pytest.mark.parametrize(
    "row", [_row_param(row, *([pytest.mark.both_shapes] if row in ON_BOTH_SHAPES else [])) for row in ROWS]
)
def test_the_service_answers_as_the_contract_says(row: Row, runner: Callable[[str], Runner]) -> None:
    runner(row.served).run_row(row)


HOT = [row for row in ROWS if any(isinstance(each, Request) and is_hot(each) for each in row.steps)]
"""Rows with a request that can take the fast lane."""


# The tests of each commit compare lane and ASGI elsewhere: tests/http/test_two_ways.py.
@pytest.mark.long
@pytest.mark.parametrize("row", [_row_param(row) for row in HOT])
def test_the_fast_lane_answers_as_the_contract_says(row: Row, primed_runner: Callable[[str], Runner]) -> None:
    primed_runner(row.served).run_row(row)


def test_every_line_of_the_contracts_has_its_row() -> None:
    assert set(LINES) - {line for row in ROWS for line in row.lines} == set()


def test_no_two_rows_say_the_same() -> None:
    said = [(row.line, row.says, row.served) for row in ROWS]
    assert len(said) == len(set(said))


def test_every_change_that_may_be_meant_for_a_version_is_refused_for_an_older_one() -> None:
    asked = {(row.ask.method, row.ask.path) for row in versions.ROWS if row.gets is versions.CHANGED}
    for action in ACTIONS.values():
        path = re.sub(r"\{\w+\}", "[^/:]+", action.path)
        is_asked = any(method == action.method and re.fullmatch(path, each) for method, each in asked)
        assert is_asked or not action.versioned or action.method == "GET", action.name
