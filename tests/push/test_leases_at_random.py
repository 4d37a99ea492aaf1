"""Leases under whatever happens: no two processes ever deliver the same, and in the end somebody delivers each."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ams.core.names import SubscriptionId
from ams.push.leases import LEASE_SECONDS, Heartbeat
from tests.push.lease_keepers import Keeper, opened

T = TypeVar("T")
Ids = frozenset[SubscriptionId]
NONE: Ids = frozenset()
COUNT = 7


class Holder:
    """A process that delivers, as `ams.push.leases` says that it does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told = NONE
        self.delivers = NONE
        """What it is at, what it shall finish and leave included."""
        self.ends = 0.0
        self.leaving = False


class Lives(RuleBasedStateMachine):
    """Processes come, send heartbeats, miss answers, stand still, leave and die; what is wanted changes."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.keeper: Keeper = self.run(opened(self.kind, Path(self.folder.name), COUNT))
        self.wanted = frozenset(self.keeper.subscriptions)
        self.now = 0.0
        self.holders: list[Holder] = []
        self.born = 0

    def teardown(self) -> None:
        self.run(self.keeper.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.runner.run(work)

    def heartbeat(self, holder: Holder, *, answered: bool = True) -> None:
        heartbeat = Heartbeat(holder.name, holder.delivers, leaving=holder.leaving)
        told = self.run(self.keeper.leases.heartbeat(heartbeat, self.wanted))
        assert told <= self.wanted
        if not answered:
            return
        holder.told = told
        holder.delivers |= told
        holder.ends = self.now + LEASE_SECONDS
        if holder.leaving and not holder.delivers:
            self.holders.remove(holder)

    @rule()
    @precondition(lambda self: len(self.holders) < 4)
    def come(self) -> None:
        self.born += 1
        self.holders.append(Holder(f"holder-{self.born}"))

    @rule(which=st.integers(0, 3), answered=st.sampled_from([True, True, True, False]))
    @precondition(lambda self: self.holders)
    def heartbeats(self, which: int, answered: bool) -> None:
        self.heartbeat(self.holders[which % len(self.holders)], answered=answered)

    @rule(comes=st.booleans(), backwards=st.booleans())
    def all_beat(self, comes: bool, backwards: bool) -> None:
        """And are slow to finish what they have to leave; perhaps somebody else is there just now."""
        if comes and len(self.holders) < 4:
            self.come()
        for each in self.holders[:: -1 if backwards else 1]:
            self.heartbeat(each)

    @rule(which=st.integers(0, 3), number=st.integers(1, COUNT))
    @precondition(lambda self: self.holders)
    def finishes(self, which: int, number: int) -> None:
        """Some of what it shall leave is finished."""
        holder = self.holders[which % len(self.holders)]
        holder.delivers -= frozenset(sorted(holder.delivers - holder.told)[:number])

    @rule(which=st.integers(0, 3))
    @precondition(lambda self: self.holders)
    def leaves(self, which: int) -> None:
        holder = self.holders[which % len(self.holders)]
        holder.leaving = True
        holder.told = NONE

    @rule(which=st.integers(0, 3))
    @precondition(lambda self: self.holders)
    def dies(self, which: int) -> None:
        del self.holders[which % len(self.holders)]

    @rule(numbers=st.sets(st.integers(0, COUNT - 1)))
    def other_ones_are_wanted(self, numbers: set[int]) -> None:
        self.wanted = frozenset(self.keeper.subscriptions[number] for number in numbers)

    @rule(seconds=st.sampled_from([1.0, 2.0, 5.0, LEASE_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.keeper.pass_time(seconds))
        for each in self.holders:
            if each.ends <= self.now:  # it knows this itself, and has stopped
                each.told = each.delivers = NONE

    @rule()
    @precondition(lambda self: self.kind == "memory")
    def whoever_keeps_the_leases_is_started_anew(self) -> None:
        self.keeper.restart()

    @rule()
    @precondition(lambda self: any(not each.leaving for each in self.holders))
    def all_goes_well_for_a_while(self) -> None:
        for _ in range(3):  # until those who died are forgotten
            self.time_passes(LEASE_SECONDS / 2)
            self.round()
        for _ in range(2):
            self.round()
        at_work = [each for each in self.holders if not each.leaving]
        assert frozenset().union(*(each.told for each in at_work)) == self.wanted

        for _ in range(2):
            self.round()
        shares = [len(each.told) for each in at_work]
        assert sum(shares) == len(self.wanted)
        assert max(shares) - min(shares) <= 1

        before = [each.told for each in at_work]
        self.round()
        assert [each.told for each in at_work] == before

    def round(self) -> None:
        for each in [*self.holders]:
            each.delivers &= each.told
            self.heartbeat(each)

    @invariant()
    def nobody_delivers_what_another_does(self) -> None:
        seen: set[SubscriptionId] = set()
        for each in self.holders:
            assert not each.delivers & seen
            seen |= each.delivers


EXAMPLES = {"memory": (20, 40), "sqlite": (4, 30), "postgresql": (6, 30)}
"""How many, and how long each."""


@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        pytest.param("sqlite", marks=pytest.mark.long),
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.long]),
    ],
)
def test_no_two_deliver_the_same_and_in_the_end_each_is_delivered(kind: str) -> None:
    machine = type("Lives", (Lives,), {"kind": kind})
    examples, steps = EXAMPLES[kind]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
