"""What every keeper of leases promises (`ams.push.leases`)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from ams.core.clock import ManualClock
from ams.core.errors import RegistryUnavailable
from ams.core.names import SubscriptionId
from ams.push.leases import LEASE_SECONDS, NOTHING, Heartbeat, MemoryLeases, RememberedLeases
from ams.push.report import RETRYING, SEND
from ams.storage.registry.push import MAX_STATES
from ams.storage.registry.registry import Registry
from ams.wire.push import Attempt, Failure, WorkerState
from tests.push.lease_keepers import KINDS, Keeper, opened
from tests.support.administration import KEY, url_of
from tests.support.waiting import PATIENCE_SECONDS

Ids = frozenset[SubscriptionId]
NONE: Ids = frozenset()
BROKEN = WorkerState(
    phase=RETRYING,
    failure=Failure(1_700_000_000_000, SEND, "it said \x00 \N{ROCKET}", 500),
    attempts=[Attempt(1_700_000_000_000, 3, 500, 12, 4096, "500")],
)


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.postgres) if kind == "postgresql" else kind for kind in KINDS]
)
async def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeper]:
    made = await opened(request.param, tmp_path, 6)
    yield made
    await made.close()


class Holder:
    """Holds at once what it is told to, and leaves the rest at once, unless it is slow."""

    def __init__(self, keeper: Keeper, name: str) -> None:
        self.keeper = keeper
        self.name = name
        self.held = NONE

    async def heartbeat(self, *, slow: bool = False, states: dict[SubscriptionId, WorkerState] | None = None) -> Ids:
        """Send one heartbeat, all subscriptions being wanted; one that is `slow` is yet to finish what it leaves."""
        heartbeat = Heartbeat(self.name, self.held, states or NOTHING)
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


async def test_one_holder_gets_everything_also_when_an_answer_was_lost_or_it_holds_what_nobody_knows(
    keeper: Keeper, a: Holder
) -> None:
    for held in (NONE, frozenset(keeper.subscriptions), NONE, frozenset({SubscriptionId("unknown")})):
        a.held = held
        assert await a.heartbeat() == frozenset(keeper.subscriptions)


async def test_whoever_comes_later_gets_nothing_before_the_other_left_it(a: Holder, b: Holder) -> None:
    await a.heartbeat()

    assert await b.heartbeat() == NONE
    kept = await a.heartbeat(slow=True)
    assert len(kept) == 3
    assert await b.heartbeat() == NONE  # a is still finishing
    assert await a.heartbeat() == kept
    assert await b.heartbeat() == NONE  # a's last heartbeat had them still
    await a.heartbeat()
    assert await b.heartbeat() == frozenset(b.keeper.subscriptions) - kept


async def test_who_sends_heartbeats_keeps_its_share_and_who_does_not_any_more_loses_it(
    keeper: Keeper, a: Holder, b: Holder
) -> None:
    for _ in range(4):
        await a.heartbeat()
        await keeper.pass_time(LEASE_SECONDS - 1)
    assert await b.heartbeat() == NONE

    await keeper.pass_time(1)

    assert await b.heartbeat() == frozenset(keeper.subscriptions)


async def test_who_comes_back_after_its_lease_ended_gets_nothing_of_anybody_elses(
    keeper: Keeper, a: Holder, b: Holder
) -> None:
    await a.heartbeat()
    await keeper.pass_time(LEASE_SECONDS)
    theirs = await b.heartbeat()

    assert await a.heartbeat() == NONE
    assert len(await b.heartbeat()) == 3
    assert await b.heartbeat() <= theirs


async def test_who_comes_back_to_what_nobody_has_goes_on(keeper: Keeper, a: Holder) -> None:
    held = await a.heartbeat()
    await keeper.pass_time(2 * LEASE_SECONDS)

    assert await a.heartbeat() == held


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

    assert same(await keeper.leases.state(first), BROKEN)
    assert await keeper.leases.state(second) is None
    await a.heartbeat(states={first: WorkerState(delivered=7)})
    assert same(await keeper.leases.state(first), WorkerState(delivered=7))


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


def same(found: WorkerState | None, wanted: WorkerState) -> bool:
    return msgspec.json.encode(found) == msgspec.json.encode(wanted)


async def test_more_states_than_one_heartbeat_writes_follow_with_the_next(tmp_path: Path) -> None:
    keeper = await opened("sqlite", tmp_path, 2 * MAX_STATES + 1)
    holder = Holder(keeper, "a")
    await holder.heartbeat()

    await holder.heartbeat(states=dict.fromkeys(keeper.subscriptions, WorkerState(delivered=1)))

    async def told() -> int:
        return sum([await keeper.leases.state(each) is not None for each in keeper.subscriptions])

    assert await told() == MAX_STATES
    await holder.heartbeat()
    await holder.heartbeat()
    assert await told() == len(keeper.subscriptions)
    await keeper.close()


async def test_after_a_restart_only_what_is_held_is_given_until_every_lease_has_ended() -> None:
    clock = ManualClock()
    leases = MemoryLeases(clock, settled=False)
    one, two = SubscriptionId("one"), SubscriptionId("two")
    wanted = frozenset({one, two})

    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == NONE
    assert await leases.heartbeat(Heartbeat("old", frozenset({one})), wanted) == {one}
    clock.advance(round(LEASE_SECONDS * 1000) - 1)
    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == NONE
    assert await leases.heartbeat(Heartbeat("old", frozenset({one})), wanted) == {one}
    clock.advance(1)
    assert await leases.heartbeat(Heartbeat("new", NONE), wanted) == {two}


async def test_a_process_that_delivers_itself_waits_after_a_restart_only_when_there_were_others(tmp_path: Path) -> None:
    clock, one = ManualClock(), frozenset({SubscriptionId("one")})
    registry = await Registry.open(url_of("sqlite", tmp_path), KEY, clock=clock)

    def lived(own: str) -> RememberedLeases:
        return RememberedLeases(clock, own, registry.other_holders)

    assert await lived("first").heartbeat(Heartbeat("first", NONE), one) == one
    second = lived("second")
    assert await second.heartbeat(Heartbeat("second", NONE), one) == one
    await second.heartbeat(Heartbeat("other", NONE), one)

    third = lived("third")
    assert await third.heartbeat(Heartbeat("third", NONE), one) == NONE
    assert await third.heartbeat(Heartbeat("other", one), one) == one
    clock.advance(round(LEASE_SECONDS * 1000))
    assert await third.heartbeat(Heartbeat("third", NONE), one) == one
    assert await third.is_held()

    assert await lived("fourth").heartbeat(Heartbeat("fourth", NONE), one) == one
    await registry.close()


async def test_that_there_are_no_others_is_noted_again_when_the_disk_has_room() -> None:
    class Full:
        noted = True

        async def are_there(self) -> bool:
            return self.noted

        async def note(self, there: bool) -> None:
            if clock.monotonic() - begin < 2 * LEASE_SECONDS * 1000:
                raise RegistryUnavailable
            self.noted = there

    clock, others, one = ManualClock(), Full(), frozenset({SubscriptionId("one")})
    begin = clock.monotonic()
    leases = RememberedLeases(clock, "own", others)
    await leases.heartbeat(Heartbeat("own", NONE), one)
    for _ in range(2):
        assert others.noted
        clock.advance(round(LEASE_SECONDS * 1000))
        assert await leases.heartbeat(Heartbeat("own", NONE), one) == one
    assert not others.noted


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def test_a_subscription_that_is_deleted_takes_its_lease_with_it(kind: str, tmp_path: Path) -> None:
    keeper = await opened(kind, tmp_path, 2)
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
    keeper = await opened("sqlite", tmp_path, 2)
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
