import asyncio
from collections.abc import Sequence

import pytest

from ams.core.errors import Conflict, Overloaded, SubscriptionGone
from ams.core.fair_share import MAX_UNCOUNTED_BYTES
from ams.core.messages import Stored
from ams.core.names import SubscriptionId, TopicId
from ams.service.delivery import LARGE_ANSWER_BYTES, Deliverer, Gone, UnreadAnswers
from ams.service.push.configurations import Pushing
from ams.service.subscriptions import Subscriptions
from ams.storage.cursors.base import Position
from ams.storage.registry.records import Subscription
from tests.service.interference import interrupt_call
from tests.support.use_cases import SUB, TOPIC, UseCases, pulled_later
from tests.support.waiting import wait_until_async


async def pull_offsets(use_cases: UseCases, count: int = 100, deliverer: Deliverer | None = None) -> list[int]:
    deliverer = deliverer or use_cases.deliverer()
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    return [each.offset for each in await deliverer.pull(subscription, count, wait=False)]


async def waiting_pulls(
    deliverer: Deliverer, subscription: Subscription, count: int = 1, left: Gone | None = None
) -> "list[asyncio.Task[Sequence[Stored]]]":
    """Start pulls, and return them once they wait for a first message."""
    before = deliverer.waiting
    pulls = [asyncio.create_task(pulled_later(deliverer, subscription, 1, 60, left)) for _ in range(count)]
    await wait_until_async(lambda: deliverer.waiting == before + count)
    return pulls


@pytest.mark.parametrize(("end", "found"), [("message", [0]), ("client", []), ("stop", [])])
async def test_m9_a_message_client_or_stop_ends_waiting_pulls(use_cases: UseCases, end: str, found: list[int]) -> None:
    deliverer = use_cases.deliverer()
    gone: Gone = asyncio.get_running_loop().create_future()
    waiting = await waiting_pulls(deliverer, await deliverer.to_pull(use_cases.caller, SUB), 3, gone)

    if end == "message":
        await use_cases.publish(1)
    elif end == "client":
        gone.set_result(None)
    else:
        deliverer.stop_waiting()

    assert [[each.offset for each in pulled] for pulled in await asyncio.gather(*waiting)] == [found] * 3
    assert deliverer.waiting == 0


async def test_a_topic_deleted_while_a_pull_waits_ends_the_wait(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer()
    [waiting] = await waiting_pulls(deliverer, await deliverer.to_pull(use_cases.caller, SUB))

    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(Conflict, match="^Subscription's topic doesn't exist$"):
        await waiting


async def test_a_topic_made_again_while_a_pull_waits_goes_on_with_the_new_one(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer()
    [waiting] = await waiting_pulls(deliverer, await deliverer.to_pull(use_cases.caller, SUB))
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    await use_cases.engines.registry.topics.delete(topic)
    await use_cases.engines.topics.create(use_cases.caller, TOPIC)
    await use_cases.engines.log.drop(topic.id)
    await use_cases.publish(1)

    assert [each.offset for each in await waiting] == [0]


async def test_a_subscription_deleted_while_pulls_wait_ends_their_waits_and_no_others(use_cases: UseCases) -> None:
    deliverer = use_cases.deliverer()
    engines = use_cases.engines
    subscriptions = Subscriptions(
        engines.registry, engines.log, engines.cursors, Pushing(engines.registry), stopped=deliverer.wake
    )
    other = await subscriptions.create(use_cases.caller, "other", "projects/P/topics/t")
    deleted = await deliverer.to_pull(use_cases.caller, SUB)
    waiting, others = [await waiting_pulls(deliverer, each, 3) for each in (deleted, other)]

    await subscriptions.delete(use_cases.caller, SUB)

    for each in waiting:
        with pytest.raises(SubscriptionGone, match="^Subscription doesn't exist$"):
            await each
    assert not any(each.done() for each in others)
    await use_cases.publish(1)
    assert [len(each) for each in await asyncio.gather(*others)] == [1, 1, 1]


def test_a_project_may_hold_as_many_unread_answers_as_it_leaves_free() -> None:
    big = 2 * MAX_UNCOUNTED_BYTES
    unread = UnreadAnswers(12 * big)
    assert unread.room("A") == 12 * big
    with unread.hold_answer("A", 6 * big):
        assert (unread.room("A"), unread.room("B")) == (0, 6 * big)
        with pytest.raises(Overloaded):
            unread.check("A", big)
        unread.check("A", MAX_UNCOUNTED_BYTES)
        with unread.hold_answer("B", 3 * big):
            assert (unread.room("B"), unread.room("C")) == (0, 3 * big)
    assert unread.room("A") == 12 * big


async def test_a_pull_takes_what_memory_is_left_and_is_refused_when_that_is_too_little_for_one(use_cases: UseCases):
    await use_cases.publish_data(3, MAX_UNCOUNTED_BYTES)
    deliverer = use_cases.deliverer()
    deliverer.unread = UnreadAnswers(2 * MAX_UNCOUNTED_BYTES + 1000)
    subscription = await deliverer.to_pull(use_cases.caller, SUB)

    assert len(await deliverer.pull(subscription, 3, wait=False, project="P")) == 2
    with (
        deliverer.unread.hold_answer("P", MAX_UNCOUNTED_BYTES + 1),
        pytest.raises(Overloaded, match="^Too many answers wait"),
    ):
        await deliverer.pull(subscription, 3, wait=False, project="P")
    assert len(await deliverer.pull(subscription, 3, wait=False)) == 3


async def test_an_answer_counts_while_its_hand_out_is_stored(use_cases: UseCases) -> None:
    """Also for cursors in a remote database, where storing a hand-out takes a while."""
    await use_cases.publish_data(1, 2 * MAX_UNCOUNTED_BYTES)
    deliverer = use_cases.deliverer()
    deliverer.unread = UnreadAnswers(2**24)
    left: list[int] = []

    async def look() -> None:
        left.append(deliverer.unread.room("Q"))

    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    with interrupt_call(use_cases.engines.cursors, "hand_out", look):
        [message] = await deliverer.pull(subscription, 1, wait=False, project="P")
    assert left == [2**24 - len(message.fragment)]
    assert deliverer.unread.room("Q") == 2**24


@pytest.mark.parametrize("expected", [0, 1, 2, 4, 9])
async def test_a_pull_begins_at_the_cursor(use_cases: UseCases, monkeypatch: pytest.MonkeyPatch, expected: int) -> None:
    """Another node may have moved it: a wrongly prefetched message is never handed out."""
    await use_cases.publish(4)
    await pull_offsets(use_cases, 2)
    await use_cases.acknowledge([1])
    cursors, asked = use_cases.engines.cursors, 0
    position = cursors.position

    async def count_position(subscription: SubscriptionId, topic: TopicId) -> Position:
        nonlocal asked
        asked += 1
        return await position(subscription, topic)

    monkeypatch.setattr(cursors, "cached_position", lambda *_: Position(expected, 0, 0))
    monkeypatch.setattr(cursors, "position", count_position)

    assert await pull_offsets(use_cases) == [2, 3]
    assert bool(asked) == (expected != 2)
    await use_cases.acknowledge([3])
    assert await pull_offsets(use_cases) == []


async def test_large_answers_due_together_are_made_in_turns_of_the_event_loop_of_their_own(use_cases: UseCases) -> None:
    await use_cases.publish_data(1, LARGE_ANSWER_BYTES)
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


@pytest.mark.parametrize("end", ["message", "stop", "deletion"])
async def test_a_message_stop_or_deletion_wakes_a_waiter_for_many_subscriptions(use_cases: UseCases, end: str) -> None:
    subscription, deliverer = await use_cases.deliverer().to_pull(use_cases.caller, SUB), use_cases.deliverer()
    assert await deliverer.ready([subscription.id], 0) == frozenset()
    waiting = asyncio.create_task(deliverer.ready([subscription.id], 60))
    await wait_until_async(lambda: deliverer.waiting == 1)

    if end == "message":
        await use_cases.publish(1)
    elif end == "stop":
        deliverer.stop_waiting()
    else:
        deliverer.wake(subscription.id)

    assert await waiting == {subscription.id}
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
        waiting = asyncio.ensure_future(deliverer.ready([subscription.id], 30, left))
    await wait_until_async(lambda: deliverer.waiting == 1)

    if ends == "cancelled":
        waiting.cancel()
    else:
        await use_cases.publish(1)
    await asyncio.wait([waiting])
    await asyncio.sleep(0)

    assert asyncio.all_tasks() - before == set()
    assert deliverer.waiting == 0
