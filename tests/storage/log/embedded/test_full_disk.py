"""A full disk: appends are refused in time, nothing is lost, reads succeed, and all resumes by itself."""

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import Embedded, all_fragments, fragments, make_messages, new_topic, texts

KIB = 1024
MIN_FREE = 200 * KIB
RESERVE = 100 * KIB


@pytest.fixture
def engine() -> Embedded:
    options = {"min_free_bytes": MIN_FREE, "reserve_bytes": RESERVE, "segment_bytes": 64 * KIB}
    return Embedded(disk=UnreliableDisk(capacity=1024 * KIB), options=options)


def free_bytes(engine: Embedded) -> int:
    return engine.disk.free_bytes("/")


async def fill_disk(engine: Embedded, log: EmbeddedLog, topic: TopicId) -> int:
    """Append until the log refuses; return how many were stored."""
    for number in range(10_000):
        engine.clock.advance(50)
        try:
            await log.append(topic, make_messages(number, 1, size=4000))
        except LogUnavailable:
            return number
    raise AssertionError("the disk did not fill")


async def test_appends_stop_while_there_is_room_for_others(engine: Embedded, log: EmbeddedLog, topic: TopicId) -> None:
    stored = await fill_disk(engine, log, topic)
    assert MIN_FREE - 10 * KIB < free_bytes(engine) < MIN_FREE + 10 * KIB
    assert "min_free_bytes" in log.refusal
    assert await all_fragments(log, topic) == fragments(make_messages(0, stored, size=4000))


async def test_what_is_not_an_append_goes_on_below_the_limit(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    engine.disk.stranger = free_bytes(engine) - MIN_FREE // 2
    engine.clock.advance(1000)

    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("a"))
    await log.drop(topic)

    assert await log.topics() == frozenset()


async def test_a_disk_full_to_the_last_byte_gets_the_reserve_back(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    await log.append(topic, texts("before"))
    engine.disk.stranger = 1024 * KIB - engine.disk.used_bytes("/log")
    assert free_bytes(engine) == 0
    engine.clock.advance(1000)

    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("a"))

    assert free_bytes(engine) == RESERVE
    assert await all_fragments(log, topic) == fragments(texts("before"))
    engine.disk.stranger = 0
    assert (await log.append(topic, texts("after"))).first == 1
    assert log.refusal is None
    await log.retain()
    assert engine.disk.paths("reserve") == ["/log/reserve"]


async def test_space_that_goes_while_a_group_is_written_loses_nothing() -> None:
    options = {"min_free_bytes": 0, "reserve_bytes": RESERVE}
    engine = Embedded(disk=UnreliableDisk(capacity=300 * KIB), options=options)
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, texts("before"))
        engine.disk.stranger = 300 * KIB - engine.disk.used_bytes("/log") - 2000
        with pytest.raises(LogUnavailable):
            await log.append(topic, make_messages(0, 10, size=1000))

        assert engine.disk.paths("reserve") == []
        assert (await log.append(topic, texts("after"))).first == 1

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(texts("before", "after"))


async def test_others_can_ask_for_the_reserve_once(engine: Embedded, log: EmbeddedLog) -> None:
    before = free_bytes(engine)

    assert log.space.release_reserve()
    assert free_bytes(engine) == before + RESERVE
    assert not log.space.release_reserve()

    await log.retain()
    assert free_bytes(engine) == before


async def test_others_may_grow_while_appends_may_and_give_no_reserve_away(engine: Embedded, log: EmbeddedLog) -> None:
    assert log.space.growth_refusal() is None
    engine.disk.stranger = free_bytes(engine) - MIN_FREE
    assert log.space.growth_refusal() is None
    engine.disk.stranger += MIN_FREE
    assert "min_free_bytes" in log.space.growth_refusal()
    assert engine.disk.paths("reserve") != []
    engine.disk.fail("free_bytes")
    assert "unknown" in log.space.growth_refusal()


async def test_a_log_opens_and_serves_on_a_disk_that_is_full(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a"))
    engine.disk.unlink("/log/reserve")
    engine.disk.stranger = 1024 * KIB

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(texts("a"))
        with pytest.raises(LogUnavailable):
            await log.append(topic, texts("b"))
        engine.disk.stranger = 0
        assert (await log.append(topic, texts("b"))).first == 1


async def test_free_space_that_cannot_be_told_refuses_appends(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    engine.disk.fail("free_bytes")
    engine.clock.advance(1000)

    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("a"))

    assert (await log.append(topic, texts("a"))).first == 0
