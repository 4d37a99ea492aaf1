"""Topics loaded from another log: the contract of `ams.storage.log.base.Log`, and loading into many segments."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ams.core.errors import InvalidInput
from ams.core.messages import Stored, message
from ams.core.names import new_topic_id
from ams.storage.log.base import Bounds, Log, Origin
from tests.storage.log.embedded.history import end_log
from tests.storage.log.engines import HOUR, Embedded, Engine, all_stored, make_messages, new_topic, texts

DAY = 24 * HOUR


async def yield_batches(*batches: Sequence[Stored]) -> AsyncIterator[Sequence[Stored]]:
    for batch in batches:
        yield batch


def make_stored(first: int, times: Sequence[int]) -> list[Stored]:
    return [
        Stored(offset, time, message(f"{offset:08d}", {"n": str(offset)}, "k" * (offset % 2)).fragment)
        for offset, time in enumerate(times, first)
    ]


async def test_messages_keep_their_offsets_and_times_and_what_is_published_goes_on_where_they_end(engine: Engine):
    start = engine.clock.now - 1000
    topic = new_topic_id()
    messages = make_stored(1000, [start, start, start + 3, start + 3, start + 500])
    async with engine.open_log() as log:
        await log.create(topic, label="project.topic", origin=Origin(1000, 4321))
        await log.load(topic, yield_batches(messages[:3], messages[3:]))

    async with engine.open_log() as log:
        assert await all_stored(log, topic) == messages
        assert (await log.bounds(topic), await log.totals(topic)) == (Bounds(1000, 1005), (1005, 4321, start + 500))
        for time, offset in [(0, 1000), (start, 1000), (start + 1, 1002), (start + 3, 1002), (start + 4, 1004)]:
            assert await log.offset_at(topic, time) == offset
        assert await log.offset_at(topic, start + 501) is None

        appended = await log.append(topic, texts("AAAA"))
        assert appended.first == 1005
        assert appended.time >= start + 500
        assert (await log.totals(topic))[:2] == (1006, 4325)
        assert [each.offset for each in await all_stored(log, topic)] == list(range(1000, 1006))


async def test_bytes_are_counted_of_messages_that_came_after_the_topic_was_made(log: Log, engine: Engine) -> None:
    start = engine.clock.now - 1000
    topic = await new_topic(log)
    messages = make_stored(0, [start] * 5)  # 8 bytes each

    await log.load(topic, yield_batches(messages[:2]), count_from=3)
    await log.load(topic, yield_batches(messages[2:]), count_from=3)

    assert (await all_stored(log, topic), await log.totals(topic)) == (messages, (5, 16, start))


async def test_a_topic_whose_messages_are_all_gone_goes_on_at_its_end(log: Log) -> None:
    topic = new_topic_id()

    await log.create(topic, origin=Origin(500, 9000))
    await log.load(topic, yield_batches())

    assert (await log.bounds(topic), await log.totals(topic)) == (Bounds(500, 500), (500, 9000, None))
    assert list(await log.read(topic, 0, max_messages=10, max_bytes=1000)) == []
    assert (await log.append(topic, texts("a"))).first == 500


async def test_holes_stay_holes(log: Log, engine: Engine) -> None:
    now = engine.clock.now
    topic = await new_topic(log)
    messages = [*make_stored(3, [now, now]), *make_stored(9, [now]), *make_stored(20, [now + 1])]

    await log.load(topic, yield_batches(messages[:3], messages[3:]))

    assert await all_stored(log, topic) == messages
    assert ((await log.bounds(topic)).end, (await log.append(topic, texts("a"))).first) == (21, 21)


async def test_loading_goes_on_where_it_was_broken_off(log: Log, engine: Engine) -> None:
    topic, messages = await new_topic(log), make_stored(0, range(engine.clock.now, engine.clock.now + 40))

    async def yield_broken() -> AsyncIterator[Sequence[Stored]]:
        yield messages[:10]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await log.load(topic, yield_broken())
    end = (await log.bounds(topic)).end
    await log.load(topic, yield_batches(messages[end:]))

    assert end == 10
    assert await all_stored(log, topic) == messages


async def test_messages_that_cannot_follow_are_refused(log: Log, engine: Engine) -> None:
    now = engine.clock.now
    topic = await new_topic(log)
    await log.load(topic, yield_batches(make_stored(0, [now - 5, now - 5])))

    for bad in (make_stored(1, [now]), make_stored(2, [now - 6]), [*make_stored(3, [now]), *make_stored(2, [now])]):
        with pytest.raises(InvalidInput):
            await log.load(topic, yield_batches(bad))

    assert await log.bounds(topic) == Bounds(0, 2)


async def test_large_small_and_many_messages_with_large_attributes_are_loaded(log: Log, engine: Engine) -> None:
    topic, now = await new_topic(log), engine.clock.now
    large = [message("", {"a": "v" * 10_000}) for _ in range(1800)]
    sent = [*make_messages(0, 2, size=300_000), *make_messages(2, 2000), *large]
    messages = [Stored(offset, now, each.fragment) for offset, each in enumerate(sent)]

    await log.load(topic, yield_batches(messages[:1000], messages[1000:2002], messages[2002:]))

    assert await all_stored(log, topic) == messages


def in_hundreds(messages: Sequence[Stored]) -> AsyncIterator[Sequence[Stored]]:
    return yield_batches(*(messages[start : start + 100] for start in range(0, len(messages), 100)))


async def test_ends_and_bytes_outlive_the_segments_they_were_loaded_into() -> None:
    engine = Embedded(options={"segment_bytes": 20_000})
    full, empty = new_topic_id(), new_topic_id()
    now = engine.clock.now
    async with engine.open_log() as log:
        await log.create(empty, origin=Origin(900, 77))
        await log.create(full, origin=Origin(100, 55))
        await log.load(full, in_hundreds(make_stored(100, range(now - 2000, now))))
        await log.retain()
        engine.clock.advance(8 * DAY)
        await log.retain()
        assert await log.bounds(full) == Bounds(2100, 2100)

    async with engine.open_log() as log:
        assert (await log.bounds(full), await log.bounds(empty)) == (Bounds(2100, 2100), Bounds(900, 900))
        assert [(await log.totals(each)).bytes for each in (full, empty)] == [55, 77]


async def test_every_message_is_found_by_offset_and_time_over_many_segments_and_after_a_crash() -> None:
    engine = Embedded(options={"segment_bytes": 20_000})
    topic, start = new_topic_id(), engine.clock.now - 50_000
    messages = make_stored(0, [start + 7 * (offset // 3) for offset in range(3000)])
    log = await engine.open()
    await log.create(topic)
    await log.load(topic, in_hundreds(messages))
    await end_log(engine, log, "power loss")

    async with engine.open_log() as log:
        assert await all_stored(log, topic) == messages
        for offset in range(0, 3000, 101):
            first = offset - offset % 3
            assert await log.offset_at(topic, messages[offset].time) == first


async def test_what_was_loaded_is_sealed_when_that_is_said_and_gone_at_once_past_its_age() -> None:
    engine = Embedded()
    topic, now = new_topic_id(), engine.clock.now
    messages = make_stored(0, [now - 2 * DAY] * 100 + [now - HOUR] * 200)
    async with engine.open_log() as log:
        await log.create(topic, DAY)
        await log.load(topic, in_hundreds(messages[:200]))
        await log.end_load()
        assert engine.disk.paths(".idx")
        await log.load(topic, in_hundreds(messages[200:]))

    async with engine.open_log() as log:
        assert await log.bounds(topic) == Bounds(100, 300)
        assert await all_stored(log, topic) == messages[100:]
