"""Seeks that race with pulls and with recreated topics, and lifetimes of snapshots. Their routes: contract 19.3."""

import asyncio

import pytest

from ams.access.admission import Caller
from ams.core.clock import DAY
from ams.core.errors import Conflict, InvalidInput, NotFound
from ams.core.messages import message
from ams.core.offsets import ranges_of
from ams.core.parallel_options import ParallelOptions
from ams.core.retention_clock import RetentionClock
from ams.service.subscription_offsets import Snapshots
from ams.storage.cursors.acks import AckUpdate
from ams.storage.registry.records import Subscription
from ams.wire.subscriptions import Offsets
from tests.service.interference import interrupt_call
from tests.support.engines import Engines
from tests.support.use_cases import SUB, TOPIC, UseCases


async def test_a_pull_under_way_does_not_undo_a_seek(use_cases: UseCases) -> None:
    await use_cases.publish(10)
    deliverer = use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)

    await asyncio.gather(
        *(deliverer.pull(subscription, 3, wait=False) for _ in range(20)),
        use_cases.seeker.seek(use_cases.caller, SUB, 7),
        *(deliverer.pull(subscription, 3, wait=False) for _ in range(20)),
    )

    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current == 7
    assert [each.offset for each in await deliverer.pull(subscription, 3, wait=False)] == [7, 8, 9]


async def test_of_two_seeks_at_once_one_wins_and_neither_is_mixed(use_cases: UseCases) -> None:
    await use_cases.publish(10)
    moment = use_cases.engines.clock.wall()
    use_cases.engines.clock.advance(5)

    answers = await asyncio.gather(
        use_cases.seeker.seek(use_cases.caller, SUB, 3), use_cases.seeker.seek_time(use_cases.caller, SUB, moment + 1)
    )

    assert [each.current for each in answers] == [3, 10]
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current in (3, 10)
    assert await use_cases.seeker.seek_time(use_cases.caller, SUB, moment) == Offsets(0, 10, 0), "that of the messages"


async def test_a_seek_whose_topic_is_made_anew_meanwhile_seeks_in_the_new_one(use_cases: UseCases) -> None:
    """Before the first seek the topic is recreated, gets two messages, and one of them is pulled."""
    await use_cases.publish(10)
    later = use_cases.engines.clock.wall() + 1
    deliverer = use_cases.deliverer()

    async def remake() -> None:
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
        await use_cases.engines.topics.create(use_cases.caller, TOPIC)
        await use_cases.publish(2)
        await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)

    with interrupt_call(use_cases.engines.cursors, "seek", remake):
        assert await use_cases.seeker.seek_time(use_cases.caller, SUB, later) == Offsets(0, 2, 2)
    assert await use_cases.seeker.offsets(use_cases.caller, SUB) == Offsets(0, 2, 2)


N, S, T = "N", "S", "T"


@pytest.fixture
def snapshots(engines: Engines) -> Snapshots:
    return Snapshots(engines.registry, engines.log, engines.cursors, engines.clock, RetentionClock(engines.clock))


@pytest.fixture
async def subscription(engines: Engines, caller: Caller) -> Subscription:
    """A parallel subscription with five messages; the first, third and fourth are acknowledged."""
    topic = await engines.topics.create(caller, T)
    made = await engines.subscriptions.create(caller, S, "projects/P/topics/T", options=ParallelOptions())
    for _ in range(5):
        await engines.log.append(topic.id, [message("aGk=")])
        engines.clock.advance(DAY)
    taken = await engines.cursors.take_over(made.id, topic.id)
    assert await engines.cursors.settle(made.id, taken.epoch, taken.run, AckUpdate(((0, 1), (2, 4))))
    return made


async def test_it_is_of_the_topic_that_has_the_name_now(
    snapshots: Snapshots, engines: Engines, caller: Caller, subscription: Subscription
) -> None:
    await engines.topics.delete(caller, T)
    with pytest.raises(Conflict, match="topic doesn't exist"):
        await snapshots.create(caller, N, "S")
    another = await engines.topics.create(caller, T)

    made = await snapshots.create(caller, N, "S")

    assert (made.topic_id, made.floor, ranges_of(made.done)) == (another.id, 0, [])


async def test_it_ends_when_it_was_set_to_within_seven_days(
    snapshots: Snapshots, engines: Engines, caller: Caller, subscription: Subscription
) -> None:
    made = await snapshots.create(caller, N, "S")
    now = engines.clock.wall()

    for moment in (0, now, now + 7 * DAY + 1):
        with pytest.raises(InvalidInput, match=r"^A snapshot ends later than now, and within seven days$"):
            await snapshots.set_expiry(caller, N, moment)
    assert (await snapshots.show(caller, N))[0] == made

    for moment in (now + 7 * DAY, now + 1):
        assert (await snapshots.set_expiry(caller, N, moment)).expires_on == moment
    engines.clock.advance(1)
    with pytest.raises(NotFound, match=r"^Snapshot doesn't exist$"):
        await snapshots.set_expiry(caller, N, now + DAY)


@pytest.mark.parametrize(("days", "lost"), [(7, 0), (6, 1), (4, 1), (3, 2)])
async def test_a_topic_that_keeps_messages_as_long_as_a_snapshot_lives_keeps_all_that_is_in_it(
    snapshots: Snapshots, engines: Engines, caller: Caller, subscription: Subscription, days: int, lost: int
) -> None:
    made = await snapshots.create(caller, N, "S")
    await engines.retention.of_topic(caller, T, days * DAY // 1000)

    engines.clock.advance(made.expires_on - engines.clock.wall() - 1)

    assert await snapshots.show(caller, N) == (made, lost)
    engines.clock.advance(1)
    with pytest.raises(NotFound, match="^Snapshot doesn't exist$"):
        await snapshots.show(caller, N)
