"""What `ams.storage.log.base.Log` promises of topics that come from another log, for every engine."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ams.core.errors import InvalidInput
from ams.core.messages import Stored, message
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds, Log, Origin
from tests.storage.log.engines import Engine, new_topic, numbered, texts


async def batches(*batches: Sequence[Stored]) -> AsyncIterator[Sequence[Stored]]:
    for batch in batches:
        yield batch


def stored(first: int, times: Sequence[int]) -> list[Stored]:
    return [
        Stored(offset, time, message(f"{offset:08d}", {"n": str(offset)}).fragment)
        for offset, time in enumerate(times, first)
    ]


async def everything(log: Log, topic) -> list[Stored]:
    """Read a topic from its oldest message to its end, over its holes."""
    bounds = await log.bounds(topic)
    offset, found = bounds.oldest, []
    while offset < bounds.end:
        messages = await log.read(topic, offset, max_messages=1 + offset % 7, max_bytes=1 << 20)
        assert messages
        found += messages
        offset = messages[-1].offset + 1
    return found


async def test_messages_keep_their_offsets_and_times(log: Log, engine: Engine):
    start = engine.clock.now - 1000
    topic = new_topic_id()
    messages = stored(1000, [start, start, start + 3, start + 3, start + 500])

    await log.create(topic, label="project.topic", origin=Origin(1000, 4321))
    await log.load(topic, batches(messages[:3], messages[3:]))

    assert await everything(log, topic) == messages
    assert await log.bounds(topic) == Bounds(1000, 1005)
    assert await log.totals(topic) == (1005, 4321, start + 500)
    for time, offset in [(0, 1000), (start, 1000), (start + 1, 1002), (start + 3, 1002), (start + 4, 1004)]:
        assert await log.offset_at(topic, time) == offset
    assert await log.offset_at(topic, start + 501) is None


async def test_what_is_published_afterwards_goes_on_where_they_end(log: Log, engine: Engine):
    start = engine.clock.now - 10
    topic = new_topic_id()
    await log.create(topic, origin=Origin(7, 100))
    await log.load(topic, batches(stored(7, [start] * 3)))

    appended = await log.append(topic, texts("AAAA"))

    assert appended.first == 10
    assert appended.time >= start
    totals = await log.totals(topic)
    assert (totals.messages, totals.bytes) == (11, 104)
    assert [each.offset for each in await everything(log, topic)] == [7, 8, 9, 10]


async def test_bytes_are_counted_of_messages_that_came_after_the_topic_was_made(log: Log, engine: Engine):
    start = engine.clock.now - 1000
    topic = await new_topic(log)
    messages = stored(0, [start] * 5)  # 8 bytes each

    await log.load(topic, batches(messages[:2]), count_from=3)
    await log.load(topic, batches(messages[2:]), count_from=3)

    assert await everything(log, topic) == messages
    assert await log.totals(topic) == (5, 16, start)


async def test_a_topic_whose_messages_are_all_gone_goes_on_at_its_end(log: Log):
    topic = new_topic_id()

    await log.create(topic, origin=Origin(500, 9000))
    await log.load(topic, batches())

    assert await log.bounds(topic) == Bounds(500, 500)
    assert await log.totals(topic) == (500, 9000, None)
    assert list(await log.read(topic, 0, max_messages=10, max_bytes=1000)) == []
    assert (await log.append(topic, texts("a"))).first == 500


async def test_holes_stay_holes(log: Log, engine: Engine):
    now = engine.clock.now
    topic = await new_topic(log)
    messages = [*stored(3, [now, now]), *stored(9, [now]), *stored(20, [now + 1])]

    await log.load(topic, batches(messages[:3], messages[3:]))

    assert await everything(log, topic) == messages
    assert (await log.bounds(topic)).end == 21
    assert (await log.append(topic, texts("a"))).first == 21


async def test_loading_goes_on_where_it_was_broken_off(log: Log, engine: Engine):
    topic, messages = await new_topic(log), stored(0, range(engine.clock.now, engine.clock.now + 40))

    async def broken() -> AsyncIterator[Sequence[Stored]]:
        yield messages[:10]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await log.load(topic, broken())
    end = (await log.bounds(topic)).end
    await log.load(topic, batches(messages[end:]))

    assert end == 10
    assert await everything(log, topic) == messages


async def test_messages_that_cannot_follow_are_refused(log: Log, engine: Engine):
    now = engine.clock.now
    topic = await new_topic(log)
    await log.load(topic, batches(stored(0, [now - 5, now - 5])))

    for bad in (stored(1, [now]), stored(2, [now - 6]), [*stored(3, [now]), *stored(2, [now])]):
        with pytest.raises(InvalidInput):
            await log.load(topic, batches(bad))

    assert await log.bounds(topic) == Bounds(0, 2)


async def test_messages_larger_than_a_record_and_many_small_ones_are_loaded(log: Log, engine: Engine):
    topic, now = await new_topic(log), engine.clock.now
    sent = numbered(0, 2, size=300_000) + numbered(2, 2000)
    messages = [Stored(offset, now, each.fragment) for offset, each in enumerate(sent)]

    await log.load(topic, batches(messages[:1000], messages[1000:]))

    assert await everything(log, topic) == messages


async def test_messages_that_are_mostly_attributes_are_loaded(log: Log, topic: TopicId):
    messages = [Stored(n, 1_700_000_000_000, message("", {"a": "v" * 10_000}).fragment) for n in range(1800)]

    await log.load(topic, batches(messages))

    assert await log.bounds(topic) == Bounds(0, 1800)


async def test_what_was_loaded_is_there_when_the_log_is_opened_again(engine: Engine):
    now = engine.clock.now
    topics = [new_topic_id() for _ in range(3)]
    messages = stored(50, range(now - 100, now))
    async with engine.opened() as log:
        for topic in topics:
            await log.create(topic, origin=Origin(50, 1000))
        await log.load(topics[0], batches(messages))
        await log.load(topics[1], batches(messages))
        await log.append(topics[1], texts("AAAA"))

    async with engine.opened() as log:
        assert await everything(log, topics[0]) == messages
        assert await log.totals(topics[0]) == (150, 1000, now - 1)
        assert (await log.totals(topics[1]))[:2] == (151, 1004)
        assert await log.bounds(topics[2]) == Bounds(50, 50)
        assert (await log.totals(topics[2]))[:2] == (50, 1000)
        assert (await log.append(topics[0], texts("a"))).first == 150
