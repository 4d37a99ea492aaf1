"""Worlds of the simulator: each is deterministic, the service keeps its laws in them, and planted faults are found.

They run in their own processes. A world replaces time and randomness in the program's modules, while other tests'
services run. And caches left by other tests would change a world's steps.
"""

from collections import Counter

import pytest

from simulation import coverage
from simulation.cluster.running import cluster_scenario_of, run_cluster
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


SMALL = [seed for seed in range(60) if len(scenario_of(seed).operations) <= 60][:10]


def run_worlds() -> tuple[dict[int, list[str]], list[int], str]:
    """Return the broken laws of ten worlds, the finished requests, and the points of crashes."""
    results = {seed: run(scenario_of(seed), covers=True) for seed in SMALL}
    met = sum((each.met for each in results.values()), Counter[str]())
    broken = {seed: each.violations for seed, each in results.items() if each.violations}
    return broken, [each.requests["done"] for each in results.values()], coverage.table(met)


def test_the_service_keeps_its_laws_in_ten_worlds() -> None:
    broken, done, table = in_a_process(run_worlds)

    assert broken == {}
    assert min(done) > 20
    total = next(line.split() for line in table.splitlines() if line.startswith("all "))
    assert int(total[2]) > 50  # awaits that a crash has hit


PLANTED = [
    (planted.lost_sync, 3, "law 1"), (planted.stale_cursors, 7, "law 3"), (planted.projects_mixed_up, 0, "law 3"),
]  # fmt: skip
MORE_PLANTED = [
    (planted.acknowledgements_of_memory, 389, "came back"), (planted.failures_of_memory, 486, "counted down"),
    (planted.half_a_backup, 38, "restored"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "seed", "law"), [*PLANTED, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE_PLANTED)]
)
def test_a_planted_fault_shows(fault: planted.Fault, seed: int, law: str) -> None:
    assert law in in_a_process(planted.laws_broken, fault, seed)


def run_cluster_traced(seed: int) -> Result:
    return run_cluster(cluster_scenario_of(seed), keeps_trace=True)


def test_a_world_of_three_nodes_keeps_the_laws_and_is_the_same_each_time() -> None:
    first, second = (in_a_process(run_cluster_traced, 10) for _ in range(2))

    assert first.violations == []
    assert next((pair for pair in zip(first.trace, second.trace, strict=False) if pair[0] != pair[1]), None) is None
    assert first.digest == second.digest
    assert first.requests["done"] > 100
