"""Leases: the contract of every lease table; no two processes ever deliver the same subscription."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar
from unittest.mock import AsyncMock, call

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ams.cluster.lease_table import OtherHolders, StoredLeases
from ams.cluster.leases import LEASE_SECONDS, NO_STATES, Heartbeat, Leases, MemoryLeases
from ams.core.errors import RegistryUnavailable
from ams.core.names import SubscriptionId
from ams.push.report import RETRYING, SEND
from ams.storage.registry.registry import Registry
from ams.wire.push import MAX_STATES, Attempt, Failure, WorkerState
from tests.storage.registry.makers import new_subscription
from tests.support.administration import KEY, age_leases, make_project, url_of
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_SECONDS

Ids = frozenset[SubscriptionId]
NONE: Ids = frozenset()
KINDS = ("memory", "sqlite", "postgresql")


@dataclass
class Keeper:
    leases: Leases
    subscriptions: Sequence[SubscriptionId]
    pass_time: Callable[[float], Awaitable[None]]  # moves the time by so many seconds
    registry: Registry | None = None
    clock: ManualClock | None = None  # of the keeper that forgets all when its process ends

    def restart(self) -> None:
        """Restart the process; holders elsewhere keep their state."""
        assert self.clock
        self.leases = leases_in_memory(self.clock, others=True)

    async def close(self) -> None:
        if self.registry:
            await self.registry.close()


async def open_keeper(kind: str, folder: Path, count: int) -> Keeper:
    if kind == "memory":
        return in_memory(count)
    clock = ManualClock()
    registry = await Registry.open(url_of(kind, folder), KEY, clock=clock)
    project = await make_project(registry)
    names = [SubscriptionId(f"s{number:04}") for number in range(count)]
    for each in names:
        await new_subscription(registry, project, each, id=each)

    async def pass_time(seconds: float) -> None:
        clock.advance(round(seconds * 1000))
        if kind == "postgresql":  # whose clock is its own: so the leases are made older
            await age_leases(registry, seconds * 1000)

    return Keeper(StoredLeases(registry), names, pass_time, registry)


def in_memory(count: int) -> Keeper:
    """Return the lease table that never waits."""
    clock = ManualClock()

    async def pass_time(seconds: float) -> None:
        clock.advance(round(seconds * 1000))

    names = [SubscriptionId(f"s{number:04}") for number in range(count)]
    return Keeper(leases_in_memory(clock, others=False), names, pass_time, clock=clock)


def leases_in_memory(clock: ManualClock, *, others: bool) -> MemoryLeases:
    """Return leases of a process that finds the flag `others` at its start, and delivers nothing itself."""
    return MemoryLeases(clock, "own", AsyncMock(are_there=AsyncMock(return_value=others)))


BROKEN = WorkerState(phase=RETRYING, failure=Failure(1_700_000_000_000, SEND, "it said \x00 \N{ROCKET}", 500),
                     attempts=[Attempt(1_700_000_000_000, 3, 500, 12, 4096, "500")])  # fmt: skip


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.postgres) if kind == "postgresql" else kind for kind in KINDS]
)
async def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeper]:
    made = await open_keeper(request.param, tmp_path, 6)
    yield made
    await made.close()


class Holder:
    """A holder that follows its leases at once, unless it is slow."""

    def __init__(self, keeper: Keeper, name: str) -> None:
        self.keeper = keeper
        self.name = name
        self.held = NONE

    async def heartbeat(self, *, slow: bool = False, states: dict[SubscriptionId, WorkerState] | None = None) -> Ids:
        """Send one heartbeat for all subscriptions; a `slow` holder still finishes what it has to release."""
        heartbeat = Heartbeat(self.name, self.held, states or NO_STATES)
        told = await self.keeper.leases.heartbeat(heartbeat, frozenset(self.keeper.subscriptions))
        self.held = self.held | told if slow else told
        return told

    async def leave(self, held: Ids = NONE) -> None:
        told = await self.keeper.leases.heartbeat(
            Heartbeat(self.name, held, leaving=True), frozenset(self.keeper.subscriptions)
        )
        assert told == NONE


@pytest.fixture
def a(keeper: Keeper) -> Holder:
    return Holder(keeper, "a")


@pytest.fixture
def b(keeper: Keeper) -> Holder:
    return Holder(keeper, "b")


async def test_one_holder_gets_everything_even_after_a_lost_answer_or_unknown_leases(keeper: Keeper, a: Holder) -> None:
    for held in (NONE, frozenset(keeper.subscriptions), NONE, frozenset({SubscriptionId("unknown")})):
        a.held = held
        assert await a.heartbeat() == frozenset(keeper.subscriptions)


async def test_heartbeats_keep_a_share_and_without_them_it_is_lost(keeper: Keeper, a: Holder, b: Holder) -> None:
    for _ in range(4):
        await a.heartbeat()
        await keeper.pass_time(LEASE_SECONDS - 1)
    assert await b.heartbeat() == NONE

    await keeper.pass_time(1)

    assert await b.heartbeat() == frozenset(keeper.subscriptions)


async def test_who_leaves_frees_what_it_does_not_hold_any_more(keeper: Keeper, a: Holder, b: Holder) -> None:
    first, *rest = keeper.subscriptions
    await a.heartbeat()

    await a.leave(frozenset({first}))

    assert await b.heartbeat() == frozenset(rest)
    await a.leave()
    assert await b.heartbeat() == frozenset(keeper.subscriptions)


async def test_a_holder_is_known_while_it_lives_and_until_it_leaves(keeper: Keeper, a: Holder) -> None:
    assert not await keeper.leases.is_held()
    await a.heartbeat()
    assert await keeper.leases.is_held()
    await keeper.pass_time(LEASE_SECONDS)
    assert not await keeper.leases.is_held()
    await a.heartbeat()
    await a.leave()
    assert not await keeper.leases.is_held()


async def test_a_state_is_kept_as_it_was_told(keeper: Keeper, a: Holder) -> None:
    first, second, *_ = keeper.subscriptions
    await a.heartbeat()

    await a.heartbeat(states={first: BROKEN})
    await a.heartbeat()

    assert is_same_state(await keeper.leases.state(first), BROKEN)
    assert await keeper.leases.state(second) is None
    await a.heartbeat(states={first: WorkerState(delivered=7)})
    assert is_same_state(await keeper.leases.state(first), WorkerState(delivered=7))


async def test_a_state_goes_with_the_lease(keeper: Keeper, a: Holder, b: Holder) -> None:
    first = keeper.subscriptions[0]
    await a.heartbeat()
    await a.heartbeat(states={first: BROKEN})

    await keeper.pass_time(LEASE_SECONDS)
    assert await keeper.leases.state(first) is None
    await b.heartbeat()
    assert await keeper.leases.state(first) is None


async def test_a_state_of_somebody_elses_subscription_is_not_taken(keeper: Keeper, a: Holder, b: Holder) -> None:
    first = keeper.subscriptions[0]
    await a.heartbeat()

    b.held = frozenset({first})
    await b.heartbeat(states={first: BROKEN})

    assert await keeper.leases.state(first) is None


def is_same_state(found: WorkerState | None, wanted: WorkerState) -> bool:
    return msgspec.json.encode(found) == msgspec.json.encode(wanted)


async def test_more_states_than_one_heartbeat_writes_follow_with_the_next(tmp_path: Path) -> None:
    keeper = await open_keeper("sqlite", tmp_path, 2 * MAX_STATES + 1)
    holder = Holder(keeper, "a")
    await holder.heartbeat()

    await holder.heartbeat(states=dict.fromkeys(keeper.subscriptions, WorkerState(delivered=1)))

    async def count_states() -> int:
        return sum([await keeper.leases.state(each) is not None for each in keeper.subscriptions])

    assert await count_states() == MAX_STATES
    await holder.heartbeat()
    await holder.heartbeat()
    assert await count_states() == len(keeper.subscriptions)
    await keeper.close()


async def test_after_a_restart_only_what_is_held_is_given_until_every_lease_has_ended() -> None:
    clock = ManualClock()
    leases = leases_in_memory(clock, others=True)
    one, two = SubscriptionId("one"), SubscriptionId("two")
    wanted = frozenset({one, two})

    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == NONE
    assert await leases.heartbeat(Heartbeat("old", frozenset({one})), wanted) == {one}
    clock.advance(round(LEASE_SECONDS * 1000) - 1)
    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == NONE
    assert await leases.heartbeat(Heartbeat("old", frozenset({one})), wanted) == {one}
    clock.advance(1)
    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == {two}


async def test_that_there_are_no_others_is_noted_again_when_the_disk_has_room() -> None:
    clock, one = ManualClock(), frozenset({SubscriptionId("one")})
    others = AsyncMock(are_there=AsyncMock(return_value=True), note=AsyncMock(side_effect=[RegistryUnavailable, None]))
    leases = MemoryLeases(clock, "own", others)

    await leases.heartbeat(Heartbeat("own", NONE), one)
    for _ in range(3):
        clock.advance(round(LEASE_SECONDS * 1000))
        assert await leases.heartbeat(Heartbeat("own", NONE), one) == one

    assert others.note.await_args_list == [call(False), call(False)]


async def test_a_process_that_delivers_itself_waits_after_a_restart_only_when_there_were_others(tmp_path: Path) -> None:
    clock, one = ManualClock(), frozenset({SubscriptionId("one")})
    registry = await Registry.open(url_of("sqlite", tmp_path), KEY, clock=clock)

    def remember_leases(own: str) -> MemoryLeases:
        return MemoryLeases(clock, own, OtherHolders(registry))

    assert await remember_leases("first").heartbeat(Heartbeat("first", NONE), one) == one
    second = remember_leases("second")
    assert await second.heartbeat(Heartbeat("second", NONE), one) == one
    await second.heartbeat(Heartbeat("other", NONE), one)

    third = remember_leases("third")
    assert await third.heartbeat(Heartbeat("third", NONE), one) == NONE
    assert await third.heartbeat(Heartbeat("other", one), one) == one
    clock.advance(round(LEASE_SECONDS * 1000))
    assert await third.heartbeat(Heartbeat("third", NONE), one) == one
    assert await third.is_held()

    assert await remember_leases("fourth").heartbeat(Heartbeat("fourth", NONE), one) == one
    await registry.close()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def test_a_subscription_that_is_deleted_takes_its_lease_with_it(kind: str, tmp_path: Path) -> None:
    keeper = await open_keeper(kind, tmp_path, 2)
    assert keeper.registry
    holder = Holder(keeper, "a")
    await holder.heartbeat()
    first, second = keeper.subscriptions
    await holder.heartbeat(states={first: BROKEN})
    (project,) = await keeper.registry.projects.all()

    await keeper.registry.subscriptions.delete(project.id, first)

    assert await keeper.leases.state(first) is None
    assert await holder.heartbeat() == {second}
    await keeper.close()


async def test_a_heartbeat_that_a_later_one_overtook_changes_nothing(tmp_path: Path) -> None:
    keeper = await open_keeper("sqlite", tmp_path, 2)
    wanted = frozenset(keeper.subscriptions)

    late = asyncio.ensure_future(keeper.leases.heartbeat(Heartbeat("a", NONE), wanted))
    await asyncio.sleep(0)
    late.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        told = await keeper.leases.heartbeat(Heartbeat("a", NONE), wanted)
        again = await keeper.leases.heartbeat(Heartbeat("a", told), wanted)

    assert told == again == wanted
    with pytest.raises(asyncio.CancelledError):
        await late
    await keeper.close()


T = TypeVar("T")
COUNT = 7


class Process:
    """A process that delivers by the rules of `ams.cluster.leases`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told = NONE
        self.delivers = NONE  # what it is at, what it shall finish and leave included
        self.ends = 0.0
        self.leaving = False


class LeaseMachine(RuleBasedStateMachine):
    """Processes start, send heartbeats, miss answers, freeze, release and die; the wanted subscriptions change."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.keeper: Keeper = self.run_work(open_keeper(self.kind, Path(self.folder.name), COUNT))
        self.wanted = frozenset(self.keeper.subscriptions)
        self.now = 0.0
        self.holders: list[Process] = []
        self.born = 0

    def teardown(self) -> None:
        self.run_work(self.keeper.close())
        self.runner.close()
        self.folder.cleanup()

    def run_work(self, work: Coroutine[object, object, T]) -> T:
        return self.runner.run(work)

    def heartbeat(self, holder: Process, *, answered: bool = True) -> None:
        heartbeat = Heartbeat(holder.name, holder.delivers, leaving=holder.leaving)
        told = self.run_work(self.keeper.leases.heartbeat(heartbeat, self.wanted))
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
        self.holders.append(Process(f"holder-{self.born}"))

    @rule(which=st.integers(0, 3), answered=st.sampled_from([True, True, True, False]))
    @precondition(lambda self: self.holders)
    def heartbeats(self, which: int, answered: bool) -> None:
        self.heartbeat(self.holders[which % len(self.holders)], answered=answered)

    @rule(comes=st.booleans(), backwards=st.booleans())
    def all_beat(self, comes: bool, backwards: bool) -> None:
        """Let every process send a heartbeat, slow to finish what it releases; another process may have started."""
        if comes and len(self.holders) < 4:
            self.come()
        for each in self.holders[:: -1 if backwards else 1]:
            self.heartbeat(each)

    @rule(which=st.integers(0, 3), number=st.integers(1, COUNT))
    @precondition(lambda self: self.holders)
    def finishes(self, which: int, number: int) -> None:
        """Let a process finish some subscriptions that it has to release."""
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
        self.run_work(self.keeper.pass_time(seconds))
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


EXAMPLES = {"memory": (20, 40), "sqlite": (4, 30), "postgresql": (6, 30)}  # how many, and how long each


@pytest.mark.parametrize("kind", [
    "memory",
    pytest.param("sqlite", marks=pytest.mark.long),
    pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.long]),
])  # fmt: skip
def test_no_two_deliver_the_same_and_in_the_end_each_is_delivered(kind: str) -> None:
    machine = type("LeaseMachine", (LeaseMachine,), {"kind": kind})
    examples, steps = EXAMPLES[kind]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )  # fmt: skip
