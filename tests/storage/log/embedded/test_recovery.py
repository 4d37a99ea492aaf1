"""Recovery, case by case and at every change of the disk; `tests/faults/power_loss.py` tests random ones."""

import asyncio
import random
import time

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.log.embedded.segment import HEAD_BYTES, SegmentHead, encode_head
from tests.storage.log.embedded.history import REUSE, History, act_steps, end_log, read_all, reopen_log
from tests.storage.log.engines import Embedded, all_fragments, append_each, fragments, make_messages, new_topic, texts


async def one_message(engine: Embedded) -> TopicId:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a"))
    return topic


async def test_what_was_not_synced_is_durable_before_it_is_served(engine: Embedded, log: EmbeddedLog, topic: TopicId):
    engine.disk.stop_at = engine.disk.changes + 1
    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("never answered"))
    log = await reopen_log(engine, log, "kill")
    served = await read_all(log, topic)
    assert len(served) == 1

    await end_log(engine, log, "power loss")

    async with engine.open_log() as log:
        assert await read_all(log, topic) == served


async def test_a_torn_end_is_really_cut(engine: Embedded) -> None:
    topic = await one_message(engine)
    path = engine.disk.paths(".log")[0]
    handle = engine.disk.open(path)
    size = engine.disk.size(handle)
    engine.disk.write(handle, engine.disk.content(path)[-30:], size)

    async with engine.open_log() as log:
        assert engine.disk.size(handle) == size
        assert [(each.position, each.length) for each in log.trimmed] == [(size, 30)]
        assert await all_fragments(log, topic) == fragments(texts("a"))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100])
async def test_a_segment_whose_header_is_torn_is_removed(engine: Embedded, size: int) -> None:
    topic = await one_message(engine)
    handle = engine.disk.open("/log/7d/0000000000000002.log", create=True)
    engine.disk.write(handle, encode_head(SegmentHead(2, 2, 0))[:size], 0)

    async with engine.open_log() as log:
        await log.append(topic, texts("b"))
        assert "/log/7d/0000000000000002.log" not in engine.disk.paths()

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(texts("a", "b"))
        assert log.damage == ()


async def test_an_index_without_its_segment_is_kept_only_if_its_table_is_the_newest() -> None:
    engine = Embedded(options={"segment_bytes": 1000})
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await append_each(log, topic, 10, 300)
        await log.retain()
    *older, newest = engine.disk.paths(".idx")
    for path in engine.disk.paths(".log"):
        engine.disk.unlink(path)

    async with engine.open_log() as log:
        assert engine.disk.paths(".idx") == [newest]
        assert older
        assert (await log.bounds(topic)).end >= 7


async def test_a_topic_whose_creation_is_damaged_is_known_by_its_messages(engine: Embedded) -> None:
    topic = await one_message(engine)
    engine.disk.damage(engine.disk.paths(".log")[0], HEAD_BYTES + 20)

    async with engine.open_log() as log:
        assert log.damage
        assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_published_bytes_are_exact_over_seals_and_kills() -> None:
    engine = Embedded(options={"segment_bytes": 1500})
    published, topic = 0, None
    for _ in range(4):
        log = await engine.open()
        topic = topic or await new_topic(log)
        for number in range(5):
            messages = make_messages(number, 1 + number % 3, size=200)
            await log.append(topic, messages)
            published += sum(len(each.data) for each in messages)
        assert (await log.totals(topic)).bytes == published
        await end_log(engine, log, "kill")

    async with engine.open_log() as log:
        assert (await log.totals(topic)).bytes == published


async def test_a_segment_whose_name_was_not_yet_durable_is_before_it_is_written_on(engine: Embedded, log: EmbeddedLog):
    engine.disk.stop_at = engine.disk.changes + 3  # created, written, synced; its folder is not
    with pytest.raises(LogUnavailable):
        await new_topic(log)
    log = await reopen_log(engine, log, "kill")
    topic = await new_topic(log)
    await log.append(topic, texts("a"))
    await end_log(engine, log, "power loss")

    async with engine.open_log() as log:
        assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_a_torn_end_before_a_segment_that_never_came_to_be_is_no_damage(engine: Embedded) -> None:
    topic = await one_message(engine)
    handle = engine.disk.open(engine.disk.paths(".log")[0])
    engine.disk.write(handle, b"\xffAMS half a record", engine.disk.size(handle))
    engine.disk.open("/log/7d/0000000000000002.log", create=True)

    async with engine.open_log() as log:
        assert (log.damage, len(log.trimmed)) == ((), 1)
        assert await all_fragments(log, topic) == fragments(texts("a"))


async def test_damage_at_the_end_of_a_sealed_segment_is_never_taken_for_a_torn_end(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a"))
        await log.append(topic, texts("b"))
        engine.clock.advance(24 * 3_600_000)
        await log.retain()
    path, index = *engine.disk.paths(".log"), *engine.disk.paths(".idx")
    engine.disk.damage(index, 20)
    engine.disk.damage(path, len(engine.disk.content(path)) - 1)

    async with engine.open_log() as log:
        assert log.trimmed == ()
        assert {each.file for each in log.damage} == {path, index}
        assert (await log.append(topic, texts("c"))).first == 2


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(("options", "before", "meanwhile", "then"), [
    ({"segment_bytes": 4000}, REUSE[:8], REUSE[8:], REUSE),
    (
        {"segment_bytes": 100_000, "group_bytes": 2000}, [("create", None), ("create", None), ("append", 1, [100])],
        [
            ("together", [(0, [900] * 9, True), (1, [50]), (0, [70], True), (1, [900] * 7)]),
            ("append", 0, [900] * 14, True),
        ],
        [("create", None), ("append", 0, [900] * 5), ("append", 1, [10])],
    ),
], ids=["while a segment is made of an old one", "of a large append"])  # fmt: skip
def test_power_that_fails_at_any_change_leaves_all_of_an_append_or_nothing(options, before, meanwhile, then, seed):
    async def is_over(stop_at: int) -> bool:
        engine, history = Embedded(options={"ahead_bytes": 0} | options), History()
        if "group_bytes" in options:
            engine.disk.during_sync = lambda: time.sleep(0.0002)  # others come while a slice is written
        log = await engine.open()
        await act_steps(history, log, engine, before)
        engine.disk.stop_at = engine.disk.changes + stop_at
        for step in meanwhile:
            small = 8 if "group_bytes" in options else 0
            await asyncio.gather(act_steps(history, log, engine, [step]), append_small(history, log, small))
        await log.close()
        over = not engine.disk.is_stopped
        engine.disk.power_loss(None if seed is None else random.Random(seed + stop_at))
        async with engine.open_log() as log:
            assert not log.damage
            await history.check(log, engine.clock.now)
            await act_steps(history, log, engine, then)
            await history.check(log, engine.clock.now)
        return over

    assert any(asyncio.run(is_over(stop_at)) for stop_at in range(1, 300))


async def append_small(history: History, log: EmbeddedLog, count: int) -> None:
    for number in range(count):
        await history.append(log, number, [40 * number], number % 2 == 0)
