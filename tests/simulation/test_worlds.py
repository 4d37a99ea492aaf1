"""Worlds of the simulator: each is the same each time, the service keeps its laws in them, and planted faults show.

They run in processes of their own: time and chance of a world are put into the modules of the program, where services
of other tests go on, and what other tests have left in memory spares a world some of its steps.
"""

import pytest

from simulation.running import Result, run
from simulation.scenario import scenario_of
from tests.simulation import planted
from tests.support.memory import in_a_process

pytestmark = pytest.mark.embedded("the simulator has the embedded engines")


def run_traced(seed: int) -> Result:
    return run(scenario_of(seed), keeps_trace=True)


@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_is_the_same_world_each_time_step_by_step(seed: int) -> None:
    first, second = (in_a_process(run_traced, seed) for _ in range(2))

    assert next((pair for pair in zip(first.trace, second.trace, strict=False) if pair[0] != pair[1]), None) is None
    assert first.digest == second.digest
    assert first.events > 1000


def run_worlds() -> list[tuple[list[str], int]]:
    """Return the broken laws and the requests that were done of ten worlds."""
    results = [run(scenario_of(seed)) for seed in range(1, 11)]
    return [(each.violations, each.requests["done"]) for each in results]


def test_the_service_keeps_its_laws_in_ten_worlds() -> None:
    found = in_a_process(run_worlds)

    assert {seed: violations for seed, (violations, _) in enumerate(found, 1) if violations} == {}
    assert min(done for _, done in found) > 20


@pytest.mark.parametrize(
    ("fault", "seed", "law"),
    [(planted.lost_sync, 3, "law 1"), (planted.stale_cursors, 6, "law 3"), (planted.projects_mixed_up, 0, "law 3")],
)
def test_a_planted_fault_shows(fault: planted.Fault, seed: int, law: str) -> None:
    assert law in in_a_process(planted.laws_broken, fault, seed)
