"""Writing ahead: zeros come before the records of a busy segment, never over them, and never in anybody's way."""

import asyncio
import errno
import random
import threading
from collections.abc import AsyncIterator

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog, check
from ams.storage.log.embedded.ahead import STEPS
from ams.storage.log.embedded.scan import Scanner
from tests.storage.log.engines import Embedded, all_fragments, fragments, new_topic, numbered, texts
from tests.support.unreliable_disk import UnreliableDisk

AHEAD = 4096
STEP = AHEAD // STEPS
SIZE = 200


@pytest.fixture
def engine() -> Embedded:
    return Embedded(options={"ahead_bytes": AHEAD})


@pytest.fixture
async def log(engine: Embedded) -> AsyncIterator[EmbeddedLog]:
    async with engine.opened() as log:
        yield log


async def settle(log: EmbeddedLog) -> None:
    """Return when all that was wanted was written ahead."""
    async with asyncio.timeout(5):
        while not log._ahead._wanted.empty():
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(log._ahead._thread, lambda: None)


async def publish(log: EmbeddedLog, topic: TopicId, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        await log.append(topic, numbered(number, 1, size=SIZE))
        await settle(log)


def segment(engine: Embedded) -> bytes:
    return engine.disk.content(engine.disk.paths(".log")[-1])


async def test_a_busy_segment_has_zeros_behind_its_records_as_many_as_it_holds_and_no_more(engine, log):
    topic = await new_topic(log)

    for number in range(40):
        await publish(log, topic, 1, start=number)
        length = log._state.catalog.by_class[2][-1].length
        tail = len(segment(engine)) - length
        assert tail == log._committer.tails <= min(AHEAD, length)
        assert not any(segment(engine)[length:])

    assert tail > AHEAD - 2 * STEP
    assert log.usage() == len(segment(engine))
    assert await all_fragments(log, topic) == fragments(numbered(0, 40, size=SIZE))


async def test_a_segment_that_grows_slowly_is_left_alone(engine, log):
    topic = await new_topic(log)
    for number in range(20):
        await publish(log, topic, 1, start=number)
        engine.clock.advance(11_000)

    assert log._committer.tails == 0


async def test_large_writes_are_left_alone():
    engine = Embedded(options={"ahead_bytes": 8 * 100_000})
    async with engine.opened() as log:
        topic = await new_topic(log)
        for _ in range(10):
            await log.append(topic, numbered(0, 1, size=150_000))
            await settle(log)

        assert log._committer.tails == 0


@pytest.mark.parametrize(
    "options", [{"sync": "interval"}, {"max_bytes": STEPS}, {"ahead_bytes": 0}, {"min_free_bytes": 1 << 40}]
)
async def test_where_it_is_of_no_use_or_there_is_no_room_nothing_is_written_ahead(options):
    engine = Embedded(options={"ahead_bytes": AHEAD} | options)
    engine.disk.capacity = (1 << 40) + AHEAD
    async with engine.opened() as log:
        topic = await new_topic(log)
        await publish(log, topic, 15)

        assert log._committer.tails == 0


async def test_what_is_written_ahead_is_cut_off_when_the_segment_is_sealed():
    engine = Embedded(options={"ahead_bytes": AHEAD, "segment_bytes": 6000})
    async with engine.opened() as log:
        topic = await new_topic(log)
        await publish(log, topic, 40)
        await log.retain()

        sealed = [each for each in log._state.catalog if each.closed]
        assert sealed
        assert all(len(engine.disk.content(each.path)) == each.length <= 6000 for each in sealed)

    assert not check(engine.folder, files=engine.disk).damage


async def test_a_kill_leaves_zeros_that_are_not_called_torn_and_go_at_the_next_start(engine, log):
    topic = await new_topic(log)
    await publish(log, topic, 20)
    disk = UnreliableDisk()
    disk.make_folder("/log/7d")
    path = engine.disk.paths(".log")[-1]
    disk.write(disk.open(path, create=True), engine.disk.content(path), 0)
    assert len(disk.content(path)) > log._state.catalog.by_class[2][-1].length

    report = check("/log", files=disk)
    assert (report.torn, report.damage, report.messages) == ((), (), 20)
    async with Embedded(engine.clock, disk).opened() as again:
        assert (again.recovered.trimmed, again.recovered.damage) == ((), ())
        assert len(disk.content(path)) == again._state.catalog.by_class[2][-1].length
        assert await all_fragments(again, topic) == fragments(numbered(0, 20, size=SIZE))


async def test_zeros_never_come_over_records_that_are_written_at_the_same_time(engine, log):
    """Zeros are slow here, so that records overtake them wherever they may."""
    topic = await new_topic(log)
    write, ahead = engine.disk.write, log._ahead._thread

    def slow(handle: int, data: bytes, position: int) -> None:
        if threading.current_thread().name.startswith(ahead._thread_name_prefix):
            threading.Event().wait(0.003)
        write(handle, data, position)

    engine.disk.write = slow
    chance = random.Random(3)
    total = 0
    for _ in range(60):
        sizes = [chance.randrange(600) for _ in range(chance.randrange(1, 9))]
        await asyncio.gather(*(log.append(topic, texts("x" * size)) for size in sizes))
        total += len(sizes)

    assert len(await all_fragments(log, topic)) == total
    assert log.damaged == 0
    path = engine.disk.paths(".log")[-1]
    length = log._state.catalog.by_class[2][-1].length
    with_zeros = Scanner(engine.disk, engine.disk.open(path), path, 1, length, closed=True).scan()
    assert (with_zeros.messages, with_zeros.damage) == (total, [])


async def test_writes_that_overtake_it_are_left_alone_for_a_while(engine, log):
    topic = await new_topic(log)
    await publish(log, topic, 10)
    open_segment = log._committer._writers[2].open

    await log.append(topic, numbered(0, 1, size=2 * AHEAD))
    await settle(log)

    assert open_segment.tail == 0
    assert open_segment.look_at >= open_segment.length + 60 * STEP


async def test_a_disk_without_space_for_zeros_costs_no_publish_and_is_told_once(engine, log, capsys):
    topic = await new_topic(log)
    write, ahead = engine.disk.write, log._ahead._thread

    def full(handle: int, data: bytes, position: int) -> None:
        if threading.current_thread().name.startswith(ahead._thread_name_prefix):
            write(handle, data[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(handle, data, position)

    engine.disk.write = full
    await publish(log, topic, 30)

    assert capsys.readouterr().out.count("log.not_ahead") == 1
    assert await all_fragments(log, topic) == fragments(numbered(0, 30, size=SIZE))
    await log.close()
    assert not check(engine.folder, files=engine.disk).damage


async def test_a_sync_of_zeros_that_fails_is_heard_of_by_the_next_write_to_the_file(engine, log):
    """Nobody can tell whose bytes the disk has lost."""
    topic = await new_topic(log)
    await publish(log, topic, 4)
    before = len(engine.disk.paths(".log"))
    begin, ahead = engine.disk._begin_sync, log._ahead._thread

    def failing(handle: int):
        if threading.current_thread().name.startswith(ahead._thread_name_prefix) and not engine.disk.failed:
            engine.disk.fail("sync", where=".log")
        return begin(handle)

    engine.disk._begin_sync = failing
    refused = 0
    for number in range(10):
        try:
            await publish(log, topic, 1, start=number)
        except LogUnavailable:
            refused += 1

    assert (engine.disk.failed, refused) == (1, 1)
    assert len(engine.disk.paths(".log")) == before + 1
    assert (await log.bounds(topic)).end == 13


async def test_a_defect_in_it_costs_no_publish_and_is_counted(engine, log):
    topic = await new_topic(log)
    engine.disk.free_bytes = lambda path: 1 / 0
    log._committer._space.refusal = lambda size: None

    await publish(log, topic, 10)

    assert log._supervisor.survived["writing ahead in the log"] > 0
    assert log._supervisor.failure is None
    assert (await log.bounds(topic)).end == 10


async def test_where_writing_ahead_does_not_get_on_no_more_waits_for_it_than_there_are_classes(engine, log):
    topic = await new_topic(log)
    go_on = threading.Event()
    log._ahead._thread.submit(go_on.wait)

    try:
        for number in range(60):
            await log.append(topic, numbered(number, 1, size=SIZE))
        assert log._ahead._wanted.full()
    finally:
        go_on.set()

    await publish(log, topic, 10, start=60)
    assert log._state.catalog.by_class[2][-1].length < len(segment(engine))
