"""What every cursor store promises (`ams.storage.cursors.base`)."""

import asyncio

import pytest

from ams.core.errors import AckTimeout, InvalidInput, SubscriptionGone
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage.cursors.base import Cursors
from tests.storage.cursors.stores import DEADLINE, END, OTHER, SUB, TOPIC, Store


async def pulled(cursors: Cursors, end: int) -> None:
    position = await cursors.position(SUB, TOPIC)
    assert await cursors.hand_out(SUB, position.generation, Offset(end))


async def test_an_unknown_subscription_is_not_found(store: Store) -> None:
    unknown = SubscriptionId("nobody")
    for call in (
        store.cursors.position(unknown, TOPIC),
        store.cursors.lost(unknown, {}),
        store.cursors.retain(unknown, 0, Offset(1)),
        store.cursors.hand_out(unknown, 0, Offset(1)),
        store.cursors.acknowledge(unknown, Offset(1), DEADLINE),
        store.cursors.seek(unknown, TOPIC, Offset(1)),
    ):
        with pytest.raises(SubscriptionGone, match="Subscription doesn't exist"):
            await call


async def test_an_acknowledgement_moves_the_cursor_and_survives_a_restart(store: Store) -> None:
    await pulled(store.cursors, 10)
    await store.cursors.acknowledge(SUB, Offset(6), DEADLINE)

    cursors = await store.restart()

    assert (await cursors.position(SUB, TOPIC)).offset == 7


async def test_a_seek_survives_a_restart(store: Store) -> None:
    await store.cursors.seek(SUB, TOPIC, Offset(42))

    assert (await (await store.restart()).position(SUB, TOPIC)).offset == 42


async def test_a_seek_on_another_topic_than_the_cursors_moves_nothing(store: Store) -> None:
    """The topic was made anew while the offset was worked out: in the new one it would pass messages silently."""
    assert await store.cursors.seek(SUB, TOPIC, Offset(7))
    before = await store.cursors.position(SUB, OTHER)

    assert not await store.cursors.seek(SUB, TOPIC, Offset(42))
    assert await store.cursors.position(SUB, OTHER) == before
    assert before.offset == 0
    assert await store.cursors.seek(SUB, OTHER, Offset(3))
    assert (await (await store.restart()).position(SUB, OTHER)).offset == 3


@pytest.mark.parametrize("handed", [0, 9])
async def test_what_was_handed_out_elsewhere_can_be_acknowledged_after_the_next_start(
    store: Store, handed: int
) -> None:
    moved = SubscriptionId("moved")
    await store.cursors.create(moved, TOPIC, Offset(3), 0, Offset(handed))

    cursors = await store.restart()

    if handed:
        await cursors.acknowledge(moved, Offset(8), DEADLINE)
        assert (await cursors.position(moved, TOPIC)).offset == 9
    else:
        with pytest.raises(InvalidInput, match="no ack pending"):
            await cursors.acknowledge(moved, Offset(8), DEADLINE)


async def test_a_dropped_cursor_stays_dropped(store: Store) -> None:
    await store.cursors.drop(SUB)
    await store.cursors.drop(SUB)

    assert await (await store.restart()).subscriptions() == frozenset()


async def test_places_are_told_as_they_are_stored_and_nothing_moves(store: Store) -> None:
    other = SubscriptionId("sub-2")
    await store.cursors.create(other, OTHER, Offset(END + 7))
    await store.cursors.seek(SUB, TOPIC, Offset(5))
    stored = {SUB: (TOPIC, 5), other: (OTHER, END + 7)}

    assert await store.cursors.places() == stored
    assert await (await store.restart()).places() == stored
    await store.cursors.drop(SUB)
    assert await store.cursors.places() == {other: stored[other]}


async def test_a_hand_out_read_before_a_seek_is_not_recorded_after_it(store: Store) -> None:
    before = await store.cursors.position(SUB, TOPIC)
    await store.cursors.seek(SUB, TOPIC, Offset(5))

    assert not await store.cursors.hand_out(SUB, before.generation, Offset(9))
    with pytest.raises(InvalidInput, match="no ack pending"):
        await store.cursors.acknowledge(SUB, Offset(8), DEADLINE)


async def test_a_hand_out_of_an_expected_position_is_recorded_only_if_the_cursor_stands_there(store: Store) -> None:
    await pulled(store.cursors, 10)
    await store.cursors.acknowledge(SUB, Offset(3), DEADLINE)

    assert not await store.cursors.hand_out(SUB, 0, Offset(20), Offset(0))
    with pytest.raises(InvalidInput):
        await store.cursors.acknowledge(SUB, Offset(19), DEADLINE)
    assert await store.cursors.hand_out(SUB, 0, Offset(20), Offset(4))
    await store.cursors.acknowledge(SUB, Offset(19), DEADLINE)


async def test_an_acknowledgement_later_than_its_deadline_is_a_timeout(store: Store) -> None:
    await pulled(store.cursors, 10)
    store.clock.advance(10_001)

    with pytest.raises(AckTimeout):
        await store.cursors.acknowledge(SUB, Offset(9), DEADLINE)
    assert (await store.cursors.position(SUB, TOPIC)).offset == 0


async def test_a_wall_clock_that_steps_does_not_touch_deadlines(store: Store) -> None:
    await pulled(store.cursors, 10)
    store.clock.step(3_600_000)
    await store.cursors.acknowledge(SUB, Offset(4), DEADLINE)
    store.clock.step(-7_200_000)

    await store.cursors.acknowledge(SUB, Offset(9), DEADLINE)


async def test_what_was_pulled_before_a_restart_can_be_acknowledged_within_a_deadline_of_it(store: Store) -> None:
    store.clock.advance(60_000)
    await pulled(store.cursors, 10)
    cursors = await store.restart()
    store.clock.advance(10_000)

    await cursors.acknowledge(SUB, Offset(9), DEADLINE)

    assert (await cursors.position(SUB, TOPIC)).offset == 10


async def test_a_batch_pulled_before_a_seek_cannot_undo_it_across_a_restart(store: Store) -> None:
    store.clock.advance(60_000)
    await pulled(store.cursors, 10)
    await store.cursors.seek(SUB, TOPIC, Offset(0))
    store.clock.advance(1_000)
    cursors = await store.restart()

    with pytest.raises(InvalidInput, match="no ack pending"):
        await cursors.acknowledge(SUB, Offset(9), DEADLINE)


async def test_another_identity_of_the_topic_restarts_the_cursor_durably(store: Store) -> None:
    await store.cursors.seek(SUB, TOPIC, Offset(42))

    assert (await store.cursors.position(SUB, OTHER)).offset == 0
    assert (await (await store.restart()).position(SUB, OTHER)).offset == 0


async def test_retention_past_the_cursor_is_counted_for_ever(store: Store) -> None:
    moved = await store.cursors.retain(SUB, 0, Offset(7))

    assert (moved.offset, moved.lost) == (7, 7)
    assert (await (await store.restart()).position(SUB, TOPIC)).lost == 7


async def test_a_loss_seen_before_a_seek_does_not_move_the_cursor_after_it(store: Store) -> None:
    before = await store.cursors.position(SUB, TOPIC)
    await store.cursors.seek(SUB, TOPIC, Offset(3))

    after = await store.cursors.retain(SUB, before.generation, Offset(60))

    assert (after.offset, after.lost) == (3, 0)


async def test_a_clock_set_back_before_a_restart_takes_no_grace_from_old_subscriptions(store: Store) -> None:
    store.clock.advance(600_000)
    await pulled(store.cursors, 10)
    store.clock.step(-3_600_000)
    cursors = await store.restart()

    await cursors.acknowledge(SUB, Offset(9), DEADLINE)


async def test_many_acknowledgements_at_once_are_all_kept(store: Store) -> None:
    names = [SubscriptionId(f"sub-{number}") for number in range(50)]
    await asyncio.gather(*(store.cursors.create(name, TOPIC, Offset(0)) for name in names))
    for name in names:
        assert await store.cursors.hand_out(name, 0, Offset(100))

    await asyncio.gather(
        *(store.cursors.acknowledge(name, Offset(last), DEADLINE) for last in (3, 20, 99) for name in names)
    )

    cursors = await store.restart()
    assert [(await cursors.position(name, TOPIC)).offset for name in names] == [100] * 50


async def test_a_caller_that_leaves_does_not_disturb_the_others(store: Store) -> None:
    await pulled(store.cursors, 10)
    leaving = asyncio.ensure_future(store.cursors.acknowledge(SUB, Offset(3), DEADLINE))
    staying = asyncio.ensure_future(store.cursors.acknowledge(SUB, Offset(5), DEADLINE))
    await asyncio.sleep(0)
    leaving.cancel()

    await staying

    assert (await (await store.restart()).position(SUB, TOPIC)).offset == 6


async def test_the_newest_hand_out_is_told_until_it_is_acknowledged(store: Store) -> None:
    cursors = store.cursors
    assert await cursors.handed(SUB) is None

    await pulled(cursors, 5)
    store.clock.advance(1_000)
    assert await cursors.handed(SUB) == (5, 1_000)

    await cursors.acknowledge(SUB, Offset(4), DEADLINE)
    assert await cursors.handed(SUB) is None


async def test_what_retention_took_is_told_without_moving_anything(store: Store) -> None:
    other = SubscriptionId("sub-2")
    await store.cursors.create(other, TOPIC, Offset(5))
    assert (await store.cursors.lost(SUB, {}), await store.cursors.lost_in_all({})) == (0, 0)
    for subscription in (SUB, other):
        position = await store.cursors.position(subscription, TOPIC)
        await store.cursors.retain(subscription, position.generation, Offset(7))

    cursors = await store.restart()

    assert (await cursors.lost(SUB, {}), await cursors.lost(other, {}), await cursors.lost_in_all({})) == (7, 2, 9)
    assert (await cursors.position(SUB, TOPIC)).offset == 7


async def test_what_nobody_has_met_yet_is_lost_too(store: Store) -> None:
    elsewhere = TopicId(b"u" * 16)
    await store.cursors.create(SubscriptionId("sub-2"), TOPIC, Offset(5))

    for oldest, lost in (({}, 0), ({elsewhere: Offset(90)}, 0), ({TOPIC: Offset(4)}, 4), ({TOPIC: Offset(7)}, 7)):
        assert await store.cursors.lost(SUB, oldest) == lost
    assert await store.cursors.lost_in_all({TOPIC: Offset(7)}) == 7 + 2
    assert (await store.cursors.position(SUB, TOPIC)).lost == 0


async def test_what_a_cursor_had_lost_outlives_it(store: Store) -> None:
    for _ in range(2):
        await store.cursors.create(SUB, TOPIC, Offset(0))
        await store.cursors.retain(SUB, 0, Offset(7))
        await store.cursors.drop(SUB)

    assert await store.cursors.lost_in_all({}) == 14
    assert await (await store.restart()).lost_in_all({}) == 14


async def test_a_total_that_was_told_stays_and_is_counted_once_however_many_were_told_it(store: Store) -> None:
    await store.cursors.retain(SUB, 0, Offset(7))

    assert await store.cursors.lost_in_all({TOPIC: Offset(10)}) == 10
    assert await asyncio.gather(*(store.cursors.lost_in_all({}, 10) for _ in range(5))) == [10] * 5

    cursors = await store.restart()
    assert await cursors.lost_in_all({}, 4) == 10
    assert await cursors.lost_in_all({TOPIC: Offset(9)}) == 12


async def test_a_cursor_that_was_elsewhere_goes_on_where_it_stood_with_what_it_had_lost(store: Store) -> None:
    moved = SubscriptionId("moved")

    await store.cursors.create(moved, TOPIC, Offset(30), 12)

    for _ in range(2):
        position = await store.cursors.position(moved, TOPIC)
        assert (position.offset, position.lost) == (30, 12)
        assert await store.cursors.lost_in_all({}) == 12
        await store.restart()
