"""The short form of `make power-loss`."""

import pytest

from tests.faults.power_loss import play_all

PART = 250


# Half of the thousand are run with what takes long: no scenario is another kind than the others.
@pytest.mark.parametrize(
    "first", [0, PART, *(pytest.param(first, marks=pytest.mark.long) for first in (2 * PART, 3 * PART))]
)
def test_no_law_is_broken_in_a_thousand_scenarios(first: int) -> None:
    tally = play_all(range(first, first + PART))

    assert tally.broken == []
    assert tally.scenarios == PART
    assert tally.endings.keys() == {"close", "kill", "power loss"}
    assert tally.appends.keys() == {"done", "refused", "unknown"}
    assert tally.failed_calls > PART / 5
