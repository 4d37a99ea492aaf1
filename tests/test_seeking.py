from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.clock import Milliseconds
from ams.errors import Conflict, InvalidInput, LogUnavailable, NotFound
from ams.names import SubscriptionName
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
