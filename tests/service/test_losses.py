"""What retention takes unacknowledged is told at once and never forgotten, on the real engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.errors import NotFound
from ams.core.names import Offset, TopicId
from ams.service.losses import Losses, LossTotal
from ams.storage.log.base import Bounds
from ams.storage.registry.records import Subscription
from tests.support.house import SUB, TOPIC, House, open_house

PAST_RETENTION = 7 * 86_400_000 + 2_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


async def lose(house: House, messages: int) -> None:
    """Publish messages that retention takes."""
    await house.publish(messages)
    house.engines.clock.advance(PAST_RETENTION)


async def subscription_of(house: House) -> Subscription:
    return await house.deliverer().to_pull(house.caller, SUB)


def losses_of(house: House) -> Losses:
    return Losses(house.engines.registry, house.engines.log, house.engines.cursors)


async def total(house: House, known: LossTotal | None = None) -> int:
    """Return the total after a look; without one that is `known`, as after a restart."""
    found = known or LossTotal(house.engines.log, house.engines.cursors)
    await found.look()
    return found.messages


async def test_what_nobody_has_met_yet_is_told_and_nothing_moves(house: House) -> None:
    subscription = await subscription_of(house)
    await lose(house, 3)

    assert await losses_of(house).of(subscription) == 3
    assert await total(house) == 3
    assert await house.engines.cursors.lost(subscription.id, {}) == 0


async def test_what_was_met_is_not_told_twice(house: House) -> None:
    subscription = await subscription_of(house)
    await lose(house, 3)
    await house.deliverer().pull(subscription, 1, wait=False)

    assert (await losses_of(house).of(subscription), await total(house)) == (3, 3)


async def test_a_subscription_without_topic_lost_what_was_met_before(house: House) -> None:
    subscription = await subscription_of(house)
    await lose(house, 3)
    await house.deliverer().pull(subscription, 1, wait=False)
    await house.engines.topics.delete(house.caller, TOPIC)

    assert await losses_of(house).of(subscription) == 3


async def test_a_subscription_that_is_gone_is_not_found(house: House) -> None:
    subscription = await subscription_of(house)
    await house.engines.subscriptions.delete(house.caller, SUB)

    with pytest.raises(NotFound, match="Subscription doesn't exist"):
        await losses_of(house).of(subscription)


@pytest.mark.parametrize("met", [True, False], ids=["met", "met by nobody"])
async def test_the_total_outlives_a_subscription_and_a_restart(house: House, met: bool) -> None:
    await lose(house, 3)
    if met:
        await house.deliverer().pull(await subscription_of(house), 1, wait=False)

    await house.engines.subscriptions.delete(house.caller, SUB)

    assert await total(house) == 3
    await house.engines.subscriptions.create(house.caller, SUB, "projects/P/topics/t")
    await lose(house, 2)
    assert await total(house) == 5


async def test_a_loss_is_stored_before_a_seek_passes_it(house: House) -> None:
    await lose(house, 3)
    await house.publish(4)

    await house.seeker.seek(house.caller, SUB, 7)

    assert await losses_of(house).of(await subscription_of(house)) == 3


async def test_a_total_that_was_told_never_falls_nor_hides_what_is_lost_later(house: House) -> None:
    """A topic that goes takes with it what nobody had met."""
    known = LossTotal(house.engines.log, house.engines.cursors)
    await lose(house, 3)
    assert await total(house, known) == 3

    await house.engines.topics.delete(house.caller, TOPIC)

    assert await total(house, known) == 3
    assert await total(house) == 3
    await house.engines.topics.create(house.caller, TOPIC)
    await house.deliverer().pull(await subscription_of(house), 1, wait=False)
    await lose(house, 2)
    assert await total(house, known) == await total(house) == 5


async def test_a_project_that_goes_leaves_what_its_subscriptions_had_lost(house: House) -> None:
    known = LossTotal(house.engines.log, house.engines.cursors)
    await lose(house, 3)
    assert await total(house, known) == 3

    await house.engines.projects.delete(house.caller)

    assert await total(house, known) == await total(house) == 3


async def test_the_total_is_looked_up_at_the_start(house: House) -> None:
    await lose(house, 3)
    started = LossTotal(house.engines.log, house.engines.cursors)

    await started.start()
    await started.close()

    assert started.messages == 3


async def test_a_loss_is_told_once_also_when_a_broker_that_kept_more_leads_for_a_while(house: House) -> None:
    known, bounds = LossTotal(house.engines.log, house.engines.cursors), house.engines.log.all_bounds
    await lose(house, 3)
    assert await total(house, known) == 3

    async def of_another_broker() -> dict[TopicId, Bounds]:
        return {topic: each._replace(oldest=Offset(1)) for topic, each in (await bounds()).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house.engines.log, "all_bounds", of_another_broker)
        assert await total(house, known) == 3

    assert await total(house, known) == await total(house) == 3
