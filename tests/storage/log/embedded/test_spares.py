"""Spares: files of deleted segments become the next segments, and never serve old messages."""

import asyncio
import errno
import random

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId, new_topic_id
from ams.core.retention_clock import RetentionClock
from ams.storage.log.embedded import EmbeddedLog, LogOptions, check
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.segment import Spares
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.embedded.history import end_log
from tests.storage.log.engines import HOUR, Embedded, all_fragments, fragments, make_messages
from tests.support.clock import ManualClock

SIZE = 1000
SEGMENT = 4000


@pytest.fixture
def engine() -> Embedded:
    return Embedded(options={"segment_bytes": SEGMENT, "retention": HOUR})


async def busy_topic(engine: Embedded, log: EmbeddedLog, *, old: int = 3) -> TopicId:
    """Make a busy topic whose first messages are too old, in their own segment."""
    topic = new_topic_id()
    await log.create(topic)
    await log.append(topic, make_messages(0, old, size=SIZE))
    engine.clock.advance(HOUR - HOUR // 16)
    await log.append(topic, make_messages(old, 1, size=SIZE))
    engine.clock.advance(HOUR // 16 + 1)
    return topic


async def reused_topic(engine: Embedded, log: EmbeddedLog) -> TopicId:
    """Make a topic whose newest segment overwrites a longer deleted one; its messages are 6 to 9."""
    topic = await busy_topic(engine, log, old=6)
    await log.retain()
    await log.append(topic, make_messages(7, 3, size=SIZE))
    return topic


async def test_a_segment_that_goes_is_the_next_one_and_nothing_of_it_is_met_again(engine: Embedded, log: EmbeddedLog):
    topic = await busy_topic(engine, log)
    await log.retain()
    (spare,) = engine.disk.paths(".new")

    before = engine.disk.content(spare)
    await log.append(topic, make_messages(4, 3, size=SIZE))
    assert engine.disk.paths(".new") == []
    path = engine.disk.paths(".log")[-1]
    assert len(engine.disk.content(path)) >= len(before)
    assert await all_fragments(log, topic) == fragments(make_messages(3, 4, size=SIZE))

    await log.append(topic, make_messages(7, 3, size=SIZE))
    assert len(engine.disk.content(path)) < SEGMENT
    assert not check(engine.folder, files=engine.disk).damage


async def test_a_kill_leaves_old_pages_that_are_neither_read_nor_called_torn(engine: Embedded, log: EmbeddedLog):
    topic = await reused_topic(engine, log)
    found = engine.copy_as_killed()
    path = found.disk.paths(".log")[-1]
    assert len(found.disk.content(path)) > 6 * SIZE

    report = check(found.folder, files=found.disk)
    assert (report.torn, report.damage, report.messages) == ((), (), 4)
    async with found.open_log() as again:
        assert (again.trimmed, again.damage) == ((), ())
        assert len(found.disk.content(path)) < 4 * SIZE
        assert await all_fragments(again, topic) == fragments(make_messages(6, 4, size=SIZE))


async def test_an_orderly_stop_leaves_no_spare_and_no_page_behind_the_records(engine: Embedded) -> None:
    async with engine.open_log() as log:
        await reused_topic(engine, log)
        reused = engine.disk.paths(".log")[-1]
        assert len(engine.disk.content(reused)) > 6 * SIZE

    assert engine.disk.paths(".new") == []
    assert len(engine.disk.content(reused)) < 4 * SIZE


async def test_a_class_nothing_is_written_to_gives_its_spares_back(engine: Embedded, log: EmbeddedLog) -> None:
    await busy_topic(engine, log)
    await log.retain()
    assert len(engine.disk.paths(".new")) == 1

    engine.clock.advance(HOUR // 8)
    await log.retain()

    assert engine.disk.paths(".new") == []


async def test_spares_go_before_an_append_is_refused() -> None:
    disk = UnreliableDisk(capacity=300_000)
    engine = Embedded(disk=disk, options={"segment_bytes": 64_000, "retention": HOUR, "min_free_bytes": 50_000})
    async with engine.open_log() as log:
        topic = await busy_topic(engine, log, old=60)
        await log.retain()
        assert len(disk.paths(".new")) == 1
        disk.stranger = disk.free_bytes("/") - 50_000
        engine.clock.advance(1000)

        await log.append(topic, make_messages(61, 1, size=SIZE))

        assert disk.paths(".new") == []
        assert log.refusal is None


async def test_no_copy_holds_a_spare_or_what_is_behind_the_records(engine: Embedded, log: EmbeddedLog) -> None:
    topic = await busy_topic(engine, log, old=6)
    await log.retain()
    async with log.upkeep.keep_files() as parts:
        assert all(not part.name.endswith(".new") for part in await parts())
    await log.append(topic, make_messages(7, 3, size=SIZE))

    async with log.upkeep.keep_files() as parts:
        lengths = {part.name: part.length for part in await parts()}

    assert max(length or 0 for length in lengths.values()) < 4 * SIZE


@pytest.mark.parametrize("call", ["open", "write", "sync", "rename"])
async def test_a_spare_that_cannot_be_used_is_replaced_by_a_new_file(engine: Embedded, log: EmbeddedLog, call: str):
    topic = await busy_topic(engine, log)
    await log.retain()
    engine.disk.fail(call, errno.EIO, where=".new")

    await log.append(topic, make_messages(4, 3, size=SIZE))

    assert (engine.disk.failed, engine.disk.paths(".new")) == (1, [])
    assert await all_fragments(log, topic) == fragments(make_messages(3, 4, size=SIZE))


async def test_a_segment_of_a_spare_that_was_taken_back_holds_nothing_if_a_power_loss_brings_it_back() -> None:
    for seed in range(150):
        engine = Embedded(options={"segment_bytes": SEGMENT, "retention": HOUR})
        log = await engine.open()
        topic = await busy_topic(engine, log)
        await log.retain()
        engine.disk.fail("sync_folder", errno.EIO, times=10)
        for _ in range(2):  # the file of the second is empty, and may be there too
            with pytest.raises(LogUnavailable):
                await log.append(topic, make_messages(4, 3, size=SIZE))
        await end_log(engine, log, "power loss", random.Random(seed))

        async with engine.open_log() as log:
            assert not log.damage, seed
            assert await all_fragments(log, topic) == fragments(make_messages(3, 1, size=SIZE))


async def test_a_read_of_a_file_that_becomes_another_segment_meanwhile_is_no_damage(engine: Embedded, log: EmbeddedLog):
    topic = await busy_topic(engine, log)
    engine.clock.advance(-1000)  # the old ones are not too old yet
    old = engine.disk.paths(".log")[0]
    read, size_of = engine.disk.read, engine.disk.size
    loop, whole = asyncio.get_running_loop(), len(engine.disk.content(old))
    engine.disk.cold = True

    async def reuse() -> None:
        engine.clock.advance(2000)
        await log.retain()
        await log.append(topic, make_messages(4, 3, size=SIZE))

    def late(handle: int, size: int, position: int) -> bytes:
        if size_of(handle) == whole and old in engine.disk.paths():
            asyncio.run_coroutine_threadsafe(reuse(), loop).result()
            assert old not in engine.disk.paths()
            assert engine.disk.paths(".new") == []
        return read(handle, size, position)

    engine.disk.read = late
    found = await log.read(topic, 0, max_messages=1, max_bytes=1)

    assert old not in engine.disk.paths()
    assert [each.offset for each in found] in ([], [3])
    assert not log._state.damaged
    assert await all_fragments(log, topic) == fragments(make_messages(3, 4, size=SIZE))


def spares_of(disk: UnreliableDisk, **options) -> Spares:
    disk.make_folder("/log/7d")
    clock = ManualClock()
    return Spares(LogPlace("/log", disk, clock, RetentionClock(clock), LogOptions(**options)))


def file_of(disk: UnreliableDisk, sequence: int, length: int = 500) -> tuple[int, int, str, int]:
    path = f"/log/7d/{sequence:016d}.log"
    disk.write(disk.open(path, create=True), bytes(length), 0)
    return 2, sequence, path, length


def test_a_spare_is_for_its_class_and_for_segments_whose_checksums_begin_otherwise() -> None:
    disk = UnreliableDisk()
    spares = spares_of(disk)
    spares.keep(*file_of(disk, 7))

    assert spares.take(1, 8) is None
    assert spares.take(2, 7) is None
    assert spares.take(2, 7 + 2**32) is None
    assert spares.take(2, 6 + 2**32) is not None
    assert spares.take(2, 8) is None


def test_what_a_failed_write_left_behind_a_segment_does_not_stay_in_its_spare() -> None:
    disk = UnreliableDisk()
    spares = spares_of(disk)
    code, sequence, path, length = file_of(disk, 7)

    spares.keep(code, sequence, path, length - 100)

    assert len(disk.content("/log/7d/0000000000000007.new")) == length - 100
