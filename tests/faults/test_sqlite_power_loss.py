"""Power cuts at every call of real SQLite, checkpoints included."""

import random
from pathlib import Path

import pytest

from tests.faults.sqlite_power_loss import Found, check, recorded

pytestmark = [pytest.mark.strace, pytest.mark.long]


def found_in(tmp_path: Path, failing: str = "") -> Found:
    return check(recorded(tmp_path / "run", 8, 1, failing), tmp_path / "left", random.Random(1), 1)


def test_after_a_power_cut_cursors_and_registry_hold_all_that_was_answered_and_no_part_of_anything_else(
    tmp_path: Path,
) -> None:
    found = found_in(tmp_path)

    assert found.wrong == []
    assert found.outcomes["done"] == found.outcomes["ask"] + 2  # and the two empty databases
    assert found.moved > 30
    assert found.states > 500


@pytest.mark.parametrize(
    ("failing", "outcome"),
    [("when=6+5", "failed"), ("when=14..24", "unknown")],
    ids=["now and then", "for long"],
)
def test_what_was_answered_as_failed_is_not_there_after_a_kill_or_a_power_cut_unless_the_answer_says_so(
    tmp_path: Path, failing: str, outcome: str
) -> None:
    found = found_in(tmp_path, failing)

    assert found.wrong == []
    assert found.outcomes[outcome] > 2
    assert found.outcomes["done"] > 5
