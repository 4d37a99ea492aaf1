"""The page cache of reads: pages stay until a read ends, recent records while they are read again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ams.core.messages import Fragment
from ams.core.names import TopicId
from ams.core.runs import Run
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.log.embedded.pages import NotLoaded, Pages
from ams.storage.log.embedded.reader import BEGUN_BYTES, RecentRecords
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import Embedded, fragments, make_messages, new_topic
from tests.support.memory import in_a_process, trace_memory

BUDGET = 10


class Question:
    """Adds up numbers, each of which must be loaded first."""

    def __init__(self, pages: Pages, numbers: range) -> None:
        self.pages = pages
        self.numbers = numbers
        self.loaded: list[int] = []

    def __call__(self) -> int:
        return sum(self._number(number) for number in self.numbers)

    def _number(self, number: int) -> int:
        found: int | None = self.pages.cached_page((number,))
        if found is None:
            raise NotLoaded((number,), lambda: self._load(number), lambda it: 1)
        return found

    def _load(self, number: int) -> int:
        self.loaded.append(number)
        return number


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    made = Pages(UnreliableDisk(), BUDGET)
    yield made
    await made.close()


async def test_a_question_that_needs_more_than_the_budget_is_answered_and_loads_each_thing_once(pages: Pages) -> None:
    question = Question(pages, range(1, 200))
    assert await pages.look_up(question) == sum(range(200))
    assert question.loaded == list(range(1, 200))


async def test_questions_at_once_do_not_take_from_each_other(pages: Pages) -> None:
    questions = [Question(pages, range(first, first + 30)) for first in (100, 200, 300)]
    assert await asyncio.gather(*map(pages.look_up, questions)) == [sum(question.numbers) for question in questions]
    assert all(question.loaded == list(question.numbers) for question in questions)


async def test_after_the_answer_no_more_is_kept_than_the_budget_allows(pages: Pages) -> None:
    await pages.look_up(Question(pages, range(1, 100)))
    assert sum(pages.cached_page((number,)) is not None for number in range(1, 100)) == BUDGET


async def test_what_was_let_go_of_while_something_was_loaded_is_loaded_anew(pages: Pages) -> None:
    """Its file may be another one by now."""
    question = Question(pages, range(1, 4))
    asking = asyncio.ensure_future(pages.look_up(question))
    while 1 not in question.loaded:
        await asyncio.sleep(0)
    pages.drop(1)

    assert await asking == 6
    assert question.loaded[:2] == [1, 1]


MEMORY = 2**19


async def read_fragments(log: EmbeddedLog, topic: TopicId, start: int, most: int = 100) -> list[Fragment]:
    return [each.fragment for each in await log.read(topic, start, max_messages=most, max_bytes=10**6)]


@pytest.mark.parametrize("cold", [False, True])
async def test_what_was_read_twice_is_not_read_from_its_file_again(engine: Embedded, cold: bool) -> None:
    engine.disk.cold = cold
    messages = fragments(make_messages(0, 10, size=100))
    async with engine.open_log() as log:
        topic = await new_topic(log)
        for number in (0, 5):
            await log.append(topic, make_messages(number, 5, size=100))
        for _ in range(3):
            assert await read_fragments(log, topic, 0) == messages
        reads = engine.disk.reads

        assert await read_fragments(log, topic, 0) == messages
        assert await read_fragments(log, topic, 3, 4) == messages[3:7]
        assert await read_fragments(log, topic, 9, 1) == messages[9:]
        assert engine.disk.reads == reads

        await log.append(topic, make_messages(10, 1, size=100))
        assert await read_fragments(log, topic, 4) == fragments(make_messages(4, 7, size=100))
        assert engine.disk.reads == reads + 1


async def test_a_record_is_read_from_its_file_once_by_a_reader_that_goes_on_within_it(engine: Embedded) -> None:
    engine.disk.cold = True
    messages = fragments(make_messages(0, 30, size=100))
    async with engine.open_log() as log:
        topic = await new_topic(log)
        for number in (0, 10, 20):
            await log.append(topic, make_messages(number, 10, size=100))
        before = engine.disk.reads

        found = [fragment for start in range(0, 30, 4) for fragment in await read_fragments(log, topic, start, 4)]

        assert found == messages
        assert engine.disk.reads == before + 3


ROOM = 4000  # for six of the records below


def make_run(first: int, size: int = 100, messages: int = 1) -> Run:
    return Run.of(first, 10**12 + first, [bytes(size) for _ in range(messages)])


def test_no_more_is_kept_than_there_is_room_for_and_a_look_at_everything_takes_nothings_place() -> None:
    recent = RecentRecords(ROOM)
    for _ in range(2):
        for number in range(6):
            recent.note((1, number), make_run(number))
    for number in range(6, 1000):
        recent.note((1, number), make_run(number))
    assert [number for number in range(1000) if recent.get((1, number))] == list(range(6))

    for _ in range(2):
        for number in range(10, 16):
            recent.note((1, number), make_run(number))
    assert [number for number in range(1000) if recent.get((1, number))] == list(range(10, 16))


def test_a_record_that_was_read_by_half_is_kept_until_it_is_read_on() -> None:
    recent = RecentRecords(ROOM)

    recent.note((1, 0), make_run(0, messages=2))
    recent.note_begun((1, 0), make_run(0, messages=2))
    assert recent.get((1, 0)) == make_run(0, messages=2)
    assert recent.get((1, 0)) is None

    recent.note((1, 0), make_run(0, messages=2))
    recent.note_begun((1, 0), make_run(0, messages=2))
    assert [recent.get((1, 0)) for _ in range(2)] == [make_run(0, messages=2)] * 2


def test_records_that_were_read_by_half_take_no_more_memory_than_they_may() -> None:
    recent = RecentRecords()
    size = BEGUN_BYTES // 10

    for first in range(100):
        recent.note_begun((1, first), make_run(first, size))

    assert [first for first in range(100) if recent.get((1, first))] == list(range(91, 100))


def kept_bytes(number: int, size: int, messages: int) -> int:
    """Return the memory of so many cached records, each stored twice."""
    recent = RecentRecords(MEMORY)
    with trace_memory() as held:
        for first in range(0, number, 5):
            for each in [*range(first, first + 5)] * 2:
                recent.note((1, 10**6 + each), make_run(each, size, messages))
        return held()


@pytest.mark.long
@pytest.mark.parametrize(("size", "messages"), [(17, 1), (300, 100)])
def test_what_is_kept_takes_about_the_memory_it_may(size: int, messages: int) -> None:
    held = in_a_process(kept_bytes, MEMORY // size // messages, size, messages)
    assert MEMORY * 0.7 < held < MEMORY * 1.4
