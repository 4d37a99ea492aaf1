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
    metrics,
    ours,
    ours_push,
    people,
    push,
    registrations,
    resources,
    schemas,
    service,
    signing,
    tokens,
    transport,
    usage,
    users,
)
from tests.contract.lines import LINES
from tests.contract.rows import Row
from tests.contract.runner import Runner

MODULES = (
    transport, access, users, people, registrations, resources, delivery, push, delivered, schemas, checked, service,
    metrics, usage, clients, ours, ours_push, signing,
    dead_letters, tokens,
)  # fmt: skip
ROWS = [row for module in MODULES for row in module.ROWS]
OWN_CLOCKS = pytest.mark.embedded("brokers and PostgreSQL go by clocks of their own, which nobody can move")


def _marked(row: Row) -> ParameterSet:
    marks = (OWN_CLOCKS,) if row.needs_clock else ()
    return pytest.param(row, marks=marks, id=f"{row.line}: {row.says}")


@pytest.mark.parametrize("row", [_marked(row) for row in ROWS])
def test_the_service_answers_as_the_contract_says(row: Row, runner: Callable[[str], Runner]) -> None:
    runner(row.served).run(row)


def test_every_line_of_the_contracts_has_its_row() -> None:
    assert set(LINES) - {line for row in ROWS for line in row.lines} == set()


def test_no_two_rows_say_the_same() -> None:
    said = [(row.line, row.says, row.served) for row in ROWS]

    assert len(said) == len(set(said))
