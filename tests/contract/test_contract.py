from collections.abc import Callable

import pytest
from _pytest.mark import ParameterSet

from tests.contract import (
    access,
    checked,
    clients,
    dead_letters,
    delivered,
    delivery,
    leases,
    metrics,
    ours,
    ours_push,
    parallel,
    people,
    push,
    registrations,
    resources,
    schemas,
    service,
    signing,
    standing,
    tokens,
    transport,
    usage,
    users,
)
from tests.contract.conftest import Primed
from tests.contract.lines import LINES
from tests.contract.rows import Ask, Row
from tests.contract.runner import Runner, is_hot

MODULES = (
    transport, access, users, people, registrations, resources, delivery, push, delivered, schemas, checked, service,
    metrics, usage, clients, ours, ours_push, signing,
    dead_letters, tokens, parallel, leases, standing,
)  # fmt: skip
ROWS = [row for module in MODULES for row in module.ROWS]
OWN_CLOCKS = pytest.mark.embedded("brokers and PostgreSQL go by clocks of their own, which nobody can move")


def _marked(row: Row) -> ParameterSet:
    marks = (OWN_CLOCKS,) if row.needs_clock else ()
    return pytest.param(row, marks=marks, id=f"{row.line}: {row.says}")


@pytest.mark.parametrize("row", [_marked(row) for row in ROWS])
def test_the_service_answers_as_the_contract_says(row: Row, runner: Callable[[str], Runner]) -> None:
    runner(row.served).run(row)


HOT = [row for row in ROWS if any(isinstance(each, Ask) and is_hot(each) for each in row.steps)]
"""Rows with a request that may take the fast lane."""


@pytest.mark.parametrize("row", [_marked(row) for row in HOT])
def test_the_fast_lane_answers_as_the_contract_says(row: Row, primed: Primed) -> None:
    primed.runner(row.served).run(row)


def test_most_hot_requests_took_the_fast_lane(primed: Primed) -> None:
    assert primed.on_lane >= 0.8 * primed.let_in


@pytest.mark.long
@pytest.mark.parametrize("row", [_marked(row) for row in HOT])
def test_the_service_without_the_fast_lane_answers_as_the_contract_says(
    row: Row, runner_without_lane: Callable[[str], Runner]
) -> None:
    runner_without_lane(row.served).run(row)


def test_every_line_of_the_contracts_has_its_row() -> None:
    assert set(LINES) - {line for row in ROWS for line in row.lines} == set()


def test_no_two_rows_say_the_same() -> None:
    said = [(row.line, row.says, row.served) for row in ROWS]

    assert len(said) == len(set(said))
