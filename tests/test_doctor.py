"""What the doctor says of states that are hard to reach by requests; the others are rows of tests/contract/ours.py."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.clock import Milliseconds
from ams.doctor import Diagnosis, Doctor
from ams.errors import InvalidInput, NotFound
from ams.names import Offset, SubscriptionName
from tests.support.house import SUB, TOPIC, House, open_house

WEEK = Milliseconds(7 * 86_400_000)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as made:
        yield made


async def look(house: House) -> Diagnosis:
    engines = house.engines
    doctor = Doctor(engines.registry, engines.log, engines.cursors, engines.counting, WEEK, engines.clock)
    return await doctor.look(house.caller, SUB)


async def test_a_topic_made_again_is_looked_at_from_its_beginning(house: House) -> None:
    await house.publish(3)
    await house.seeker.seek(house.caller, SUB, 3)
    await house.engines.topics.delete(house.caller, TOPIC)
    await house.engines.topics.create(house.caller, TOPIC)
    await house.publish(2)

    standing = (await look(house)).standing

    assert standing is not None
    assert (standing.current, standing.backlog, standing.lost) == (0, 2, 0)


async def test_a_loss_nobody_has_met_yet_is_told_and_not_counted_twice(house: House) -> None:
    await house.publish(3)
    house.engines.clock.advance(WEEK + 2_000)
    await house.publish(1, first=3)
    before = (await look(house)).standing
    subscription = await house.deliverer().subscription(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    after = (await look(house)).standing

    assert before is not None
    assert after is not None
    assert (before.lost, after.lost) == (3, 3)


async def test_what_is_wrong_comes_first(house: House) -> None:
    await house.publish(1)

    found = (await look(house)).findings

    assert [finding.wrong for finding in found] == [True, False]


async def test_a_pull_that_got_nothing_is_a_pull(house: House) -> None:
    subscription = await house.deliverer().subscription(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    await house.publish(1)

    assert (await look(house)).healthy


async def test_a_pull_is_known_after_it_was_stored_and_an_acknowledgement_too(house: House) -> None:
    await house.publish(1)
    deliverer = house.deliverer()
    await deliverer.pull(await deliverer.subscription(house.caller, SUB), 1, wait=False)
    await house.engines.counting.round()
    house.engines.clock.advance(1_000)
    await deliverer.acknowledge(house.caller, SUB, lambda: [0])
    house.engines.clock.advance(500)

    standing = (await look(house)).standing

    assert standing is not None
    assert (standing.pulled_ago, standing.acknowledged_ago, standing.hand_out) == (1_500, 500, None)


async def test_a_refused_acknowledgement_was_none(house: House) -> None:
    with pytest.raises(InvalidInput):
        await house.deliverer().acknowledge(house.caller, SUB, lambda: [0])

    standing = (await look(house)).standing

    assert standing is not None
    assert standing.acknowledged_ago is None


async def test_after_an_idle_hour_nobody_consumes(house: House) -> None:
    subscription = await house.deliverer().subscription(house.caller, SUB)
    await house.deliverer().pull(subscription, 1, wait=False)
    await house.publish(1)
    house.engines.clock.advance(3_600_000)

    diagnosis = await look(house)

    assert diagnosis.findings[0] == (True, "1 message waits, and the last pull was 1h ago.")


async def test_a_position_past_the_end_of_its_topic_is_told(house: House) -> None:
    """Only a log that lost messages it had acknowledged makes one."""
    subscription = await house.deliverer().subscription(house.caller, SUB)
    topic = await house.publisher.topic(house.caller, TOPIC)
    await house.publish(3)
    await house.engines.cursors.create(subscription.id, topic.id, Offset(5))

    diagnosis = await look(house)

    assert diagnosis.standing is not None
    assert (diagnosis.standing.backlog, diagnosis.standing.ahead) == (0, 2)
    assert diagnosis.findings[0] == (
        True, "It stands past the end of its topic and will miss the next 2 messages: move it to the end."
    )  # fmt: skip


async def test_an_unknown_subscription_is_not_found(house: House) -> None:
    engines = house.engines
    doctor = Doctor(engines.registry, engines.log, engines.cursors, engines.counting, WEEK, engines.clock)

    with pytest.raises(NotFound, match="^Subscription doesn't exist$"):
        await doctor.look(house.caller, SubscriptionName("none"))
