"""Power cuts at every call of real SQLite, checkpoints included; more of it by `python -m` of the module itself."""

import random
from pathlib import Path

import pytest

from tests.faults import sqlite_power_loss
from tests.faults.sqlite_power_loss import File, Found

pytestmark = pytest.mark.strace


def found_in(tmp_path: Path, steps: int, failing: str = "") -> Found:
    calls = sqlite_power_loss.recorded(tmp_path / "run", steps, 1, failing)
    found = Found()
    sqlite_power_loss.check(calls, tmp_path / "left", random.Random(1), 1, found)
    return found


def test_after_a_power_cut_cursors_and_registry_hold_all_that_was_answered_and_no_part_of_anything_else(
    tmp_path: Path,
) -> None:
    found = found_in(tmp_path, 8)

    assert found.wrong == []
    assert found.outcomes["done"] == found.outcomes["ask"] + 2  # and the two empty databases
    assert found.moved > 30
    assert found.states > 500


@pytest.mark.parametrize(
    ("failing", "outcome"), [("when=6+5", "failed"), ("when=14..24", "unknown")], ids=["now and then", "for long"]
)
def test_what_was_answered_as_failed_is_not_there_after_a_kill_or_a_power_cut_unless_the_answer_says_so(
    tmp_path: Path, failing: str, outcome: str
) -> None:
    found = found_in(tmp_path, 8, failing)

    assert found.wrong == []
    assert found.outcomes[outcome] > 2
    assert found.outcomes["done"] > 5


def test_a_page_whose_sync_failed_is_not_written_by_the_next_sync() -> None:
    file = File()
    file.write(b"a" * 10, 0)
    file.sync(failed=True)
    file.write(b"b" * 10, 5000)
    file.sync(failed=False)

    assert file.lost()[:10] == bytes(10)
    assert file.lost()[5000:5010] == b"b" * 10
    assert {file.torn(random.Random(seed))[:1] for seed in range(20)} == {b"\0", b"a"}
