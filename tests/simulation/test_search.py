from collections.abc import Callable

import pytest

from simulation.running import Result
from simulation.scenario import BY_THE_CLOCK, FAULTS, OF_THE_CLOCK, OPERATIONS, Fault, Operation, Scenario, scenario_of
from simulation.search import Total, law_of, shrink, story_of


def scenario(operations: int, faults: int) -> Scenario:
    done = tuple(Operation(float(number), number % 2, "publish", number) for number in range(operations))
    return Scenario(1, "usual", 2, done, tuple(Fault(number, 0.25, "kill", number) for number in range(faults)))


def breaks_law_if(is_broken: Callable[[Scenario], bool]) -> Callable[[Scenario], Result]:
    """Return a player of scenarios that breaks law 1 under this condition."""
    return lambda played: Result(played, ["project A: law 1: it is lost"] if is_broken(played) else [])


def test_a_seed_is_one_scenario_and_seeds_differ_in_kinds_and_sizes() -> None:
    found = [scenario_of(seed) for seed in range(200)]

    assert found == [scenario_of(seed) for seed in range(200)]
    assert {each.kind for one in found for each in one.operations} == set(OPERATIONS)
    assert {each.kind for one in found for each in one.faults} == set(FAULTS)
    assert any(len({each.kind for each in one.operations}) <= 6 for one in found)
    assert any(not one.faults for one in found)
    for one in found:  # laws that need a correct clock are skipped where the clock is wrong
        is_wrong = any(fault.kind in OF_THE_CLOCK for fault in one.faults)
        assert not (is_wrong and any(operation.kind in BY_THE_CLOCK for operation in one.operations))


def test_a_failing_scenario_is_shrunk_to_the_parts_that_it_needs() -> None:
    def is_broken(played: Scenario) -> bool:
        return {3, 17} <= {each.seed for each in played.operations} and any(each.seed == 5 for each in played.faults)

    found = shrink(scenario(40, 9), frozenset({"law 1"}), breaks_law_if(is_broken))

    assert [each.seed for each in found.operations] == [3, 17]
    assert [each.seed for each in found.faults] == [5]


def test_a_scenario_that_breaks_another_law_is_not_taken_for_the_same() -> None:
    found = shrink(scenario(4, 0), frozenset({"quota"}), breaks_law_if(lambda played: len(played.operations) < 4))

    assert len(found.operations) == 4


@pytest.mark.parametrize(
    ("violation", "law"),
    [("project B: law 3: the cursor", "law 3"), ("deadline: c1-4", "deadline"), ("project A: quota: 8", "quota")],
)
def test_a_violation_says_its_law_first(violation: str, law: str) -> None:
    assert law_of(violation) == law


def test_a_failing_world_is_told_in_the_order_of_time_and_as_python_that_makes_it() -> None:
    made = scenario(2, 1)

    assert story_of(made, ["law 1: it is lost"]).splitlines() == [
        "seed 1, profile 'usual', 2 clients", "   0.000 s  client 0: publish [0]", "    +0.250000 s  FAULT: kill [0]",
        "   1.000 s  client 1: publish [1]", "breaks:", "  law 1: it is lost",
    ]  # fmt: skip
    assert eval(repr(made), {"Scenario": Scenario, "Operation": Operation, "Fault": Fault}) == made


def test_runs_are_summed_up() -> None:
    total = Total()
    total.add(Result(scenario(3, 1), kills=1, seconds=3600.0))
    total.add(Result(scenario(2, 0), ["law 1: it is lost"]))

    assert total.failed == [1]
    assert "2 seeds: 5 operations" in total.line(1.0)
    assert "1 kills, 0 power cuts, 1.00 simulated hours" in total.line(1.0)
