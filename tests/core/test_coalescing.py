"""One request for many callers: shared, or for many items at a time."""

import asyncio

import pytest

from ams.core import coalescing
from ams.core.coalescing import MAX_ITEMS, BatchedRequest, SharedRequest
from ams.core.errors import LogUnavailable
from tests.support.waiting import some_turns, wait_until_async


class AnswersOnDemand:
    """Answers on demand, with the number of the request."""

    def __init__(self):
        self.gates = []

    async def __call__(self, key):
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        number = len(self.gates)
        await gate
        return key, number


async def begin_calls(*askings):
    """Start calls; return their tasks when the requests are under way."""
    tasks = [asyncio.create_task(each) for each in askings]
    await some_turns()
    return tasks


async def test_callers_share_a_question_only_if_it_was_asked_after_they_came() -> None:
    asked = AnswersOnDemand()
    shared = SharedRequest(asked)
    [first] = await begin_calls(shared("a"))
    *later, other = await begin_calls(*(shared("a") for _ in range(5)), shared("b"))
    assert len(asked.gates) == 2  # of "a" one, and one of "b"
    asked.gates[0].set_result(None)
    await some_turns()
    assert first.result() == ("a", 1)
    assert len(asked.gates) == 3
    for gate in asked.gates[1:]:
        gate.set_result(None)
    assert await other == ("b", 2)
    assert await asyncio.gather(*later) == [("a", 3)] * 5


async def test_a_question_that_is_out_may_be_joined() -> None:
    asked = AnswersOnDemand()
    shared = SharedRequest(asked, join=True)
    [first] = await begin_calls(shared("a"))
    [later] = await begin_calls(shared("a"))
    asked.gates[0].set_result(None)
    assert [await first, await later] == [("a", 1)] * 2
    [again] = await begin_calls(shared("a"))
    asked.gates[1].set_result(None)
    assert await again == ("a", 2)


async def test_a_question_does_not_wait_long_for_one_that_hangs(monkeypatch) -> None:
    monkeypatch.setattr(coalescing, "PATIENCE", 0.01)
    asked = AnswersOnDemand()
    shared = SharedRequest(asked)
    [hangs] = await begin_calls(shared("a"))
    later = asyncio.create_task(shared("a"))
    await wait_until_async(lambda: len(asked.gates) == 2)
    asked.gates[1].set_result(None)
    assert await later == ("a", 2)
    asked.gates[0].set_result(None)
    assert await hangs == ("a", 1)


@pytest.mark.parametrize(("is_batched", "other"), [(False, "a"), (True, "b")])
async def test_a_caller_who_goes_away_harms_no_other_and_closing_tells_those_who_wait(is_batched, other) -> None:
    async def ask_all(items):
        return (await asked(items))[0]

    asked = AnswersOnDemand()
    ask = BatchedRequest(ask_all) if is_batched else SharedRequest(asked)
    one, two = await begin_calls(ask("a"), ask(other))
    one.cancel()
    await some_turns()
    asked.gates[0].set_result(None)
    assert await two == (other if is_batched else (other, 1))
    [waiting] = await begin_calls(ask("a"))
    await ask.close()
    with pytest.raises(LogUnavailable):
        await waiting


async def test_an_error_goes_to_all_who_share_it() -> None:
    async def fails(key):
        raise ValueError(key)

    shared = SharedRequest(fails)
    for each in await asyncio.gather(shared("a"), shared("a"), return_exceptions=True):
        assert isinstance(each, ValueError)


async def test_what_is_asked_for_together_is_asked_in_one_question_and_answered_each() -> None:
    asked = []

    async def ask(items):
        asked.append(list(items))
        await asyncio.sleep(0)
        return [ValueError(str(item)) if item % 2 else item * 10 for item in items]

    together = BatchedRequest(ask)
    first = asyncio.gather(*(together(number) for number in range(4)), return_exceptions=True)
    await asyncio.sleep(0)
    second = asyncio.gather(*(together(number) for number in range(4, 6)), return_exceptions=True)

    assert [str(each) for each in await first] == ["0", "1", "20", "3"]
    assert [str(each) for each in await second] == ["40", "5"]
    assert [number for each in asked for number in each] == list(range(6))
    assert len(asked) <= 2


async def test_an_error_of_the_question_is_that_of_all_who_asked_and_no_question_is_too_large() -> None:
    sizes = []

    async def ask(items):
        sizes.append(len(items))
        if "bad" in items:
            raise LogUnavailable
        return items

    together = BatchedRequest(ask)
    answers = await asyncio.gather(*(together(each) for each in ("bad", "good")), return_exceptions=True)
    assert [type(each) for each in answers] == [LogUnavailable, LogUnavailable]
    assert await asyncio.gather(*(together(number) for number in range(MAX_ITEMS + 1))) == list(range(MAX_ITEMS + 1))
    assert sizes == [2, MAX_ITEMS, 1]
