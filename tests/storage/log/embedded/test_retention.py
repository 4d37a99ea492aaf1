"""Retention deletes only messages that are too old or too many; ends, ids and keys of the others stay."""

import asyncio
import contextlib
import random

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.embedded.history import end_log
from tests.storage.log.engines import (
    HOUR,
    Embedded,
    all_fragments,
    append_each,
    fragments,
    make_messages,
    new_topic,
    texts,
)

DAY = 24 * HOUR


async def topic_of(log: EmbeddedLog, retention: int) -> TopicId:
    topic = new_topic_id()
    await log.create(topic, retention)
    return topic


async def test_messages_older_than_the_default_or_the_age_of_their_topic_go(engine: Embedded) -> None:
    async with engine.open_log(retention=DAY) as log:
        usual, short, long = await new_topic(log), await topic_of(log, DAY // 4), await topic_of(log, 400 * DAY)
        for topic in (usual, short, long):
            await log.append(topic, texts("old", "old"))
        engine.clock.advance(DAY // 2)
        await log.append(usual, texts("new"))
        assert await log.bounds(short) == Bounds(2, 2)

        engine.clock.advance(DAY // 2)
        assert await log.bounds(usual) == Bounds(0, 3)
        engine.clock.advance(1000)

        assert await log.bounds(usual) == Bounds(2, 3)
        assert [each.offset for each in await log.read(usual, 0, max_messages=9, max_bytes=999)] == [2]
        assert await log.offset_at(usual, 0) == 2
        engine.clock.advance(8 * DAY)
        assert await log.bounds(long) == Bounds(0, 2)


async def test_a_file_that_could_not_be_removed_is_removed_with_a_later_round(engine: Embedded, log: EmbeddedLog):
    await log.append(await topic_of(log, HOUR), texts("a"))
    engine.clock.advance(2 * HOUR)
    engine.disk.fail("unlink", where=".log", times=10**6)

    for _ in range(2):
        with pytest.raises(LogUnavailable):
            await log.retain()
        assert engine.disk.paths(".log") != []
    engine.disk.heal()
    await log.retain()

    assert engine.disk.paths(".log") == []


@pytest.mark.parametrize("ending", ["close", "kill"])
async def test_ids_go_on_when_all_segments_are_gone(engine: Embedded, ending: str, log: EmbeddedLog, topic: TopicId):
    last = await log.append(topic, texts("a", "b", "c"))
    engine.clock.advance(8 * DAY)
    await log.retain()
    assert engine.disk.paths(".log") == []
    assert await log.bounds(topic) == Bounds(3, 3)

    for _ in range(3):
        await end_log(engine, log, ending)
        engine.clock.step(-30 * DAY)
        log = await engine.open()
        assert (await log.bounds(topic), (await log.totals(topic)).bytes) == (Bounds(3, 3), 3)
        await log.retain()

    answer = await log.append(topic, texts("d"))
    assert answer.first == 3
    assert answer.time >= last.time


async def test_the_newest_table_stays_and_older_ones_go(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await topic_of(log, HOUR)
    for _ in range(5):
        await log.append(topic, texts("a"))
        engine.clock.advance(3 * HOUR)
        await log.retain()
        assert (len(engine.disk.paths(".idx")), engine.disk.paths(".log")) == (1, [])

    assert await log.bounds(topic) == Bounds(5, 5)


async def test_when_the_data_is_too_large_the_oldest_goes_first_over_all_classes() -> None:
    # Without writing ahead, which may add pages after a round has measured; the next round counts them.
    engine = Embedded(options={"segment_bytes": 10_000, "max_bytes": 60_000, "ahead_bytes": 0})
    async with engine.open_log() as log:
        day, week = await topic_of(log, DAY), await topic_of(log, 7 * DAY)
        for number in range(50):
            for topic in (day, week):
                await log.append(topic, make_messages(number, 1, size=1000))
            await log.retain()
            assert engine.disk.used_bytes("/log") <= 60_000

        for topic in (day, week):
            bounds = await log.bounds(topic)
            assert 10 < bounds.oldest < bounds.end == 50
            assert await all_fragments(log, topic) == fragments(
                make_messages(bounds.oldest, 50 - bounds.oldest, size=1000)
            )


async def test_the_limit_is_about_the_whole_data_folder() -> None:
    engine = Embedded(folder="/data/log", options={"max_bytes": 20_000, "data_folder": "/data", "segment_bytes": 4000})
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 3, size=1000))
        await log.append(topic, make_messages(3, 3, size=1000))
        await log.retain()
        assert (await log.bounds(topic)).oldest == 0

        engine.disk.write(engine.disk.open("/data/registry.db", create=True), bytes(16_000), 0)
        await log.retain()

        assert (await log.bounds(topic)).oldest >= 3


async def test_the_open_segment_goes_too_when_nothing_else_is_left() -> None:
    async with Embedded(options={"max_bytes": 1000}).open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 3, size=1000))

        await log.retain()

        assert (await log.bounds(topic), (await log.append(topic, texts("a"))).first) == (Bounds(3, 3), 3)


async def test_a_topic_dropped_in_another_class_than_it_was_written_in_does_not_return(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await topic_of(log, 7 * DAY)
        await log.append(topic, texts("a"))
        await log.set_retention(topic, HOUR)
        await log.append(topic, texts("b"))
        await log.drop(topic)
        engine.clock.advance(HOUR // 8)
        await log.retain()
        engine.clock.advance(2 * HOUR)
        await log.retain()
        assert engine.disk.paths(".log") == ["/log/7d/0000000000000001.log"]

    async with engine.open_log() as log:
        assert await log.topics() == frozenset()


async def test_a_change_of_retention_outlives_restarts_and_needs_no_copying(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await topic_of(log, HOUR)
        await log.append(topic, texts("a", "b"))
        await log.set_retention(topic, 300 * DAY)
        await log.append(topic, texts("c"))

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(texts("a", "b", "c"))
        engine.clock.advance(2 * HOUR)
        await log.retain()
        assert await log.bounds(topic) == Bounds(2, 3)
        engine.clock.advance(200 * DAY)
        await log.retain()
        assert await all_fragments(log, topic) == fragments(texts("c"))


async def test_a_clock_set_back_an_hour_eats_nothing_early_and_times_do_not_go_back(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await topic_of(log, 2 * HOUR)
        first = await log.append(topic, texts("a"))
    engine.clock.step(-HOUR)

    async with engine.open_log() as log:
        assert (await log.append(topic, texts("b"))).time == first.time
        engine.clock.advance(3 * HOUR)
        await log.retain()
        assert await log.bounds(topic) == Bounds(0, 2)
        engine.clock.advance(HOUR)
        await log.retain()

        assert await log.bounds(topic) == Bounds(2, 2)


@pytest.mark.parametrize("ending", ["close", "kill"])
async def test_what_lies_in_another_class_goes_without_a_hole(engine, ending, log: EmbeddedLog) -> None:
    topic, other = await topic_of(log, 7 * DAY), await topic_of(log, HOUR)
    await log.append(topic, texts("kept long"))
    await log.set_retention(topic, HOUR)
    await log.append(topic, texts("kept short"))
    await log.set_retention(topic, 7 * DAY)
    await log.append(topic, texts("kept long again"))
    await log.append(other, texts("a"))
    engine.clock.advance(2 * HOUR)

    await log.retain()
    assert await all_fragments(log, topic) == fragments(texts("kept long again"))
    if ending == "kill":
        await end_log(engine, log, "kill")

    async with engine.open_log() as log:
        assert await log.bounds(topic) == Bounds(2, 3)
        assert await all_fragments(log, topic) == fragments(texts("kept long again"))
        assert await log.bounds(other) == Bounds(1, 1)


async def test_a_shorter_retention_holds_at_once_and_what_is_gone_stays_so_when_a_longer_one_comes(engine: Embedded):
    async with engine.open_log() as log:
        topic = await topic_of(log, 7 * DAY)
        await log.append(topic, texts("a"))
        engine.clock.advance(2 * HOUR)
        assert await log.bounds(topic) == Bounds(0, 1)

        await log.set_retention(topic, HOUR)
        assert await log.bounds(topic) == Bounds(1, 1)
        await log.set_retention(topic, DAY)
        assert await log.bounds(topic) == Bounds(1, 1)

    async with engine.open_log() as log:
        assert await log.bounds(topic) == Bounds(1, 1)


async def nine_segments(log: EmbeddedLog) -> TopicId:
    """Fill segments of 1000 bytes with a message each, and apply retention."""
    topic = await new_topic(log)
    await append_each(log, topic, 9, 600)
    await log.retain()
    return topic


@pytest.mark.parametrize("seed", range(8))
async def test_what_went_for_its_size_is_not_back_after_a_power_loss(seed: int) -> None:
    """An index deleted before its segment would leave a segment to be scanned."""
    engine = Embedded(options={"segment_bytes": 1000, "max_bytes": 4000})
    log = await engine.open()
    topic = await nine_segments(log)
    oldest = (await log.bounds(topic)).oldest
    assert oldest > 2
    await end_log(engine, log, "power loss", random.Random(seed))

    async with engine.open_log(max_bytes=None) as log:
        assert await log.bounds(topic) == Bounds(oldest, 9)


@pytest.mark.parametrize("stop", range(1, 8))
async def test_a_power_loss_while_segments_go_leaves_none_without_its_index(stop: int) -> None:
    for seed in range(20):
        engine = Embedded(options={"segment_bytes": 1000})
        async with engine.open_log() as log:
            await nine_segments(log)
        log = await engine.open(max_bytes=4000)
        engine.disk.stop_at = engine.disk.changes + stop
        with contextlib.suppress(LogUnavailable):
            await log.retain()
        await log.close()
        engine.disk.power_loss(random.Random(seed))

        *segments, _ = (path.removesuffix(".log") for path in engine.disk.paths(".log"))
        assert {path.removesuffix(".idx") for path in engine.disk.paths(".idx")} >= set(segments)


async def test_what_a_reader_saw_gone_when_the_log_was_closed_is_not_back_after_that() -> None:
    for turns in range(25):
        engine = Embedded(options={"segment_bytes": 1000})
        async with engine.open_log() as log:
            topic = await nine_segments(log)
        async with engine.open_log(max_bytes=4000) as log:
            retaining = asyncio.ensure_future(log.retain())
            for _ in range(turns):
                await asyncio.sleep(0)
            oldest = (await log.bounds(topic)).oldest
        await asyncio.gather(retaining, return_exceptions=True)

        async with engine.open_log() as log:
            assert (await log.bounds(topic)).oldest >= oldest
