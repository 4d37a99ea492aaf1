"""Snapshots: what is in them, and how long they stay. Their routes: contract 19.3."""

import pytest

from ams.access.admission import Caller
from ams.core.clock import DAY, Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotFound
from ams.core.messages import message
from ams.core.names import Offset, SnapshotName, SubscriptionName, TopicName
from ams.core.offsets import ranges_of
from ams.core.parallel_options import ParallelOptions
from ams.service.snapshots import Snapshots
from ams.storage.cursors.acks import Change
from ams.storage.registry.records import Subscription
from tests.support.engines import Engines

N, S, T = SnapshotName("N"), SubscriptionName("S"), TopicName("T")


@pytest.fixture
def snapshots(engines: Engines) -> Snapshots:
    return Snapshots(engines.registry, engines.log, engines.cursors, engines.clock)


@pytest.fixture
async def subscription(engines: Engines, caller: Caller) -> Subscription:
    """A parallel subscription with five messages, of which the first, the third and the fourth are done."""
    topic = await engines.topics.create(caller, T)
    made = await engines.subscriptions.create(caller, S, "projects/P/topics/T", options=ParallelOptions())
    for _ in range(5):
        await engines.log.append(topic.id, [message("aGk=")])
        engines.clock.advance(DAY)
    taken = await engines.cursors.take_over(made.id, topic.id)
    done = ((Offset(0), Offset(1)), (Offset(2), Offset(4)))
    assert await engines.cursors.settle(made.id, taken.epoch, taken.run, Change(done))
    return made


async def test_it_holds_what_was_done_when_it_was_made(
    snapshots: Snapshots, engines: Engines, caller: Caller, subscription: Subscription
) -> None:
    made = await snapshots.create(caller, N, "S")
    await engines.cursors.seek(subscription.id, made.topic_id, Offset(5))

    found, lost = await snapshots.show(caller, N)
    assert (found, lost) == (made, 0)
    assert (found.floor, ranges_of(found.done)) == (1, [(2, 4)])


async def test_it_ends_when_the_oldest_message_that_is_not_done_is_seven_days_old(
    snapshots: Snapshots, engines: Engines, caller: Caller, subscription: Subscription
) -> None:
    made = await snapshots.create(caller, N, "S")

    assert made.created_on == engines.clock.wall()
    assert made.expires_on == made.created_on + 3 * DAY, "offset 1 was published four days ago"


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
            await snapshots.set_expiry(caller, N, Milliseconds(moment))
    assert (await snapshots.show(caller, N))[0] == made

    for moment in (now + 7 * DAY, now + 1):
        changed = await snapshots.set_expiry(caller, N, Milliseconds(moment))
        assert changed.expires_on == moment
    engines.clock.advance(1)
    with pytest.raises(NotFound, match=r"^Snapshot doesn't exist$"):
        await snapshots.set_expiry(caller, N, Milliseconds(now + DAY))


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
