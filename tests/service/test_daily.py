from collections.abc import AsyncIterator

import pytest

from ams.core.clock import DAY, Milliseconds, day_of
from ams.core.names import TopicId
from ams.service.daily import Share, shares
from ams.storage.log.base import Totals
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import Embedded, new_topic, texts

MIDNIGHT = 20_000 * DAY
NOTHING = Totals(0, 0, None)


@pytest.fixture
def engine() -> Embedded:
    made = Embedded(options={"retention": Milliseconds(3 * DAY)})
    made.clock.now = MIDNIGHT
    return made


@pytest.fixture
async def log(engine: Embedded) -> AsyncIterator[EmbeddedLog]:
    async with engine.opened() as log:
        yield log


async def published(engine: Embedded, log: EmbeddedLog, topic: TopicId, *days_and_counts: tuple[int, int]) -> None:
    for day, count in days_and_counts:
        engine.clock.now = MIDNIGHT + day * DAY
        await log.append(topic, texts(*["ab"] * count))


async def told(log: EmbeddedLog, topic: TopicId, counted: Totals) -> list[tuple[int, int]]:
    found = await shares(log, topic, counted, await log.totals(topic))
    return [(each.day - day_of(Milliseconds(MIDNIGHT)), each.messages) for each in found]


async def test_nothing_new_is_of_no_day(log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    assert await told(log, topic, NOTHING) == []

    await log.append(topic, texts("a"))
    assert await told(log, topic, await log.totals(topic)) == []


async def test_messages_of_one_day_are_told_with_their_bytes(log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await log.append(topic, texts("a", "bcd"))

    now = await log.totals(topic)

    assert await shares(log, topic, NOTHING, now) == [Share(20_000, 2, 4)]
    assert await shares(log, topic, Totals(1, 1, Milliseconds(MIDNIGHT)), now) == [Share(20_000, 1, 3)]


async def test_messages_of_several_days_are_told_by_their_publish_times(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (1, 1), (2, 2))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 3), (1, 1), (2, 2)]
    assert await told(log, topic, Totals(2, 4, Milliseconds(MIDNIGHT))) == [(0, 1), (1, 1), (2, 2)]
    assert await told(log, topic, Totals(4, 8, Milliseconds(MIDNIGHT))) == [(2, 2)]


async def test_the_first_and_last_millisecond_of_a_day_are_of_it(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    for moment in (MIDNIGHT, MIDNIGHT + DAY - 1, MIDNIGHT + DAY):
        engine.clock.now = moment
        await log.append(topic, texts("a"))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 2), (1, 1)]


async def test_bytes_of_several_days_sum_up(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    for day, data in enumerate(("a", "bb", "c" * 40)):
        engine.clock.now = MIDNIGHT + day * DAY
        await log.append(topic, texts(data))

    found = await shares(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT)), await log.totals(topic))

    assert sum(each.bytes for each in found) == 43


async def test_what_retention_took_is_of_the_earliest_day_it_can_be_of(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (2, 1), (5, 2), (6, 4))
    await log.retain()

    assert (await log.bounds(topic)).oldest == 4
    assert await told(log, topic, Totals(1, 2, Milliseconds(MIDNIGHT))) == [(0, 3), (5, 2), (6, 4)]


async def test_when_retention_took_everything_it_is_all_of_that_day(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (0, 3), (2, 1))
    engine.clock.now = MIDNIGHT + 9 * DAY
    await log.retain()

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT))) == [(0, 4)]


async def test_a_clock_set_back_leaves_messages_on_the_day_the_log_says(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await new_topic(log)
    await published(engine, log, topic, (2, 1), (0, 1))

    assert await told(log, topic, Totals(0, 0, Milliseconds(MIDNIGHT + 4 * DAY))) == [(2, 2)]
