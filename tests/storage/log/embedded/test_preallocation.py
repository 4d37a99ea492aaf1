"""Writing zeros ahead of the records of a busy segment: never over records, and without delaying anybody."""

import asyncio
import errno
import random
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId
from ams.core.supervisor import Supervisor
from ams.storage.log.embedded import EmbeddedLog, check
from ams.storage.log.embedded.segment import STEPS
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import Embedded, all_fragments, append_each, fragments, make_messages, new_topic, texts
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

AHEAD_BYTES = 4096
STEP_BYTES = AHEAD_BYTES // STEPS
SIZE = 200


class WatchedDisk(UnreliableDisk):
    """Calls `before_zeros` before zeros are written ahead; other threads wait with their writes until they are
    written."""

    before_zeros: Callable[[], object] | None = None

    def write_through(self, handle: int, parts: Sequence[bytes], position: int) -> None:
        if self.before_zeros is None or any(map(any, parts)):
            super().write_through(handle, parts, position)
            return
        with self._lock:
            self.before_zeros()
            super().write_through(handle, parts, position)


@pytest.fixture
def engine() -> Embedded:
    return Embedded(disk=WatchedDisk(), options={"ahead_bytes": AHEAD_BYTES}, supervisor=Supervisor())


def segment(engine: Embedded) -> bytes:
    return engine.disk.content(engine.disk.paths(".log")[-1])


def count_zeros(engine: Embedded) -> int:
    """Return the bytes after the records of the newest segment; records never end with a zero."""
    return len(segment(engine)) - len(segment(engine).rstrip(b"\0"))


async def publish(log: EmbeddedLog, topic: TopicId, count: int, *, start: int = 0) -> None:
    await append_each(log, topic, count, SIZE, start)


async def publish_steadily(engine: Embedded, log: EmbeddedLog, topic: TopicId, count: int) -> None:
    """Publish so slowly that the zeros are always written first."""
    for number in range(count):
        await publish(log, topic, 1, start=number)
        if number:
            await wait_until_async(lambda: count_zeros(engine) >= 2 * SIZE)


async def test_a_busy_segment_has_zeros_behind_its_records_as_many_as_it_holds_and_no_more(engine, log) -> None:
    topic = await new_topic(log)

    for number in range(40):
        await publish(log, topic, 1, start=number)
        if number:
            await wait_until_async(lambda: count_zeros(engine) >= STEP_BYTES)
        assert count_zeros(engine) <= min(AHEAD_BYTES, len(segment(engine).rstrip(b"\0")))

    await wait_until_async(
        lambda: count_zeros(engine) > AHEAD_BYTES - 2 * STEP_BYTES and log.usage() == len(segment(engine))
    )
    assert await all_fragments(log, topic) == fragments(make_messages(0, 40, size=SIZE))


@pytest.mark.parametrize(
    "options", [{"sync": "interval"}, {"max_bytes": STEPS}, {"ahead_bytes": 0}, {"min_free_bytes": 1 << 40}]
)
async def test_where_it_is_of_no_use_or_there_is_no_room_nothing_is_written_ahead(engine, options) -> None:
    engine.disk.capacity = (1 << 40) + AHEAD_BYTES
    async with engine.open_log(**options) as log:
        await publish(log, await new_topic(log), 15)
        assert count_zeros(engine) == 0


async def test_what_is_written_ahead_is_cut_off_when_the_segment_is_sealed(engine) -> None:
    async with engine.open_log(segment_bytes=6000) as log:
        topic = await new_topic(log)
        await publish_steadily(engine, log, topic, 8)
        await publish(log, topic, 32, start=8)
        await log.retain()

        sealed = [path.replace(".idx", ".log") for path in engine.disk.paths(".idx")]
        assert sealed
        for path in sealed:
            assert len(engine.disk.content(path)) <= 6000
            assert engine.disk.content(path)[-1]

    assert not check(engine.folder, files=engine.disk).damage


async def test_a_kill_leaves_zeros_that_are_not_called_torn_and_go_at_the_next_start(engine, log, topic) -> None:
    await publish_steadily(engine, log, topic, 20)
    found = engine.copy_as_killed()
    assert count_zeros(found)

    report = check("/log", files=found.disk)
    assert (report.torn, report.damage, report.messages) == ((), (), 20)
    async with found.open_log() as again:
        assert (again.trimmed, again.damage) == ((), ())
        assert count_zeros(found) == 0
        assert await all_fragments(again, topic) == fragments(make_messages(0, 20, size=SIZE))


async def test_zeros_never_come_over_records_that_are_written_at_the_same_time(engine) -> None:
    """Zeros are slow here, so that records overtake them at any place."""
    write_through = engine.disk.write_through

    def slow(handle: int, parts: Sequence[bytes], position: int) -> None:
        if not any(map(any, parts)):
            time.sleep(0.003)
        write_through(handle, parts, position)

    engine.disk.write_through = slow
    chance, total = random.Random(3), 0
    async with engine.open_log() as log:
        topic = await new_topic(log)
        for _ in range(60):
            sizes = [chance.randrange(600) for _ in range(chance.randrange(1, 9))]
            await asyncio.gather(*(log.append(topic, texts("x" * size)) for size in sizes))
            total += len(sizes)
        assert (len(await all_fragments(log, topic)), len(log._state.damaged)) == (total, 0)

    report = check(engine.folder, files=engine.disk)
    assert (report.messages, report.damage, report.torn) == (total, (), ())


async def test_a_disk_without_space_for_zeros_costs_no_publish_and_is_told_once(engine, capsys) -> None:
    engine.disk.before_zeros = lambda: engine.disk.fail("write", errno.ENOSPC)
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await publish(log, topic, 30)
        await wait_until_async(lambda: engine.disk.failed > 1)

        assert await all_fragments(log, topic) == fragments(make_messages(0, 30, size=SIZE))
    assert capsys.readouterr().out.count("log.not_ahead") == 1
    assert not check(engine.folder, files=engine.disk).damage


async def test_a_defect_in_it_costs_no_publish_and_is_counted(engine, log, topic) -> None:
    engine.disk.before_zeros = lambda: 1 / 0
    await publish(log, topic, 10)

    await wait_until_async(lambda: engine.supervisor.survived["writing ahead in the log"])
    assert engine.supervisor.failure is None
    assert (await log.bounds(topic)).end == 10


async def test_a_sync_of_zeros_that_fails_is_heard_of_by_the_next_write_to_the_file(engine, log, topic) -> None:
    """It is unknown which bytes the disk has lost."""
    before = len(engine.disk.paths(".log"))
    engine.disk.before_zeros = lambda: engine.disk.failed or engine.disk.fail("sync", where=".log")
    refused = 0
    for number in range(20):
        try:
            await publish(log, topic, 1, start=number)
        except LogUnavailable:
            refused += 1
        if number == 5:
            await wait_until_async(lambda: engine.disk.failed)

    assert (engine.disk.failed, refused) == (1, 1)
    assert len(engine.disk.paths(".log")) == before + 1
    assert (await log.bounds(topic)).end == 19


async def test_where_writing_ahead_does_not_get_on_it_holds_up_no_publish(engine, log) -> None:
    topic, go_on = await new_topic(log), threading.Event()

    def stand_still() -> None:
        if "ahead" in threading.current_thread().name:
            go_on.wait(PATIENCE_SECONDS)

    engine.disk.during_question = stand_still
    try:
        await publish(log, topic, 60)
    finally:
        go_on.set()

    await wait_until_async(lambda: count_zeros(engine))
    assert await all_fragments(log, topic) == fragments(make_messages(0, 60, size=SIZE))
