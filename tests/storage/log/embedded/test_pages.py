"""What is loaded to answer a question is there until it is answered, and no longer than the budget allows."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ams.storage.log.embedded.pages import NotLoaded, Pages
from tests.support.unreliable_disk import UnreliableDisk

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
        found: int | None = self.pages.kept((number,))
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

    assert await pages.looked_up(question) == sum(range(200))
    assert question.loaded == list(range(1, 200))


async def test_questions_at_once_do_not_take_from_each_other(pages: Pages) -> None:
    questions = [Question(pages, range(first, first + 30)) for first in (100, 200, 300)]

    answers = await asyncio.gather(*map(pages.looked_up, questions))

    assert answers == [sum(question.numbers) for question in questions]
    assert all(question.loaded == list(question.numbers) for question in questions)


async def test_after_the_answer_no_more_is_kept_than_the_budget_allows(pages: Pages) -> None:
    await pages.looked_up(Question(pages, range(1, 100)))

    assert sum(pages.kept((number,)) is not None for number in range(1, 100)) == BUDGET


async def test_what_was_let_go_of_while_something_was_loaded_is_loaded_anew(pages: Pages) -> None:
    """Its file may be another one by now."""
    question = Question(pages, range(1, 4))
    asking = asyncio.ensure_future(pages.looked_up(question))
    while 1 not in question.loaded:
        await asyncio.sleep(0)
    pages.drop(1)

    assert await asking == 6
    assert question.loaded[:2] == [1, 1]
