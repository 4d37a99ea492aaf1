"""Worlds of the simulator: each is the same each time, the service keeps its laws in them, and planted faults show."""

import pytest

from simulation.running import run
from simulation.scenario import scenario_of
from tests.simulation import planted

pytestmark = pytest.mark.embedded("the simulator has the embedded engines")


@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_is_the_same_world_each_time_step_by_step(seed: int) -> None:
    first, second = (run(scenario_of(seed), keeps_trace=True) for _ in range(2))

    assert next((pair for pair in zip(first.trace, second.trace, strict=False) if pair[0] != pair[1]), None) is None
    assert first.digest == second.digest
    assert first.events > 1000


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_service_keeps_its_laws_in_a_world(seed: int) -> None:
    result = run(scenario_of(seed))

    assert result.violations == []
    assert result.requests["done"] > 20


@pytest.mark.parametrize(
    ("fault", "seed", "law"),
    [(planted.lost_sync, 3, "law 1"), (planted.stale_cursors, 6, "law 3"), (planted.projects_mixed_up, 0, "law 3")],
)
def test_a_planted_fault_shows(fault: planted.Fault, seed: int, law: str) -> None:
    assert law in planted.laws_broken(fault, seed)
