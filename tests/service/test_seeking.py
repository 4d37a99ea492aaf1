import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput, LogUnavailable, NotFound
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId
from ams.service.seeking import Seeker
from tests.support.house import SUB, TOPIC, House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as made:
        yield made


async def test_11_3_a_new_topic_has_nothing_at_either_end(house: House) -> None:
    assert await house.seeker.offsets(house.caller, SUB) == (0, 0, 0)


async def test_11_3_max_is_the_id_of_the_next_message(house: House) -> None:
    await house.publish(4)

    assert await house.seeker.offsets(house.caller, SUB) == (0, 4, 0)


async def test_11_5_both_ends_can_be_sought(house: House) -> None:
    await house.publish(4)

    for offset in (4, 0, 2):
        await house.seeker.seek(house.caller, SUB, offset)
        assert (await house.seeker.offsets(house.caller, SUB)).current == offset


@pytest.mark.parametrize("offset", [-1, 5, 2**63])
async def test_a6_out_of_bounds_is_refused_and_changes_nothing(house: House, offset: int) -> None:
    await house.publish(4)
    await house.seeker.seek(house.caller, SUB, 1)

    with pytest.raises(InvalidInput, match="^Offset out of bounds$"):
        await house.seeker.seek(house.caller, SUB, offset)
    assert (await house.seeker.offsets(house.caller, SUB)).current == 1


async def test_11_4_a_time_finds_the_first_message_at_or_after_it(house: House) -> None:
    await house.publish(2)
    house.engines.clock.advance(5_000)
    moment = house.engines.clock.wall()
    await house.publish(2, first=2)

    assert await house.seeker.offset_at(house.caller, SUB, moment) == 2
    assert await house.seeker.offset_at(house.caller, SUB, Milliseconds(moment - 1)) == 2
    assert await house.seeker.offset_at(house.caller, SUB, Milliseconds(0)) == 0
    with pytest.raises(Conflict, match="^Timestamp is out of bounds for the subscription's topic/partition$"):
        await house.seeker.offset_at(house.caller, SUB, Milliseconds(moment + 1))


async def test_an_unknown_subscription_is_not_found(house: House) -> None:
    with pytest.raises(NotFound, match="^Subscription doesn't exist$"):
        await house.seeker.offsets(house.caller, SubscriptionName("none"))


async def test_without_its_topic_a_subscription_has_no_offsets(house: House) -> None:
    await house.engines.topics.delete(house.caller, TOPIC)

    with pytest.raises(Conflict):
        await house.seeker.offsets(house.caller, SUB)
    with pytest.raises(LogUnavailable, match="^Backend Error$"):
        await house.seeker.offset_at(house.caller, SUB, Milliseconds(0))


async def test_seeking_to_the_time_of_a_message_gives_it_and_all_after_it(house: House) -> None:
    """A thousand acknowledged, several in each millisecond: exactly those from the time of number 400 on come again."""
    deliverer = house.deliverer()
    for first in range(0, 1000, 8):
        await house.publish(8, first)
        house.engines.clock.advance(1)
    subscription = await deliverer.to_pull(house.caller, SUB)
    pulled = await deliverer.pull(subscription, 1000, wait=False)
    await deliverer.acknowledge(await deliverer.to_acknowledge(house.caller, SUB), [999])

    stands = await house.seeker.seek_time(house.caller, SUB, pulled[404].time)

    assert pulled[400].time == pulled[404].time != pulled[399].time
    assert stands == (0, 1000, 400)
    again = await deliverer.pull(subscription, 1000, wait=False)
    assert list(again) == list(pulled[400:])


async def test_a_time_outside_leads_to_the_nearest_end(house: House) -> None:
    await house.publish(2)
    later = Milliseconds(house.engines.clock.wall() + 1)

    assert (await house.seeker.seek_time(house.caller, SUB, later)).current == 2
    assert (await house.seeker.seek_time(house.caller, SUB, Milliseconds(-1))).current == 0


async def test_a_pull_under_way_does_not_undo_a_seek(house: House) -> None:
    await house.publish(10)
    deliverer = house.deliverer()
    subscription = await deliverer.to_pull(house.caller, SUB)

    await asyncio.gather(
        *(deliverer.pull(subscription, 3, wait=False) for _ in range(20)),
        house.seeker.seek(house.caller, SUB, 7),
        *(deliverer.pull(subscription, 3, wait=False) for _ in range(20)),
    )

    assert (await house.seeker.offsets(house.caller, SUB)).current == 7
    assert [each.offset for each in await deliverer.pull(subscription, 3, wait=False)] == [7, 8, 9]


async def test_of_two_seeks_at_once_one_wins_and_neither_is_mixed(house: House) -> None:
    await house.publish(10)
    moment = house.engines.clock.wall()
    house.engines.clock.advance(5)

    answers = await asyncio.gather(
        house.seeker.seek(house.caller, SUB, 3), house.seeker.seek_time(house.caller, SUB, Milliseconds(moment + 1))
    )

    assert [each.current for each in answers] == [3, 10]
    assert (await house.seeker.offsets(house.caller, SUB)).current in (3, 10)


async def test_a_seek_whose_topic_is_made_anew_meanwhile_seeks_in_the_new_one(house: House) -> None:
    await house.publish(10)
    later = Milliseconds(house.engines.clock.wall() + 1)
    cursors = Remade(house)
    seeker = Seeker(house.engines.registry, house.engines.log, cursors)

    stands = await seeker.seek_time(house.caller, SUB, later)

    assert cursors.remade
    assert stands == (0, 2, 2)
    assert await house.seeker.offsets(house.caller, SUB) == (0, 2, 2)


class Remade:
    """The cursors; right before the first seek the topic is made anew, gets two messages, and one of them is pulled."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.remade = False

    async def seek(self, subscription: SubscriptionId, topic: TopicId, offset: Offset) -> bool:
        if not self.remade:
            self.remade = True
            house, deliverer = self.house, self.house.deliverer()
            await house.engines.topics.delete(house.caller, TOPIC)
            await house.engines.topics.create(house.caller, TOPIC)
            await house.publish(2)
            await deliverer.pull(await deliverer.to_pull(house.caller, SUB), 1, wait=False)
        return await self.house.engines.cursors.seek(subscription, topic, offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.house.engines.cursors, name)
