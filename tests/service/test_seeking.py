import asyncio
from typing import Any

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput, LogUnavailable, NotFound
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId
from ams.service.seeking import Seeker
from ams.wire.subscriptions import Offsets
from tests.support.use_cases import SUB, TOPIC, UseCases


async def test_11_3_a_new_topic_has_nothing_at_either_end(use_cases: UseCases) -> None:
    assert await use_cases.seeker.offsets(use_cases.caller, SUB) == Offsets(0, 0, 0)


async def test_11_3_max_is_the_id_of_the_next_message(use_cases: UseCases) -> None:
    await use_cases.publish(4)

    assert await use_cases.seeker.offsets(use_cases.caller, SUB) == Offsets(0, 4, 0)


async def test_11_5_both_ends_can_be_sought(use_cases: UseCases) -> None:
    await use_cases.publish(4)

    for offset in (4, 0, 2):
        await use_cases.seeker.seek(use_cases.caller, SUB, offset)
        assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current == offset


@pytest.mark.parametrize("offset", [-1, 5, 2**63])
async def test_a6_out_of_bounds_is_refused_and_changes_nothing(use_cases: UseCases, offset: int) -> None:
    await use_cases.publish(4)
    await use_cases.seeker.seek(use_cases.caller, SUB, 1)

    with pytest.raises(InvalidInput, match="^Offset out of bounds$"):
        await use_cases.seeker.seek(use_cases.caller, SUB, offset)
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).current == 1


async def test_11_4_a_time_finds_the_first_message_at_or_after_it(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    use_cases.engines.clock.advance(5_000)
    moment = use_cases.engines.clock.wall()
    await use_cases.publish(2, first=2)

    assert await use_cases.seeker.offset_at(use_cases.caller, SUB, moment) == 2
    assert await use_cases.seeker.offset_at(use_cases.caller, SUB, Milliseconds(moment - 1)) == 2
    assert await use_cases.seeker.offset_at(use_cases.caller, SUB, Milliseconds(0)) == 0
    with pytest.raises(Conflict, match="^Timestamp is out of bounds for the subscription's topic/partition$"):
        await use_cases.seeker.offset_at(use_cases.caller, SUB, Milliseconds(moment + 1))


async def test_an_unknown_subscription_is_not_found(use_cases: UseCases) -> None:
    with pytest.raises(NotFound, match="^Subscription doesn't exist$"):
        await use_cases.seeker.offsets(use_cases.caller, SubscriptionName("none"))


async def test_without_its_topic_a_subscription_has_no_offsets(use_cases: UseCases) -> None:
    await use_cases.engines.topics.delete(use_cases.caller, TOPIC)

    with pytest.raises(Conflict):
        await use_cases.seeker.offsets(use_cases.caller, SUB)
    with pytest.raises(LogUnavailable, match="^Backend Error$"):
        await use_cases.seeker.offset_at(use_cases.caller, SUB, Milliseconds(0))


async def test_seeking_to_the_time_of_a_message_gives_it_and_all_after_it(use_cases: UseCases) -> None:
    """A thousand acknowledged, several in each millisecond: exactly those from the time of number 400 on come again."""
    deliverer = use_cases.deliverer()
    for first in range(0, 1000, 8):
        await use_cases.publish(8, first)
        use_cases.engines.clock.advance(1)
    subscription = await deliverer.to_pull(use_cases.caller, SUB)
    pulled = await deliverer.pull(subscription, 1000, wait=False)
    await deliverer.acknowledge(await deliverer.to_acknowledge(use_cases.caller, SUB), [999])

    stands = await use_cases.seeker.seek_time(use_cases.caller, SUB, pulled[404].time)

    assert pulled[400].time == pulled[404].time != pulled[399].time
    assert stands == Offsets(0, 1000, 400)
    again = await deliverer.pull(subscription, 1000, wait=False)
    assert list(again) == list(pulled[400:])


async def test_a_time_outside_leads_to_the_nearest_end(use_cases: UseCases) -> None:
    await use_cases.publish(2)
    later = Milliseconds(use_cases.engines.clock.wall() + 1)

    assert (await use_cases.seeker.seek_time(use_cases.caller, SUB, later)).current == 2
    assert (await use_cases.seeker.seek_time(use_cases.caller, SUB, Milliseconds(-1))).current == 0


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


async def test_a_seek_whose_topic_is_made_anew_meanwhile_seeks_in_the_new_one(use_cases: UseCases) -> None:
    await use_cases.publish(10)
    later = Milliseconds(use_cases.engines.clock.wall() + 1)
    cursors = Remade(use_cases)
    seeker = Seeker(use_cases.engines.registry, use_cases.engines.log, cursors)

    stands = await seeker.seek_time(use_cases.caller, SUB, later)

    assert cursors.remade
    assert stands == Offsets(0, 2, 2)
    assert await use_cases.seeker.offsets(use_cases.caller, SUB) == Offsets(0, 2, 2)


class Remade:
    """The cursors; right before the first seek the topic is made anew, gets two messages, and one of them is pulled."""

    def __init__(self, use_cases: UseCases) -> None:
        self.use_cases = use_cases
        self.remade = False

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        if not self.remade:
            self.remade = True
            use_cases, deliverer = self.use_cases, self.use_cases.deliverer()
            await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
            await use_cases.engines.topics.create(use_cases.caller, TOPIC)
            await use_cases.publish(2)
            await deliverer.pull(await deliverer.to_pull(use_cases.caller, SUB), 1, wait=False)
        return await self.use_cases.engines.cursors.seek(subscription, topic, offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.use_cases.engines.cursors, name)
