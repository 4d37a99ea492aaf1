import random
from collections.abc import Sequence

import pytest

from ams.core.names import TopicId
from ams.storage.log.base import Bounds
from ams.storage.log.embedded import EmbeddedLog, LogFile
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import HOUR, Embedded, all_fragments, fragments, make_messages, new_topic, texts


@pytest.fixture
def engine() -> Embedded:
    return Embedded(options={"segment_bytes": 4000, "retention": HOUR})


async def parts_now(log: EmbeddedLog) -> Sequence[LogFile]:
    async with log.upkeep.keep_files() as parts:
        return await parts()


def copy_parts(engine: Embedded, parts: Sequence[LogFile]) -> Embedded:
    """Copy the current parts to another disk."""
    target = UnreliableDisk()
    for name, length in parts:
        source = engine.disk.open(f"/log/{name}")
        data = engine.disk.read(source, engine.disk.size(source) if length is None else length, 0)
        target.make_folder(f"/log/{name.split('/')[0]}")
        handle = target.open(f"/log/{name}", create=True)
        target.write(handle, data, 0)
        target.sync(handle)
        target.close(handle)
        engine.disk.close(source)
    return Embedded(engine.clock, target, options=engine.options)


async def test_a_copy_has_all_that_was_answered_before_and_nothing_by_half(engine: Embedded) -> None:
    chance = random.Random(7)
    async with engine.open_log() as log:
        topics = [await new_topic(log) for _ in range(3)]
        stored = dict.fromkeys(topics, 0)
        for _ in range(15):
            for _ in range(chance.randrange(6)):
                topic, count = chance.choice(topics), chance.randint(1, 9)
                await log.append(topic, make_messages(stored[topic], count, size=chance.randrange(500)))
                stored[topic] += count
            if chance.random() < 0.4:
                await log.retain()
            parts = await parts_now(log)
            await log.append(topics[0], texts("later"))
            stored[topics[0]] += 1
            async with copy_parts(engine, parts).open_log() as again:
                assert (again.damage, again.trimmed) == ((), ())
                ends = {topic: (await again.bounds(topic)).end for topic in topics}
                assert ends == stored | {topics[0]: stored[topics[0]] - 1}
                for topic in topics:
                    assert len(await all_fragments(again, topic)) == ends[topic]


async def test_a_topic_made_changed_or_dropped_at_last_is_so_in_the_copy(engine: Embedded, log: EmbeddedLog) -> None:
    gone, kept = await new_topic(log), await new_topic(log)
    await log.append(kept, texts("a"))
    await log.drop(gone)
    await log.set_retention(kept, 30 * 24 * HOUR)
    made = await new_topic(log)
    async with copy_parts(engine, await parts_now(log)).open_log() as again:
        assert await again.topics() == {kept, made}
        await again.append(kept, texts("b"))
        engine.clock.advance(48 * HOUR)
        await again.retain()
        assert (await again.bounds(kept)).end == 2
        assert len(await all_fragments(again, kept)) > 0


async def test_nothing_goes_while_a_copy_is_made_and_all_that_is_due_after_it(engine: Embedded) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 20, size=300))
        await log.retain()
        async with log.upkeep.keep_files() as parts:
            listed = await parts()
            engine.clock.advance(3 * HOUR)
            await log.retain()

            assert {f"/log/{part.name}" for part in listed} <= {*engine.disk.paths(".log"), *engine.disk.paths(".idx")}
            copy = copy_parts(engine, listed)
        await log.retain()

        assert engine.disk.paths(".log") == []
    engine.clock.advance(-3 * HOUR)
    async with copy.open_log() as again:
        assert await all_fragments(again, topic) == fragments(make_messages(0, 20, size=300))


@pytest.mark.parametrize("listed", [True, False])
async def test_no_index_comes_before_list_or_end(engine: Embedded, log: EmbeddedLog, topic: TopicId, listed: bool):
    """The backup holds the registry's lock until it asks for the list."""
    await log.append(topic, make_messages(0, 20, size=300))
    async with log.upkeep.keep_files() as parts:
        await log.append(topic, make_messages(20, 20, size=300))
        await log.retain()
        assert engine.disk.paths(".idx") == []
        if listed:
            await parts()
            await log.retain()
            assert len(engine.disk.paths(".idx")) > 0

    await log.retain()
    assert len(engine.disk.paths(".idx")) > 0


async def test_the_ids_of_a_quiet_topic_go_on_in_a_copy(engine: Embedded, log: EmbeddedLog, topic: TopicId) -> None:
    await log.append(topic, texts("a", "b"))
    engine.clock.advance(3 * HOUR)
    await log.retain()
    async with copy_parts(engine, await parts_now(log)).open_log() as again:
        assert await again.bounds(topic) == Bounds(2, 2)
