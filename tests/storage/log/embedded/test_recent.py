"""Records that are kept in memory: those that are read again and again, and no more than there is room for."""

import pytest

from ams.core.messages import Fragment
from ams.core.names import TopicId
from ams.core.runs import Run
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.log.embedded.recent import BEGUN_BYTES, RecentRecords
from tests.storage.log.engines import Embedded, fragments, new_topic, numbered
from tests.support.memory import in_a_process, traced

BUDGET = 2**19


async def read(log: EmbeddedLog, topic: TopicId, start: int, most: int = 100) -> list[Fragment]:
    found = await log.read(topic, start, max_messages=most, max_bytes=10**6)
    return [each.fragment for each in found]


@pytest.mark.parametrize("cold", [False, True])
async def test_what_was_read_twice_is_not_read_from_its_file_again(engine: Embedded, cold: bool) -> None:
    engine.disk.cold = cold
    messages = fragments(numbered(0, 10, size=100))
    async with engine.opened() as log:
        topic = await new_topic(log)
        for number in (0, 5):
            await log.append(topic, numbered(number, 5, size=100))
        for _ in range(3):
            assert await read(log, topic, 0) == messages
        reads = engine.disk.reads

        assert await read(log, topic, 0) == messages
        assert await read(log, topic, 3, 4) == messages[3:7]
        assert await read(log, topic, 9, 1) == messages[9:]
        assert engine.disk.reads == reads

        await log.append(topic, numbered(10, 1, size=100))
        assert await read(log, topic, 4) == fragments(numbered(4, 7, size=100))
        assert engine.disk.reads == reads + 1


async def test_a_record_is_read_from_its_file_once_by_a_reader_that_goes_on_within_it(engine: Embedded) -> None:
    engine.disk.cold = True
    messages = fragments(numbered(0, 30, size=100))
    async with engine.opened() as log:
        topic = await new_topic(log)
        for number in (0, 10, 20):
            await log.append(topic, numbered(number, 10, size=100))
        before = engine.disk.reads

        found = [fragment for start in range(0, 30, 4) for fragment in await read(log, topic, start, 4)]

        assert found == messages
        assert engine.disk.reads == before + 3


ROOM = 4000
"""For six of the records below."""


def run(first: int, size: int = 100, messages: int = 1) -> Run:
    return Run.of(first, 10**12 + first, [bytes(size) for _ in range(messages)])


def test_a_record_is_kept_when_it_is_read_for_the_second_time() -> None:
    recent = RecentRecords(ROOM)

    recent.note((1, 0), run(0))
    assert recent.get((1, 0)) is None
    recent.note((1, 0), run(0))
    assert recent.get((1, 0)) == run(0)
    assert recent.get((2, 0)) is None


def test_no_more_is_kept_than_there_is_room_for_and_a_look_at_everything_takes_nothings_place() -> None:
    recent = RecentRecords(ROOM)
    for _ in range(2):
        for number in range(6):
            recent.note((1, number), run(number))
    for number in range(6, 1000):
        recent.note((1, number), run(number))
    assert [number for number in range(1000) if recent.get((1, number))] == list(range(6))

    for _ in range(2):
        for number in range(10, 16):
            recent.note((1, number), run(number))
    assert [number for number in range(1000) if recent.get((1, number))] == list(range(10, 16))


def test_what_is_met_again_after_too_much_else_counts_as_met_for_the_first_time() -> None:
    recent = RecentRecords(ROOM)
    for _ in range(3):
        for number in range(50):
            recent.note((1, number), run(number))

    assert not any(recent.get((1, number)) for number in range(50))


def test_a_record_that_was_read_by_half_is_kept_until_it_is_read_on() -> None:
    recent = RecentRecords(ROOM)

    recent.note((1, 0), run(0, messages=2))
    recent.note_begun((1, 0), run(0, messages=2))
    assert recent.get((1, 0)) == run(0, messages=2)
    assert recent.get((1, 0)) is None

    recent.note((1, 0), run(0, messages=2))
    recent.note_begun((1, 0), run(0, messages=2))
    assert [recent.get((1, 0)) for _ in range(2)] == [run(0, messages=2)] * 2


def test_records_that_were_read_by_half_take_no_more_memory_than_they_may() -> None:
    recent = RecentRecords()
    size = BEGUN_BYTES // 10

    for first in range(100):
        recent.note_begun((1, first), run(first, size))

    assert [first for first in range(100) if recent.get((1, first))] == list(range(91, 100))


def taken(budget: int, number: int, size: int, messages: int, times: int) -> int:
    """Return the bytes that are taken by so many records, each noted so many times."""
    recent = RecentRecords(budget)
    with traced() as held:
        for first in range(0, number, 5):
            for _ in range(times):
                for each in range(first, first + 5):
                    recent.note((1, 10**6 + each), run(each, size, messages))
        return held()


@pytest.mark.long
@pytest.mark.parametrize(("size", "messages"), [(17, 1), (300, 100)])
def test_what_is_kept_takes_about_the_memory_it_may(size: int, messages: int) -> None:
    held = in_a_process(taken, BUDGET, BUDGET // size // messages, size, messages, 2)

    assert BUDGET * 0.7 < held < BUDGET * 1.4


def test_what_was_only_met_takes_less_than_half_of_it() -> None:
    assert in_a_process(taken, BUDGET, 10_000, 17, 1, 1) < BUDGET / 2
