"""The contract of every cursor store (`ams.storage.cursors.base`), and of individual acknowledgements (`.acks`)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from pyroaring import BitMap64

from ams.core.errors import InvalidInput, SubscriptionGone
from ams.core.names import TopicId
from ams.core.offsets import ranges_of
from ams.storage.cursors.acks import AckUpdate, CursorStore, Horizon
from ams.storage.cursors.base import Cursors
from tests.storage.cursors import naive
from tests.storage.cursors.naive import (
    Deed,
    create,
    drop,
    follow_plan,
    look_at,
    plans,
    restore,
    retain,
    seek,
    take_over,
)
from tests.storage.cursors.stores import DEADLINE, END, OTHER_TOPIC, SUB, TOPIC, Store, make_change, settle


async def pull_to(cursors: Cursors, end: int) -> None:
    assert await cursors.hand_out(SUB, (await cursors.position(SUB, TOPIC)).generation, end)


async def test_an_unknown_subscription_is_not_found(store: Store) -> None:
    unknown = "nobody"
    for call in (
        store.cursors.position(unknown, TOPIC), store.cursors.lost_messages(unknown, {}),
        store.cursors.retain(unknown, 0, 1),
        store.cursors.hand_out(unknown, 0, 1), store.cursors.acknowledge(unknown, 1, DEADLINE),
        store.cursors.seek(unknown, TOPIC, 1), store.cursors.take_over(unknown, TOPIC), store.cursors.progress(unknown),
        store.cursors.settle(unknown, 0, 1, make_change((0, 1))), store.cursors.restore(unknown, TOPIC, 1, BitMap64()),
    ):  # fmt: skip
        with pytest.raises(SubscriptionGone, match="Subscription doesn't exist"):
            await call


async def acknowledge_some(cursors: Cursors) -> None:
    await pull_to(cursors, 10)
    await cursors.acknowledge(SUB, 6, DEADLINE)


@pytest.mark.parametrize(("move", "topic", "offset", "lost"), [
    (acknowledge_some, TOPIC, 7, 0), (lambda cursors: cursors.seek(SUB, TOPIC, 42), TOPIC, 42, 0),
    (lambda cursors: cursors.seek(SUB, TOPIC, 42), OTHER_TOPIC, 0, 0),
    (lambda cursors: cursors.retain(SUB, 0, 7), TOPIC, 7, 7),
], ids=["acknowledged", "sought", "met another identity of the topic", "lost to retention"])  # fmt: skip
async def test_where_a_cursor_stands_survives_a_restart(
    store: Store, move: Callable[[Cursors], Awaitable[object]], topic: TopicId, offset: int, lost: int
) -> None:
    await move(store.cursors)
    before = await store.cursors.position(SUB, topic)
    after = await (await store.restart()).position(SUB, topic)
    assert (before.offset, before.lost) == (after.offset, after.lost) == (offset, lost)


@pytest.mark.parametrize("handed", [0, 9])
async def test_what_was_handed_out_elsewhere_can_be_acknowledged_after_a_start(store: Store, handed: int) -> None:
    moved = "moved"
    await store.cursors.create(moved, TOPIC, 3, 0, handed)

    cursors = await store.restart()

    if handed:
        await cursors.acknowledge(moved, 8, DEADLINE)
        assert (await cursors.position(moved, TOPIC)).offset == 9
    else:
        with pytest.raises(InvalidInput, match="no ack pending"):
            await cursors.acknowledge(moved, 8, DEADLINE)


async def test_a_dropped_cursor_stays_dropped(store: Store) -> None:
    await store.cursors.drop(SUB)
    await store.cursors.drop(SUB)
    assert await (await store.restart()).places() == {}


async def test_places_are_told_as_they_are_stored_and_nothing_moves(store: Store) -> None:
    other = "sub-2"
    await store.cursors.create(other, OTHER_TOPIC, END + 7)
    await store.cursors.seek(SUB, TOPIC, 5)
    stored = {SUB: (TOPIC, 5), other: (OTHER_TOPIC, END + 7)}

    assert (await store.cursors.places(), await (await store.restart()).places()) == (stored, stored)
    await store.cursors.drop(SUB)
    assert await store.cursors.places() == {other: stored[other]}


async def test_a_wall_clock_that_steps_does_not_touch_deadlines(store: Store) -> None:
    await pull_to(store.cursors, 10)
    store.clock.step(3_600_000)
    await store.cursors.acknowledge(SUB, 4, DEADLINE)
    store.clock.step(-7_200_000)

    await store.cursors.acknowledge(SUB, 9, DEADLINE)


@pytest.mark.parametrize("step", [0, -3_600_000], ids=["a clock that goes on", "a clock set back"])
async def test_what_was_pulled_before_a_restart_can_be_acknowledged_after_it(store: Store, step: int) -> None:
    store.clock.advance(600_000)
    await pull_to(store.cursors, 10)
    store.clock.step(step)
    cursors = await store.restart()
    store.clock.advance(10_000)

    await cursors.acknowledge(SUB, 9, DEADLINE)

    assert (await cursors.position(SUB, TOPIC)).offset == 10


async def test_a_batch_pulled_before_a_seek_cannot_undo_it_across_a_restart(store: Store) -> None:
    store.clock.advance(60_000)
    await pull_to(store.cursors, 10)
    await store.cursors.seek(SUB, TOPIC, 0)
    store.clock.advance(1_000)
    cursors = await store.restart()

    with pytest.raises(InvalidInput, match="no ack pending"):
        await cursors.acknowledge(SUB, 9, DEADLINE)


async def test_a_caller_that_leaves_does_not_disturb_the_others(store: Store) -> None:
    await pull_to(store.cursors, 10)
    leaving = asyncio.ensure_future(store.cursors.acknowledge(SUB, 3, DEADLINE))
    staying = asyncio.ensure_future(store.cursors.acknowledge(SUB, 5, DEADLINE))
    await asyncio.sleep(0)
    leaving.cancel()

    await staying

    assert (await (await store.restart()).position(SUB, TOPIC)).offset == 6


async def test_what_retention_took_is_told_without_moving_anything(store: Store) -> None:
    other = "sub-2"
    await store.cursors.create(other, TOPIC, 5)
    assert (await store.cursors.lost_messages(SUB, {}), await store.cursors.lost_in_all({})) == (0, 0)
    for subscription in (SUB, other):
        await store.cursors.retain(subscription, (await store.cursors.position(subscription, TOPIC)).generation, 7)

    cursors = await store.restart()

    assert (
        await cursors.lost_messages(SUB, {}),
        await cursors.lost_messages(other, {}),
        await cursors.lost_in_all({}),
    ) == (7, 2, 9)
    assert (await cursors.position(SUB, TOPIC)).offset == 7


async def test_what_nobody_has_met_yet_is_lost_too(store: Store) -> None:
    elsewhere = b"u" * 16
    await store.cursors.create("sub-2", TOPIC, 5)

    for oldest, lost in (({}, 0), ({elsewhere: 90}, 0), ({TOPIC: 4}, 4), ({TOPIC: 7}, 7)):
        assert await store.cursors.lost_messages(SUB, oldest) == lost
    assert await store.cursors.lost_in_all({TOPIC: 7}) == 7 + 2
    assert (await store.cursors.position(SUB, TOPIC)).lost == 0


async def test_what_a_cursor_had_lost_outlives_it(store: Store) -> None:
    for _ in range(2):
        await store.cursors.create(SUB, TOPIC, 0)
        await store.cursors.retain(SUB, 0, 7)
        await store.cursors.drop(SUB)

    assert (await store.cursors.lost_in_all({}), await (await store.restart()).lost_in_all({})) == (14, 14)


async def test_a_total_that_was_told_stays_and_is_counted_once_however_many_were_told_it(store: Store) -> None:
    await store.cursors.retain(SUB, 0, 7)

    assert await store.cursors.lost_in_all({TOPIC: 10}) == 10
    assert await asyncio.gather(*(store.cursors.lost_in_all({}, 10) for _ in range(5))) == [10] * 5

    cursors = await store.restart()
    assert (await cursors.lost_in_all({}, 4), await cursors.lost_in_all({TOPIC: 9})) == (10, 12)


async def test_a_cursor_that_was_elsewhere_goes_on_where_it_stood_with_what_it_had_lost(store: Store) -> None:
    moved = "moved"

    await store.cursors.create(moved, TOPIC, 30, 12)

    for _ in range(2):
        position = await store.cursors.position(moved, TOPIC)
        assert (position.offset, position.lost) == (30, 12)
        assert await store.cursors.lost_in_all({}) == 12
        await store.restart()


async def test_many_changes_at_once_are_all_kept(store: Store) -> None:
    names = [f"sub-{number}" for number in range(40)]
    await asyncio.gather(*(store.cursors.create(name, TOPIC, 0) for name in names))
    runs = await asyncio.gather(*(store.cursors.take_over(name, TOPIC) for name in names))

    answers = await asyncio.gather(*(
        store.cursors.settle(name, taken.epoch, taken.run, make_change((at, at + 1))) for at in range(1, 40, 2)
        for name, taken in zip(names, runs, strict=True)
    ))  # fmt: skip

    assert all(answers)
    cursors = await store.restart()
    assert {tuple((await cursors.progress(name)).done) for name in names} == {tuple(range(1, 40, 2))}


async def test_a_caller_that_leaves_does_not_disturb_others_that_settle(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    leaving = asyncio.ensure_future(settle(store.cursors, taken, make_change((1, 2))))
    staying = asyncio.ensure_future(settle(store.cursors, taken, make_change((3, 4))))
    await asyncio.sleep(0)
    leaving.cancel()

    assert await staying
    assert ranges_of((await (await store.restart()).progress(SUB)).done) == [(1, 2), (3, 4)]


async def test_what_is_done_already_is_done(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    assert await asyncio.gather(*(settle(store.cursors, taken, make_change((3, 4))) for _ in range(5))) == [True] * 5
    assert await settle(store.cursors, taken, AckUpdate())
    assert ranges_of((await (await store.restart()).progress(SUB)).done) == [(3, 4)]


async def test_retention_counts_what_was_not_done_in_all(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, make_change((2, 4), (6, 8)))
    assert await store.cursors.lost_in_all({TOPIC: 7}) == 4

    moved = await store.cursors.retain(SUB, taken.epoch, 7)

    assert (moved.offset, moved.lost, moved.generation) == (8, 4, taken.epoch)
    assert await (await store.restart()).lost_in_all({}) == 4


TAKE_OVER, LAST_LOOK = (take_over(TOPIC), False), (look_at(TOPIC), True)
HORIZON = Horizon(8, 1_790_000_000_000)


def make_step(*ranges: tuple[int, int], late_epoch: int = 0, late_run: int = 0, **failed: int) -> tuple[Deed, bool]:
    """Return a change with settled messages and with failures, named as in `m5=4`."""
    failures = {int(name[1:]): times for name, times in failed.items()}
    return naive.settle(AckUpdate(make_change(*ranges).done, failures), late_epoch, late_run), False


NAMED_PLANS: Mapping[str, list[tuple[Deed, bool]]] = {
    "what is done in any order survives": [TAKE_OVER, make_step((4, 6)), make_step((9, 10), (0, 2)), make_step((2, 3))],
    "failures and the horizon survive until what they are of is done": [
        TAKE_OVER, (naive.settle(AckUpdate((), {3: 1, 5: 4}, HORIZON)), False),
        make_step((0, 4), m5=5, m2=9), LAST_LOOK, TAKE_OVER, make_step((4, 9)),
    ],
    "a run that another follows stores nothing": [
        TAKE_OVER, TAKE_OVER, make_step((0, 5), late_run=1), make_step((7, 8)), LAST_LOOK, TAKE_OVER,
    ],
    "nothing is stored before the first run": [make_step((0, 5), late_run=-1)],
    "what was given before a seek stores nothing after it": [
        TAKE_OVER, make_step((0, 5), (7, 9)), (seek(TOPIC, 2), False),
        make_step((2, 20), late_epoch=1), LAST_LOOK, make_step((3, 4)),
    ],
    "a new topic under the old name begins at its beginning": [
        TAKE_OVER, make_step((3, 9), m1=2), (take_over(OTHER_TOPIC), False),
        make_step((0, 1), late_epoch=1, late_run=1),
        (look_at(OTHER_TOPIC), True),
    ],
    "a subscription made again remembers nothing": [
        TAKE_OVER, make_step((3, 9)), (create(1), False), TAKE_OVER, make_step((5, 6)),
        (drop(), False), (create(2), False),
    ],
    "retention takes what is below and keeps what is above": [
        TAKE_OVER, make_step((2, 4), (6, 8), (20, 21), m1=3, m9=1), (retain(7, False), False), make_step((8, 9)),
    ],
    "a snapshot is restored whole in a new epoch": [
        TAKE_OVER, make_step((0, 30), m40=3), (restore(TOPIC, 4, frozenset({1, 4, 6, 7})), False),
        make_step((5, 6), late_epoch=1), LAST_LOOK, make_step((5, 6)),
    ],
    "a snapshot of another topic restores nothing": [TAKE_OVER, (restore(OTHER_TOPIC, 4, frozenset({6})), False)],
    "a snapshot is restored of what no process took over yet": [
        (restore(TOPIC, 4, frozenset({6})), False), (take_over(TOPIC), True),
    ],
}  # fmt: skip


def follow_steps(steady_store: tuple[asyncio.Runner, Store], plan: Sequence[tuple[Deed, bool]]) -> None:
    runner, store = steady_store

    async def stores(restarts: bool) -> tuple[CursorStore, CursorStore]:
        cursors = await store.restart() if restarts else store.cursors
        return cursors, cursors

    runner.run(follow_plan(plan, stores))


@pytest.mark.parametrize("name", NAMED_PLANS)
def test_what_every_store_of_acknowledgements_promises(steady_store: tuple[asyncio.Runner, Store], name: str) -> None:
    follow_steps(steady_store, [*NAMED_PLANS[name], LAST_LOOK])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_a_store_does_what_sets_say(steady_store: tuple[asyncio.Runner, Store], plan: list[tuple[Deed, bool]]) -> None:
    follow_steps(steady_store, plan)
