import asyncio

import pytest

from ams.core.errors import LogUnavailable
from ams.storage.log.kafka.brokers.together import AT_ONCE, Together


async def test_what_is_asked_for_together_is_asked_in_one_question_and_answered_each():
    asked = []

    async def ask(items):
        asked.append(list(items))
        await asyncio.sleep(0)
        return [ValueError(str(item)) if item % 2 else item * 10 for item in items]

    together = Together(ask)
    first = asyncio.gather(*(together(number) for number in range(4)), return_exceptions=True)
    await asyncio.sleep(0)
    second = asyncio.gather(*(together(number) for number in range(4, 6)), return_exceptions=True)

    assert [str(each) for each in await first] == ["0", "1", "20", "3"]
    assert [str(each) for each in await second] == ["40", "5"]
    assert [number for each in asked for number in each] == list(range(6))
    assert len(asked) <= 2


async def test_a_question_holds_no_more_than_so_many():
    sizes = []

    async def ask(items):
        sizes.append(len(items))
        return items

    together = Together(ask)
    assert await asyncio.gather(*(together(number) for number in range(AT_ONCE + 1))) == list(range(AT_ONCE + 1))
    assert sizes == [AT_ONCE, 1]


async def test_an_error_of_the_question_is_that_of_all_who_asked_and_the_next_one_is_asked():
    async def ask(items):
        if "bad" in items:
            raise LogUnavailable
        return items

    together = Together(ask)
    answers = await asyncio.gather(*(together(each) for each in ("bad", "good")), return_exceptions=True)
    assert [type(each) for each in answers] == [LogUnavailable, LogUnavailable]
    assert await together("good") == "good"


async def test_who_leaves_does_not_harm_the_others_and_closing_tells_those_who_wait():
    async def ask(items):
        await asyncio.sleep(0.02 if "slow" not in items else 60)
        return items

    together = Together(ask)
    leaving, staying = (asyncio.ensure_future(together(each)) for each in ("a", "b"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == "b"

    waiting = asyncio.ensure_future(together("slow"))
    await asyncio.sleep(0.01)
    await together.close()
    with pytest.raises(LogUnavailable):
        await waiting
