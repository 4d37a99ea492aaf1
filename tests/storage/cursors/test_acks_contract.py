"""What every store of acknowledgements one by one promises (`ams.storage.cursors.acks`)."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from pyroaring import BitMap64

from ams.core.errors import SubscriptionGone
from ams.core.offsets import ranges_of
from ams.storage.cursors.acks import Change, CursorStore, Horizon
from tests.storage.cursors import naive
from tests.storage.cursors.naive import Deed, create, drop, follow, look, plans, restore, retain, seek, take_over
from tests.storage.cursors.stores import OTHER, SUB, TOPIC, Store, done, settle


async def test_an_unknown_subscription_is_not_found(store: Store) -> None:
    unknown = "nobody"
    for call in (
        store.cursors.take_over(unknown, TOPIC),
        store.cursors.progress(unknown),
        store.cursors.settle(unknown, 0, 1, done((0, 1))),
        store.cursors.restore(unknown, TOPIC, 1, BitMap64()),
    ):
        with pytest.raises(SubscriptionGone, match="Subscription doesn't exist"):
            await call


async def test_many_changes_at_once_are_all_kept(store: Store) -> None:
    names = [f"sub-{number}" for number in range(40)]
    await asyncio.gather(*(store.cursors.create(name, TOPIC, 0) for name in names))
    runs = await asyncio.gather(*(store.cursors.take_over(name, TOPIC) for name in names))

    answers = await asyncio.gather(
        *(
            store.cursors.settle(name, taken.epoch, taken.run, done((at, at + 1)))
            for at in range(1, 40, 2)
            for name, taken in zip(names, runs, strict=True)
        )
    )

    assert all(answers)
    cursors = await store.restart()
    assert {tuple((await cursors.progress(name)).done) for name in names} == {tuple(range(1, 40, 2))}


async def test_a_caller_that_leaves_does_not_disturb_the_others(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    leaving = asyncio.ensure_future(settle(store.cursors, taken, done((1, 2))))
    staying = asyncio.ensure_future(settle(store.cursors, taken, done((3, 4))))
    await asyncio.sleep(0)
    leaving.cancel()

    assert await staying
    assert ranges_of((await (await store.restart()).progress(SUB)).done) == [(1, 2), (3, 4)]


async def test_what_is_done_already_is_done(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)

    answers = await asyncio.gather(*(settle(store.cursors, taken, done((3, 4))) for _ in range(5)))

    assert answers == [True] * 5
    assert await settle(store.cursors, taken, Change())
    assert ranges_of((await (await store.restart()).progress(SUB)).done) == [(3, 4)]


async def test_retention_counts_what_was_not_done_in_all(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, done((2, 4), (6, 8)))
    assert await store.cursors.lost_in_all({TOPIC: 7}) == 4

    moved = await store.cursors.retain(SUB, taken.epoch, 7)

    assert (moved.offset, moved.lost, moved.generation) == (8, 4, taken.epoch)
    assert await (await store.restart()).lost_in_all({}) == 4


TAKE_OVER, LAST_LOOK = (take_over(TOPIC), False), (look(TOPIC), True)
HORIZON = Horizon(8, 1_790_000_000_000)


def change(*ranges: tuple[int, int], late_epoch: int = 0, late_run: int = 0, **failed: int) -> tuple[Deed, bool]:
    """Return a change to make, of messages done and of failures of those named as in `m5=4`."""
    failures = {int(name[1:]): times for name, times in failed.items()}
    return naive.settle(Change(done(*ranges).done, failures), late_epoch, late_run), False


NAMED_PLANS: Mapping[str, list[tuple[Deed, bool]]] = {
    "what is done in any order survives": [TAKE_OVER, change((4, 6)), change((9, 10), (0, 2)), change((2, 3))],
    "failures and the horizon survive until what they are of is done": [
        TAKE_OVER, (naive.settle(Change((), {3: 1, 5: 4}, HORIZON)), False),
        change((0, 4), m5=5, m2=9), LAST_LOOK, TAKE_OVER, change((4, 9)),
    ],
    "a run that another follows stores nothing": [
        TAKE_OVER, TAKE_OVER, change((0, 5), late_run=1), change((7, 8)), LAST_LOOK, TAKE_OVER,
    ],
    "nothing is stored before the first run": [change((0, 5), late_run=-1)],
    "what was given before a seek stores nothing after it": [
        TAKE_OVER, change((0, 5), (7, 9)), (seek(TOPIC, 2), False),
        change((2, 20), late_epoch=1), LAST_LOOK, change((3, 4)),
    ],
    "a new topic under the old name begins at its beginning": [
        TAKE_OVER, change((3, 9), m1=2), (take_over(OTHER), False), change((0, 1), late_epoch=1, late_run=1),
        (look(OTHER), True),
    ],
    "a subscription made again remembers nothing": [
        TAKE_OVER, change((3, 9)), (create(1), False), TAKE_OVER, change((5, 6)),
        (drop(), False), (create(2), False),
    ],
    "retention takes what is below and keeps what is above": [
        TAKE_OVER, change((2, 4), (6, 8), (20, 21), m1=3, m9=1), (retain(7, False), False), change((8, 9)),
    ],
    "a snapshot is restored whole in a new epoch": [
        TAKE_OVER, change((0, 30), m40=3), (restore(TOPIC, 4, frozenset({1, 4, 6, 7})), False),
        change((5, 6), late_epoch=1), LAST_LOOK, change((5, 6)),
    ],
    "a snapshot of another topic restores nothing": [TAKE_OVER, (restore(OTHER, 4, frozenset({6})), False)],
    "a snapshot is restored of what no process took over yet": [
        (restore(TOPIC, 4, frozenset({6})), False), (take_over(TOPIC), True),
    ],
}  # fmt: skip


def walk(steady_store: tuple[asyncio.Runner, Store], plan: Sequence[tuple[Deed, bool]]) -> None:
    runner, store = steady_store

    async def stores(restarts: bool) -> tuple[CursorStore, CursorStore]:
        cursors = await store.restart() if restarts else store.cursors
        return cursors, cursors

    runner.run(follow(plan, stores))


@pytest.mark.parametrize("name", NAMED_PLANS)
def test_what_every_store_promises(steady_store: tuple[asyncio.Runner, Store], name: str) -> None:
    walk(steady_store, [*NAMED_PLANS[name], LAST_LOOK])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_a_store_does_what_sets_say(steady_store: tuple[asyncio.Runner, Store], plan: list[tuple[Deed, bool]]) -> None:
    walk(steady_store, plan)
