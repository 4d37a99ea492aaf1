"""Idempotency keys: known for the window, on disk, and looked up in few segments."""

import asyncio

import pytest

from ams.core.errors import KeyReused
from ams.core.names import TopicId
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts
from tests.support.waiting import PATIENCE_SECONDS

DAY = 24 * HOUR


async def test_a_key_older_than_the_window_counts_as_new_also_after_a_restart(engine: Embedded) -> None:
    async with engine.open_log(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.advance(HOUR)
        assert await log.append(topic, texts("a"), key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, texts("b"), key="k")

        engine.clock.advance(1)
        second = await log.append(topic, texts("b"), key="k")

    async with engine.open_log(idempotency_window=HOUR) as log:
        assert (first.first, second.first) == (0, 1)
        assert await log.append(topic, texts("b"), key="k") == second
        engine.clock.advance(HOUR + 1)
        assert (await log.append(topic, texts("b"), key="k")).first == 2


async def test_a_clock_that_leaps_ahead_forgets_no_key(engine: Embedded) -> None:
    async with engine.open_log(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.step(8 * DAY)
        assert await log.append(topic, texts("a"), key="k") == first
        engine.clock.step(-8 * DAY)
        assert (await log.append(topic, texts("a"), key="k"), (await log.bounds(topic)).end) == (first, 1)


async def test_without_a_window_a_key_is_known_as_long_as_its_topic_keeps_messages(engine: Embedded) -> None:
    """Also in the topic's earlier class."""
    async with engine.open_log(retention=DAY) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        await log.set_retention(topic, 300 * DAY)
        engine.clock.advance(DAY)
        assert await log.append(topic, texts("a"), key="k") == first

        await log.set_retention(topic, HOUR)

        assert (await log.append(topic, texts("a"), key="k")).first == 1


async def test_memory_does_not_grow_with_the_number_of_keys(engine: Embedded) -> None:
    """Keys of sealed segments are on disk: a segment is sealed after so many keys, however small its messages are."""
    async with engine.open_log(segment_keys=50) as log:
        topic = await new_topic(log)
        answers = []
        for number in range(400):
            answers.append(await log.append(topic, texts(str(number)), key=str(number)))
            if number % 50 == 49:
                await log.retain()

        assert sum(len(each.entries.keys) for each in log._state.catalog if each.entries is not None) <= 50
        assert [await log.append(topic, texts(str(number)), key=str(number)) for number in range(400)] == answers
        assert await log.bounds(topic) == Bounds(0, 400)


async def test_a_key_is_free_when_its_caller_leaves_while_the_topic_is_held(log: EmbeddedLog, topic: TopicId) -> None:
    async with log.hold_appends(topic):
        leaving = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
        for _ in range(10):  # it waits for the topic by then
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait((leaving,))

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await log.append(topic, texts("b"), key="k")).first == 0


async def fill(log: EmbeddedLog, topic: TopicId, first: int, segments: int) -> list[Appended]:
    """Make so many segments with three keys each, from number `first` on; return the answers."""
    answers: list[Appended] = []
    for start in range(first, first + 3 * segments, 3):
        appends = (log.append(topic, texts("a"), key=str(start + number)) for number in range(3))
        answers += await asyncio.gather(*appends)
    await log.retain()
    return answers


async def test_of_very_many_segments_a_new_key_asks_hardly_one_and_a_known_key_its_own(engine: Embedded) -> None:
    engine.disk.cold = True
    async with engine.open_log(segment_keys=2, retention=HOUR) as log:
        topic = await new_topic(log)
        await fill(log, topic, 0, 50)
        engine.clock.advance(HOUR - 1000)
        answers = await fill(log, topic, 150, 150)
        assert len(engine.disk.paths(".log")) > 180

        engine.disk.reads = 0
        for number in range(50):
            await log.append(topic, texts("a"), key=f"new{number}")
        assert engine.disk.reads < 100
        for number in (150, 400, 599):
            assert await log.append(topic, texts("a"), key=str(number)) == answers[number - 150]
            with pytest.raises(KeyReused):
                await log.append(topic, texts("b"), key=str(number))

        before = len(engine.disk.paths(".log"))
        engine.clock.advance(2000)
        await log.retain()  # takes the first segments, with their filters and keys
        assert len(engine.disk.paths(".log")) <= before - 50
        assert (await log.append(topic, texts("a"), key="0")).first == 650
        assert await log.append(topic, texts("a"), key="150") == answers[0]
