"""What every store of acknowledgements one by one promises (`ams.storage.cursors.acks`)."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import SubscriptionGone
from ams.core.names import Offset, SubscriptionId, new_uuid
from ams.core.offsets import Range, ranges_of
from ams.storage.cursors import entries
from ams.storage.cursors.acks import Change, CursorStore, Horizon, Progress
from tests.storage.cursors.naive import Deed, Naive, answered, expected, facts_of, plans
from tests.storage.cursors.stores import OTHER, SUB, TOPIC, Store


def done(*ranges: tuple[int, int]) -> Change:
    return Change([(Offset(begin), Offset(end)) for begin, end in ranges])


def standing(progress: Progress) -> tuple[int, list[Range]]:
    return progress.floor, ranges_of(progress.done)


async def settle(cursors: CursorStore, taken: Progress, change: Change) -> bool:
    return await cursors.settle(SUB, taken.epoch, taken.run, change)


async def test_an_unknown_subscription_is_not_found(store: Store) -> None:
    unknown = SubscriptionId("nobody")
    for call in (
        store.cursors.take_over(unknown, TOPIC),
        store.cursors.progress(unknown),
        store.cursors.settle(unknown, 0, 1, done((0, 1))),
        store.cursors.restore(unknown, TOPIC, Offset(1), BitMap64()),
    ):
        with pytest.raises(SubscriptionGone, match="Subscription doesn't exist"):
            await call


async def test_what_is_done_in_any_order_survives_a_restart_and_the_floor_is_the_position(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    for change in (done((4, 6)), done((9, 10), (0, 2)), done((2, 3))):
        assert await settle(store.cursors, taken, change)

    cursors = await store.restart()

    assert (await cursors.position(SUB, TOPIC)).offset == 3
    assert standing(await cursors.progress(SUB)) == (3, [(4, 6), (9, 10)])
    assert standing(await cursors.take_over(SUB, TOPIC)) == (3, [(4, 6), (9, 10)])


async def test_failures_and_the_horizon_survive_a_restart_until_what_they_are_of_is_done(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    horizon = Horizon(Offset(8), Milliseconds(1_790_000_000_000))
    await settle(store.cursors, taken, Change((), {Offset(3): 1, Offset(5): 4}, horizon))
    await settle(store.cursors, taken, Change(done((0, 4)).done, {Offset(5): 5, Offset(2): 9}))

    cursors = await store.restart()

    assert await cursors.progress(SUB) == Progress(Offset(4), 0, 1, BitMap64(), {Offset(5): 5}, horizon)
    taken = await cursors.take_over(SUB, TOPIC)
    await settle(cursors, taken, done((4, 9)))
    assert await (await store.restart()).progress(SUB) == Progress(Offset(9), 0, 2, BitMap64(), {}, None)


async def test_a_run_that_another_follows_stores_nothing_any_more(store: Store) -> None:
    before = await store.cursors.take_over(SUB, TOPIC)
    now = await store.cursors.take_over(SUB, TOPIC)
    assert now.run == before.run + 1

    assert not await settle(store.cursors, before, done((0, 5)))
    assert await settle(store.cursors, now, done((7, 8)))

    assert standing(await (await store.restart()).progress(SUB)) == (0, [(7, 8)])
    assert (await store.cursors.take_over(SUB, TOPIC)).run == now.run + 1


async def test_nothing_is_stored_before_the_first_run(store: Store) -> None:
    assert (await store.cursors.progress(SUB)).run == 0
    assert not await store.cursors.settle(SUB, 0, 1, done((0, 5)))
    assert (await store.cursors.position(SUB, TOPIC)).offset == 0


async def test_what_was_acknowledged_before_a_seek_changes_nothing_after_it(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, done((0, 5), (7, 9)))
    await store.cursors.seek(SUB, TOPIC, Offset(2))

    assert not await settle(store.cursors, taken, done((2, 20)))
    cursors = await store.restart()
    progress = await cursors.progress(SUB)
    assert (standing(progress), progress.epoch, progress.run) == ((2, []), taken.epoch + 1, taken.run)
    assert await settle(cursors, progress, done((3, 4)))
    assert standing(await (await store.restart()).progress(SUB)) == (2, [(3, 4)])


async def test_a_new_topic_under_the_old_name_begins_at_its_beginning(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, Change(done((3, 9)).done, {Offset(1): 2}))

    again = await store.cursors.take_over(SUB, OTHER)

    assert again == Progress(Offset(0), taken.epoch + 1, taken.run + 1, BitMap64(), {}, None)
    assert not await settle(store.cursors, taken, done((0, 1)))
    assert await (await store.restart()).progress(SUB) == again


async def test_a_subscription_made_again_remembers_nothing(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, done((3, 9)))
    await store.cursors.create(SUB, TOPIC, Offset(1))
    assert standing(await store.cursors.progress(SUB)) == (1, [])

    await settle(store.cursors, await store.cursors.take_over(SUB, TOPIC), done((5, 6)))
    await store.cursors.drop(SUB)
    await store.cursors.create(SUB, TOPIC, Offset(2))

    assert standing(await store.cursors.progress(SUB)) == (2, [])
    assert standing(await (await store.restart()).progress(SUB)) == (2, [])


async def test_retention_takes_what_is_below_and_counts_what_was_not_done(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, Change(done((2, 4), (6, 8), (20, 21)).done, {Offset(1): 3, Offset(9): 1}))
    assert await store.cursors.lost(SUB, {TOPIC: Offset(7)}) == 4
    assert await store.cursors.lost_in_all({TOPIC: Offset(7)}) == 4

    moved = await store.cursors.retain(SUB, taken.epoch, Offset(7))

    assert (moved.offset, moved.lost, moved.generation) == (8, 4, taken.epoch)
    assert await settle(store.cursors, taken, done((8, 9)))  # given before, and kept
    cursors = await store.restart()
    assert await cursors.lost_in_all({}) == 4
    progress = await cursors.progress(SUB)
    assert (standing(progress), progress.failures) == ((9, [(20, 21)]), {9: 1})


async def test_a_snapshot_is_restored_whole_in_a_new_epoch(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    await settle(store.cursors, taken, Change(done((0, 30)).done, {Offset(40): 3}))

    epoch = await store.cursors.restore(SUB, TOPIC, Offset(4), BitMap64([1, 4, 6, 7]))

    assert epoch is not None
    assert epoch > taken.epoch
    assert not await settle(store.cursors, taken, done((5, 6)))
    cursors = await store.restart()
    progress = await cursors.progress(SUB)
    assert progress == Progress(Offset(5), epoch, taken.run, BitMap64([6, 7]), {}, None)
    assert await settle(cursors, progress, done((5, 6)))
    assert (await cursors.position(SUB, TOPIC)).offset == 8


async def test_a_snapshot_of_another_topic_restores_nothing(store: Store) -> None:
    before = await store.cursors.take_over(SUB, TOPIC)

    assert await store.cursors.restore(SUB, OTHER, Offset(4), BitMap64([6])) is None

    assert await store.cursors.progress(SUB) == before


async def test_a_snapshot_is_restored_of_what_no_process_took_over_yet(store: Store) -> None:
    await store.cursors.restore(SUB, TOPIC, Offset(4), BitMap64([6]))

    taken = await (await store.restart()).take_over(SUB, TOPIC)

    assert (standing(taken), taken.run) == ((4, [(6, 7)]), 1)


async def test_many_changes_at_once_are_all_kept(store: Store) -> None:
    names = [SubscriptionId(f"sub-{number}") for number in range(40)]
    await asyncio.gather(*(store.cursors.create(name, TOPIC, Offset(0)) for name in names))
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
    assert standing(await (await store.restart()).progress(SUB)) == (0, [(1, 2), (3, 4)])


async def test_what_is_done_already_is_done(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)

    answers = await asyncio.gather(*(settle(store.cursors, taken, done((3, 4))) for _ in range(5)))

    assert answers == [True] * 5
    assert await settle(store.cursors, taken, Change())
    assert standing(await (await store.restart()).progress(SUB)) == (0, [(3, 4)])


async def test_many_small_changes_are_one_image_at_last(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_DELTAS", 5)
    taken = await store.cursors.take_over(SUB, TOPIC)

    for at in range(1, 60, 2):
        await settle(store.cursors, taken, Change(done((at, at + 1)).done, {Offset(at - 1): at}))

    progress = await (await store.restart()).progress(SUB)
    assert list(progress.done) == list(range(1, 60, 2))
    assert progress.failures == {at - 1: at for at in range(1, 60, 2)}


async def test_every_second_of_many_messages_is_kept(store: Store) -> None:
    taken = await store.cursors.take_over(SUB, TOPIC)
    odd = [(Offset(at), Offset(at + 1)) for at in range(1, 900, 2)]
    assert await settle(store.cursors, taken, Change(odd))
    assert await settle(store.cursors, taken, done((900, 901)))

    cursors = await store.restart()

    assert ranges_of((await cursors.progress(SUB)).done) == [*odd[:-1], (899, 901)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_whatever_is_asked_is_what_sets_of_numbers_say(
    steady_store: tuple[asyncio.Runner, Store], plan: list[tuple[Deed, bool]]
) -> None:
    runner, store = steady_store
    runner.run(follow(store, plan))


async def follow(store: Store, plan: list[tuple[Deed, bool]]) -> None:
    subscription, model = SubscriptionId(new_uuid()), Naive()
    await store.cursors.create(subscription, TOPIC, Offset(0))
    for deed, restarts in plan:
        if restarts:
            await store.restart()
        answer = await answered(deed, store.cursors, subscription, model)
        assert answer == expected(deed, model), deed
        if model.is_gone:
            continue
        progress = await store.cursors.progress(subscription)
        assert facts_of(progress, await store.cursors.lost(subscription, {})) == model.facts()
        assert progress.epoch == model.epoch
    await store.cursors.drop(subscription)
