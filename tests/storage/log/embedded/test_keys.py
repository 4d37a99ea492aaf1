"""Idempotency keys: known for the window, on disk, and in memory only for the segments being written."""

import asyncio

import pytest

from ams.core.errors import KeyReused
from ams.core.names import TopicId
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts
from tests.support.waiting import PATIENCE_SECONDS

DAY = 24 * HOUR


async def test_a_key_older_than_the_window_counts_as_new_also_after_a_restart(engine: Embedded) -> None:
    async with engine.opened(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.advance(HOUR)
        assert await log.append(topic, texts("a"), key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, texts("b"), key="k")

        engine.clock.advance(1)
        second = await log.append(topic, texts("b"), key="k")

    async with engine.opened(idempotency_window=HOUR) as log:
        assert (first.first, second.first) == (0, 1)
        assert await log.append(topic, texts("b"), key="k") == second
        engine.clock.advance(HOUR + 1)
        assert (await log.append(topic, texts("b"), key="k")).first == 2


async def test_without_a_window_a_key_is_known_as_long_as_its_topic_keeps_messages(engine: Embedded) -> None:
    async with engine.opened(retention=DAY) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.advance(DAY)
        assert await log.append(topic, texts("a"), key="k") == first

        await log.set_retention(topic, HOUR)

        assert (await log.append(topic, texts("a"), key="k")).first == 1


async def test_a_key_is_found_in_the_class_its_topic_was_in_before(engine: Embedded) -> None:
    async with engine.opened(retention=DAY, idempotency_window=DAY) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")

        await log.set_retention(topic, 300 * DAY)

        assert await log.append(topic, texts("a"), key="k") == first


async def test_memory_does_not_grow_with_the_number_of_keys(engine: Embedded) -> None:
    """Keys of sealed segments are on disk: a segment is sealed after so many, however small its messages are."""
    async with engine.opened(segment_keys=50) as log:
        topic = await new_topic(log)
        answers = []
        for number in range(400):
            answers.append(await log.append(topic, texts(str(number)), key=str(number)))
            if number % 50 == 49:
                await log.retain()

        held = sum(len(each.entries.keys) for each in log._state.catalog if each.entries is not None)

        assert held <= 50
        assert [await log.append(topic, texts(str(number)), key=str(number)) for number in range(400)] == answers
        assert await log.bounds(topic) == Bounds(0, 400)


async def test_keys_of_an_open_segment_count_after_a_restart(engine: Embedded) -> None:
    async with engine.opened(segment_keys=10) as log:
        topic = await new_topic(log)
        for number in range(9):
            await log.append(topic, texts("a"), key=str(number))

    async with engine.opened(segment_keys=10) as log:
        for number in range(9, 12):
            await log.append(topic, texts("a"), key=str(number))

        assert len(engine.disk.paths(".log")) == 2


async def test_a_key_is_free_when_its_caller_leaves_while_the_topic_is_held(log: EmbeddedLog, topic: TopicId) -> None:
    async with log.held(topic):
        leaving = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
        for _ in range(10):  # it waits for the topic by then
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait((leaving,))

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await log.append(topic, texts("b"), key="k")).first == 0
