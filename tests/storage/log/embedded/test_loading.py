"""Loaded topics on disk: through sealed segments, recovery at any moment, and retention."""

from collections.abc import AsyncIterator, Sequence

from ams.core.messages import Stored
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds, Log, Origin
from tests.storage.log.embedded.history import end
from tests.storage.log.engines import HOUR, Embedded
from tests.storage.log.test_load import everything, stored

DAY = 24 * HOUR


async def load(log: Log, topic: TopicId, messages: Sequence[Stored]) -> None:
    async def hundreds() -> AsyncIterator[Sequence[Stored]]:
        for start in range(0, len(messages), 100):
            yield messages[start : start + 100]

    await log.load(topic, hundreds())


async def test_ends_and_bytes_outlive_the_segments_they_were_loaded_into():
    engine = Embedded(options={"segment_bytes": 20_000})
    full, empty = new_topic_id(), new_topic_id()
    now = engine.clock.now
    async with engine.opened() as log:
        await log.create(empty, origin=Origin(900, 77))
        await log.create(full, origin=Origin(100, 55))
        await load(log, full, stored(100, range(now - 2000, now)))
        await log.retain()
        engine.clock.advance(8 * DAY)
        await log.retain()
        assert await log.bounds(full) == Bounds(2100, 2100)

    async with engine.opened() as log:
        assert await log.bounds(full) == Bounds(2100, 2100)
        assert await log.bounds(empty) == Bounds(900, 900)
        assert [(await log.totals(each)).bytes for each in (full, empty)] == [55, 77]


async def test_every_message_is_found_by_offset_and_time_over_many_segments_and_after_a_crash():
    engine = Embedded(options={"segment_bytes": 20_000})
    topic, start = new_topic_id(), engine.clock.now - 50_000
    messages = stored(0, [start + 7 * (offset // 3) for offset in range(3000)])
    log = await engine.open()
    await log.create(topic)
    await load(log, topic, messages)
    await end(engine, log, "power loss")

    async with engine.opened() as log:
        assert await everything(log, topic) == messages
        for offset in range(0, 3000, 101):
            first = offset - offset % 3
            assert await log.offset_at(topic, messages[offset].time) == first


async def test_messages_loaded_past_their_age_are_gone_at_once(engine: Embedded):
    topic, now = new_topic_id(), engine.clock.now
    async with engine.opened() as log:
        await log.create(topic, DAY)
        assert await log.bounds(topic) == Bounds(0, 0)
        await load(log, topic, stored(0, [now - 2 * DAY, now - 2 * DAY, now - HOUR]))

        assert await log.bounds(topic) == Bounds(2, 3)


async def test_what_was_loaded_is_sealed_when_that_is_said_and_can_be_gone_on_with(engine: Embedded):
    topic, start = new_topic_id(), engine.clock.now - 50_000
    messages = stored(0, [start + offset for offset in range(300)])
    async with engine.opened() as log:
        await log.create(topic)
        await load(log, topic, messages[:200])
        await log.loaded()
        sealed = engine.disk.paths(".idx")
        await load(log, topic, messages[200:])

    assert sealed
    async with engine.opened() as log:
        assert await everything(log, topic) == messages
