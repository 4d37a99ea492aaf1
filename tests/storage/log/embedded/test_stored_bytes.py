"""Each topic's stored bytes, and deletion for the size of the folder: nothing that a subscription still needs."""

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from ams.core.names import Offset, TopicId
from ams.storage.log.base import Owner
from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.engines import HOUR, Embedded, append_each, new_topic, texts

KIB = 1024
SEGMENT = 64 * KIB


@pytest.fixture
def engine() -> Embedded:
    return Embedded(options={"segment_bytes": SEGMENT, "max_bytes": 12 * SEGMENT})


async def sizes(log: EmbeddedLog, *topics: TopicId) -> list[int]:
    return list((await log.stored_bytes(topics)).values())


async def flood(log: EmbeddedLog, topic: TopicId, segments: int) -> None:
    await append_each(log, topic, segments * 4, 15 * KIB)


async def test_what_topics_take_is_the_same_after_a_restart_and_less_when_segments_went(engine: Embedded) -> None:
    async with engine.open_log() as log:
        a, b = await new_topic(log), await new_topic(log)
        assert await sizes(log, a, b) == [0, 0]
        await flood(log, a, 3)
        await log.append(b, texts("one"))
        before = await sizes(log, a, b)
        assert 12 * 15 * KIB < before[0] < 12 * 16 * KIB
        assert 60 < before[1] < 300
    for _ in range(2):
        async with engine.open_log() as log:
            await log.retain()
            assert await sizes(log, a, b) == before
    async with engine.open_log() as log:
        await log.retain()
        engine.clock.advance(8 * 24 * HOUR)
        await log.retain()
        assert await sizes(log, a, b) == [0, 0]
        await log.drop(a)
        assert await log.stored_bytes([a, b]) == {b: 0}


async def test_segments_of_dropped_topics_alone_go_at_once(engine: Embedded, log: EmbeddedLog) -> None:
    a, b = await new_topic(log), await new_topic(log)
    await log.append(b, texts("one"))
    await flood(log, a, 4)
    await log.end_load()
    await flood(log, a, 4)
    await log.end_load()
    before = engine.disk.used_bytes("/log")
    await log.drop(a)
    await log.retain()
    assert engine.disk.used_bytes("/log") < before - 3 * SEGMENT
    assert (await log.bounds(b)).oldest == 0


def needs_of(log: EmbeddedLog) -> SimpleNamespace:
    """Return the subscriptions' needs by topic, and the owners to cut first; tests change it."""
    needs = SimpleNamespace(offsets={}, owners=[])

    async def get_needs() -> Mapping[TopicId, Offset]:
        return needs.offsets

    log.upkeep.keep_needed(get_needs, lambda: needs.owners)
    return needs


async def test_what_somebody_needs_stays_and_newer_segments_go_that_nobody_needs(engine: Embedded, log: EmbeddedLog):
    needs = needs_of(log)
    a, b = await new_topic(log), await new_topic(log)
    needs.offsets[b] = 0
    await log.append(b, texts("unread"))
    await flood(log, a, 30)
    await log.retain()
    assert engine.disk.used_bytes("/log") <= 12 * SEGMENT
    assert (await log.bounds(b)).oldest == 0
    assert len(await log.read(b, 0, max_messages=9, max_bytes=KIB)) == 1
    assert (await log.bounds(a)).end == 120

    needs.offsets |= {a: 0, b: 1}
    await flood(log, a, 30)
    kept = (await log.bounds(a)).oldest
    await log.retain()
    assert (await log.bounds(a)).oldest == kept, "none of what is unread goes"
    assert (await sizes(log, b))[0] == 0, "what is read does"


async def test_room_is_made_for_who_has_nearly_too_much_by_what_of_theirs_nobody_needs(log: EmbeddedLog) -> None:
    needs = needs_of(log)
    a, b = await new_topic(log), await new_topic(log)
    needs.offsets |= {a: 8, b: 0}
    await flood(log, a, 6)
    await flood(log, b, 2)
    needs.owners = [Owner([a], 3 * SEGMENT), Owner([b], 10 * SEGMENT)]
    before = await sizes(log, b)
    await log.retain()
    assert (await log.bounds(a)).oldest in (4, 8), "up to what was read"
    assert await sizes(log, b) == before
    needs.offsets[a] = 24
    await log.retain()
    assert (await sizes(log, a))[0] <= 3 * SEGMENT


async def test_what_messages_may_take_is_the_limit_or_what_the_disk_has(engine: Embedded) -> None:
    async with engine.open_log() as log:
        a = await new_topic(log)
        assert 11 * SEGMENT < await log.upkeep.capacity() <= 12 * SEGMENT
        await flood(log, a, 2)
        assert 11 * SEGMENT < await log.upkeep.capacity() <= 12 * SEGMENT
    async with engine.open_log(max_bytes=None, min_free_bytes=SEGMENT) as log:
        free = engine.disk.free_bytes("/log")
        assert await log.upkeep.capacity() == free + (await sizes(log, a))[0] - SEGMENT
