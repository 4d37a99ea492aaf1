import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from ams.core.errors import AckTimeout, Conflict, InvalidInput, NotFound, Overloaded, SubscriptionGone
from ams.core.held import SMALL
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId
from ams.service.delivering import LARGE_ANSWER, Deliverer, Gone, UnreadAnswers
from ams.service.subscriptions import Subscriptions
from ams.storage.cursors.base import Cursors, Position
from ams.storage.log.embedded import LogOptions
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases, pulled_later

T = TypeVar("T")


async def pulled(
    use_cases: UseCases, count: int = 100, deliverer: Deliverer | None = None, *, wait: bool = False
) -> list[int]:
    deliverer = deliverer or use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    seconds = deliverer.wait_seconds if wait else 0
    return [each.offset for each in await pulled_later(deliverer, subscription, count, seconds)]


async def acknowledged(use_cases: UseCases, *numbers: int) -> None:
    await use_cases.acknowledge(numbers)


async def test_10_4_a_pull_repeated_without_an_acknowledgement_returns_the_same(use_cases: UseCases) -> None:
    await use_cases.publish(5)

    assert await pulled(use_cases, 3) == [0, 1, 2]
    assert await pulled(use_cases, 3) == [0, 1, 2]


async def test_11_2_only_the_largest_id_counts(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    await pulled(use_cases, 4)
    await acknowledged(use_cases, 1, 3, 0)

    assert await pulled(use_cases) == [4]


async def test_the_default_deadline_is_ten_seconds_and_the_same_messages_come_again(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    await pulled(use_cases)
    use_cases.engines.clock.advance(10_001)

    with pytest.raises(AckTimeout, match="^ack timeout$"):
        await acknowledged(use_cases, 1)
    assert await pulled(use_cases) == [0, 1]
    await acknowledged(use_cases, 1)


async def test_11_1_negative_numbers_and_none_at_all_are_invalid(use_cases: UseCases) -> None:
    for numbers in ((), (-1,), (-5, -2)):
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            await acknowledged(use_cases, *numbers)


async def test_an_unknown_subscription_is_not_found(use_cases: UseCases) -> None:
    with pytest.raises(NotFound, match="^Subscription doesn't exist$"):
        await use_cases.deliverer().to_pull(use_cases.caller, SubscriptionName("none"))


async def test_10_3_a_subscription_whose_topic_is_gone_is_a_conflict(use_cases: UseCases) -> None:
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(Conflict, match="^Subscription's topic doesn't exist$"):
        await pulled(use_cases)


async def test_a9_a_topic_created_again_is_delivered_from_its_beginning(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    await pulled(use_cases)
    await acknowledged(use_cases, 4)
    topics = use_cases.engines.topics
    await topics.delete(use_cases.caller, TOPIC)
    await topics.create(use_cases.caller, TOPIC)
    await use_cases.publish(2)

    assert await pulled(use_cases) == [0, 1]


async def test_m9_a_waiting_pull_answers_as_soon_as_there_is_one_message(use_cases: UseCases) -> None:
    waiting = asyncio.ensure_future(pulled(use_cases, wait=True))
    await asyncio.sleep(0.05)
    assert not waiting.done()

    await use_cases.publish(1)

    assert await asyncio.wait_for(waiting, 1) == [0]


async def test_m9_a_waiting_pull_gives_up_after_a_while(use_cases: UseCases) -> None:
    assert await pulled(use_cases, deliverer=use_cases.deliverer(wait_seconds=0.05), wait=True) == []


async def test_a15_a_waiting_pull_returns_what_there_is_at_once(use_cases: UseCases) -> None:
    await use_cases.publish(3)

    assert await asyncio.wait_for(pulled(use_cases, 100, wait=True), 1) == [0, 1, 2]


async def test_m9_a_client_that_left_ends_its_wait(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer(wait_seconds=60)
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    gone: Gone = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(pulled_later(deliverer, subscription, 1, 60, gone))
    await asyncio.sleep(0.05)

    gone.set_result(None)

    assert not await asyncio.wait_for(waiting, 1)
    assert deliverer.waiting == 0


async def test_a_stop_ends_all_waiting_pulls(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer(wait_seconds=60)
    waiting = [asyncio.ensure_future(pulled(use_cases, deliverer=deliverer, wait=True)) for _ in range(20)]
    async with asyncio.timeout(5):
        while deliverer.waiting < 20:
            await asyncio.sleep(0.01)

    deliverer.stop_waiting()

    assert await asyncio.wait_for(asyncio.gather(*waiting), 1) == [[]] * 20


async def test_a_topic_deleted_while_a_pull_waits_ends_the_wait(use_cases: UseCases) -> None:
    waiting = asyncio.ensure_future(pulled(use_cases, wait=True))
    await asyncio.sleep(0.05)

    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(Conflict, match="^Subscription's topic doesn't exist$"):
        await asyncio.wait_for(waiting, 1)


async def test_a_topic_made_again_while_a_pull_waits_goes_on_with_the_new_one(use_cases: UseCases) -> None:
    waiting = asyncio.ensure_future(pulled(use_cases, wait=True))
    await asyncio.sleep(0.05)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    await use_cases.engines.registry.topics.delete(topic)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.engines.log.drop(topic.id)
    await use_cases.publish(1)

    assert await asyncio.wait_for(waiting, 1) == [0]


async def test_a_subscription_deleted_while_pulls_wait_ends_their_waits_and_no_others(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer(wait_seconds=60)
    engines = use_cases.engines
    subscriptions = Subscriptions(engines.registry, engines.log, engines.cursors, stopped=deliverer.wake)
    other = await subscriptions.create(use_cases.caller, SubscriptionName("other"), "projects/P/topics/t")
    deleted = await deliverer.to_pull(use_cases.caller, SUB)
    waiting, others = (
        [asyncio.ensure_future(pulled_later(deliverer, each, 1, 60)) for _ in range(3)] for each in (deleted, other)
    )
    async with asyncio.timeout(5):
        while deliverer.waiting < 6:
            await asyncio.sleep(0.01)

    await subscriptions.delete(use_cases.caller, SUB)

    for each in waiting:
        with pytest.raises(SubscriptionGone, match="^Subscription doesn't exist$"):
            await asyncio.wait_for(each, 1)
    assert not any(each.done() for each in others)
    await use_cases.publish(1)
    assert [len(each) for each in await asyncio.gather(*others)] == [1, 1, 1]


async def test_a_pull_racing_with_a_seek_does_not_undo_it(use_cases: UseCases) -> None:
    await use_cases.publish(10)
    deliverer = use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)

    async def seek() -> None:
        await use_cases.seeker.seek(use_cases.caller, SUB, 5)

    messages, _ = await asyncio.gather(deliverer.pull(subscription, 3, wait=False), seek())

    if messages[0].offset == 0:  # pulled before the seek: no longer acknowledgeable
        with pytest.raises(InvalidInput, match="no ack pending"):
            await use_cases.acknowledge([9])
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current == 5


async def test_the_cap_on_messages_is_silent(use_cases: UseCases) -> None:
    await use_cases.publish(5)

    assert await pulled(use_cases, 100, use_cases.deliverer(max_messages=2)) == [0, 1]


def test_a_project_may_hold_as_many_unread_answers_as_it_leaves_free() -> None:
    big = 2 * SMALL
    unread = UnreadAnswers(12 * big)
    assert unread.left("A") == 12 * big
    with unread.held("A", 6 * big):
        assert (unread.left("A"), unread.left("B")) == (0, 6 * big)
        with pytest.raises(Overloaded):
            unread.check("A", big)
        unread.check("A", SMALL)
        with unread.held("B", 3 * big):
            assert (unread.left("B"), unread.left("C")) == (0, 3 * big)
    assert unread.left("A") == 12 * big


async def test_a_pull_takes_what_memory_is_left_and_is_refused_when_that_is_too_little_for_one(
    use_cases: UseCases,
) -> None:
    await use_cases.publish_data(3, SMALL)
    deliverer = use_cases.deliverer()
    deliverer.unread = UnreadAnswers(2 * SMALL + 1000)
    subscription = await deliverer.to_pull(use_cases.caller, SUB)

    assert len(await deliverer.pull(subscription, 3, wait=False, project="P")) == 2
    with deliverer.unread.held("P", SMALL + 1), pytest.raises(Overloaded, match="^Too many answers wait"):
        await deliverer.pull(subscription, 3, wait=False, project="P")
    assert len(await deliverer.pull(subscription, 3, wait=False)) == 3


async def test_an_answer_counts_while_its_hand_out_is_stored(use_cases: UseCases) -> None:
    stored = asyncio.Event()
    seen: list[int] = []

    class Slow:
        """Cursors in a database elsewhere: a hand-out takes a while."""

        def __getattr__(self, name: str) -> Any:
            return getattr(use_cases.engines.cursors, name)

        async def hand_out(self, *given: Any) -> bool:
            seen.append(deliverer.unread.left("Q"))
            await stored.wait()
            return await use_cases.engines.cursors.hand_out(*given)

    await use_cases.publish_data(1, 2 * SMALL)
    deliverer = use_cases.deliverer()
    deliverer.unread, deliverer.cursors = UnreadAnswers(2**24), cast("Any", Slow())
    pulling = asyncio.ensure_future(
        deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False, project="P")
    )
    async with asyncio.timeout(5):
        while not seen:
            await asyncio.sleep(0.01)
    stored.set()

    [message] = await pulling
    assert seen == [2**24 - len(message.fragment)]
    assert deliverer.unread.left("Q") == 2**24


class Expecting:
    """Cursors in a database elsewhere, of which this process knows where one was."""

    def __init__(self, cursors: Cursors, offset: int) -> None:
        self._cursors = cursors
        self._offset = Offset(offset)
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)

    def expected(self, _subscription: SubscriptionId, _topic: TopicId) -> Position:
        return Position(self._offset, 0, 0)

    async def position(self, subscription: SubscriptionId, topic: TopicId) -> Position:
        self.asked += 1
        return await self._cursors.position(subscription, topic)


@pytest.mark.parametrize("expected", [0, 1, 2, 4, 9])
async def test_a_pull_begins_where_the_cursor_stands_wherever_it_was_expected(
    use_cases: UseCases, expected: int
) -> None:
    """Another node may have moved it: what was expected wrongly is never handed out."""
    await use_cases.publish(4)
    await pulled(use_cases, 2)
    await acknowledged(use_cases, 1)
    deliverer, cursors = use_cases.deliverer(), Expecting(use_cases.engines.cursors, expected)
    deliverer.cursors = cast("Any", cursors)

    assert await pulled(use_cases, deliverer=deliverer) == [2, 3]
    assert bool(cursors.asked) == (expected != 2)
    await acknowledged(use_cases, 3)
    assert await pulled(use_cases, deliverer=deliverer) == []


async def test_large_answers_that_are_due_together_are_made_in_turns_of_the_event_loop_of_their_own(
    use_cases: UseCases,
) -> None:
    await use_cases.publish_data(1, LARGE_ANSWER)
    deliverer = use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    turns, answered_in = 0, []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def pull() -> None:
        assert len(await deliverer.pull(subscription, 1, wait=False)) == 1
        answered_in.append(turns)

    counting = asyncio.ensure_future(count())
    await asyncio.gather(*[pull() for _ in range(5)])
    counting.cancel()

    assert len(set(answered_in)) == 5


async def test_a_pull_of_what_is_in_memory_suspends_nowhere(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    deliverer = use_cases.deliverer()
    for _ in range(2):  # from then on it is kept
        await pulled(use_cases, 3, deliverer)
    subscription = driven(deliverer.to_pull(use_cases.caller, SUB))

    assert len(driven(deliverer.pull(subscription, 3, wait=False, project="P"))) == 3


async def test_an_acknowledgement_suspends_once_for_the_disk(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    deliverer = use_cases.deliverer()
    await pulled(use_cases, 3, deliverer)
    acknowledging = deliverer.acknowledge(driven(deliverer.to_acknowledge(use_cases.caller, SUB)), [2])

    stored = acknowledging.send(None)
    await asyncio.wait([stored])
    with pytest.raises(StopIteration):
        acknowledging.send(None)


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine does that never suspends."""
    with contextlib.closing(work), pytest.raises(StopIteration) as ended:
        work.send(None)
    done: T = ended.value.value
    return done


async def test_retention_past_a_cursor_is_counted_and_delivery_goes_on(tmp_path: Path) -> None:
    hour = 3_600_000
    options = LogOptions(retention=hour, min_free_bytes=0, reserve_bytes=0, segment_bytes=64 * 1024)  # type: ignore[arg-type]
    async with open_use_cases(tmp_path, options) as use_cases:
        await use_cases.publish(3)
        use_cases.engines.clock.advance(2 * hour)
        await use_cases.publish(2, first=3)
        await use_cases.engines.log.retain()

        assert await pulled(use_cases) == [3, 4]
        topic = await use_cases.engines.registry.topics.find(use_cases.caller.here.id, TOPIC)
        subscription = await use_cases.engines.registry.subscriptions.find(use_cases.caller.here.id, SUB)
        assert topic is not None
        assert subscription is not None
        assert (await use_cases.engines.cursors.position(subscription.id, topic.id)).lost == 3


async def test_of_many_subscriptions_those_with_something_to_pull_are_told(use_cases: UseCases) -> None:
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    await use_cases.publish(1)

    assert await use_cases.deliverer().ready([subscription.id], 30) == {subscription.id}
    await pulled(use_cases)
    await acknowledged(use_cases, 0)
    assert await use_cases.deliverer().ready([subscription.id], 0) == frozenset()


async def test_who_waits_for_many_subscriptions_is_woken_by_the_first_message(use_cases: UseCases) -> None:
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    waiting = asyncio.create_task(use_cases.deliverer().ready([subscription.id], 30))
    await asyncio.sleep(0.01)
    await use_cases.publish(1)

    assert await asyncio.wait_for(waiting, 10) == {subscription.id}


async def test_what_is_unknown_is_ready_so_that_a_pull_says_why(use_cases: UseCases) -> None:
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    unknown = SubscriptionId("none")

    assert await use_cases.deliverer().ready([subscription.id, unknown], 30) == {unknown}


async def test_a_stop_and_a_deletion_end_the_wait_for_many_subscriptions(use_cases: UseCases) -> None:
    subscription = await use_cases.deliverer().to_pull(use_cases.caller, SUB)
    for end in (lambda each: each.stop_waiting(), lambda each: each.wake(subscription.id)):
        deliverer = use_cases.deliverer()
        waiting = asyncio.create_task(deliverer.ready([subscription.id], 30))
        await asyncio.sleep(0.01)
        end(deliverer)

        assert await asyncio.wait_for(waiting, 10) == {subscription.id}
        assert deliverer.waiting == 0


@pytest.mark.parametrize("ends", ["cancelled", "answered"])
@pytest.mark.parametrize("how", ["pull", "ready"])
async def test_a_wait_that_is_over_leaves_no_task(use_cases: UseCases, how: str, ends: str) -> None:
    left: Gone = asyncio.get_running_loop().create_future()
    deliverer = use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    before = asyncio.all_tasks()
    if how == "pull":
        waiting = asyncio.ensure_future(pulled_later(deliverer, subscription, 1, 30, left))
    else:
        waiting = asyncio.ensure_future(deliverer.ready([subscription.id], 30, left))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    assert deliverer.waiting == 1

    if ends == "cancelled":
        waiting.cancel()
    else:
        await use_cases.publish(1)
    await asyncio.wait([waiting])
    await asyncio.sleep(0)

    assert asyncio.all_tasks() - before == set()
    assert deliverer.waiting == 0
