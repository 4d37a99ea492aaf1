"""The short form of `make power-loss`."""

import pytest

from tests.faults.power_loss import play_all

PART = 250


@pytest.mark.parametrize("first", range(0, 4 * PART, PART))
def test_no_law_is_broken_in_a_thousand_scenarios(first: int) -> None:
    tally = play_all(range(first, first + PART))

    assert tally.broken == []
    assert tally.scenarios == PART
    assert tally.endings.keys() == {"close", "kill", "power loss"}
    assert tally.appends.keys() == {"done", "refused", "unknown"}
    assert tally.failed_calls > PART / 5
