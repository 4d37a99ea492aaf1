import asyncio

from ams.core.clock import Milliseconds
from ams.wire.subscriptions import Offsets
from tests.service.interference import interrupted
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
        use_cases.seeker.seek(use_cases.caller, SUB, 3),
        use_cases.seeker.seek_time(use_cases.caller, SUB, Milliseconds(moment + 1)),
    )

    assert [each.current for each in answers] == [3, 10]
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current in (3, 10)
    assert await use_cases.seeker.seek_time(use_cases.caller, SUB, moment) == Offsets(0, 10, 0), "that of the messages"


async def test_a_seek_whose_topic_is_made_anew_meanwhile_seeks_in_the_new_one(use_cases: UseCases) -> None:
    """Right before the first seek the topic is made anew, gets two messages, and one of them is pulled."""
    await use_cases.publish(10)
    later = Milliseconds(use_cases.engines.clock.wall() + 1)
    deliverer = use_cases.deliverer()

    async def remake() -> None:
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
        await use_cases.engines.topics.create(use_cases.caller, TOPIC)
        await use_cases.publish(2)
        await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)

    with interrupted(use_cases.engines.cursors, "seek", remake):
        assert await use_cases.seeker.seek_time(use_cases.caller, SUB, later) == Offsets(0, 2, 2)
    assert await use_cases.seeker.offsets(use_cases.caller, SUB) == Offsets(0, 2, 2)
