"""The time of day jumps past the retention and back: nothing goes, and no id is given twice.

Retention goes by the time of day, but follows a leap ahead only when it has lasted a day. What is published meanwhile,
and later, stays its whole time.
"""

import pytest

from ams.storage.log.base import Bounds
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts

DAY = 24 * HOUR
PAST_RETENTION = 8 * DAY

pytestmark = pytest.mark.faults


async def test_a_clock_that_jumps_past_retention_and_back_takes_nothing_that_was_published_since() -> None:
    engine = Embedded()
    async with engine.opened(retention=7 * DAY) as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a", "b", "c"))

        engine.clock.step(PAST_RETENTION)
        await log.retain()
        assert (await log.append(topic, texts("d", "e"))).first == 3
        assert await log.bounds(topic) == Bounds(0, 5), "a leap is not followed at once"

        engine.clock.step(-PAST_RETENTION)
        assert (await log.append(topic, texts("f", "g"))).first == 5
        await log.retain()
        assert await log.bounds(topic) == Bounds(0, 7)

    async with engine.opened(retention=7 * DAY) as log:
        assert (await log.append(topic, texts("h"))).first == 7
        engine.clock.advance(6 * DAY)
        await log.retain()
        assert await log.bounds(topic) == Bounds(0, 8)


async def test_a_leap_that_lasts_a_day_is_followed_and_told_before() -> None:
    engine = Embedded()
    async with engine.opened(retention=7 * DAY) as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a", "b", "c"))
        engine.clock.step(PAST_RETENTION)
        for _ in range(23):
            engine.clock.advance(HOUR)
            await log.retain()
        assert await log.bounds(topic) == Bounds(0, 3)
        assert log.leap == PAST_RETENTION
        engine.clock.advance(2 * HOUR)
        await log.retain()
        assert await log.bounds(topic) == Bounds(3, 3)
        assert log.leap == 0
