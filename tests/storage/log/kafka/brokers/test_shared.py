import asyncio

import pytest

from ams.core.errors import LogUnavailable
from ams.storage.log.kafka.brokers.shared import Shared


class Asked:
    """Answers when told to, with the number of the question."""

    def __init__(self):
        self.gates = []

    async def __call__(self, key):
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        number = len(self.gates)
        await gate
        return key, number


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_share_a_question_only_if_it_was_asked_after_they_came():
    asked = Asked()
    shared = Shared(asked)
    first = asyncio.create_task(shared("a"))
    await turns()
    later = [asyncio.create_task(shared("a")) for _ in range(5)]
    other = asyncio.create_task(shared("b"))
    await turns()
    assert len(asked.gates) == 2  # of "a" one, and one of "b"
    asked.gates[0].set_result(None)
    await turns()
    assert first.result() == ("a", 1)
    assert len(asked.gates) == 3
    for gate in asked.gates[1:]:
        gate.set_result(None)
    assert await other == ("b", 2)
    assert await asyncio.gather(*later) == [("a", 3)] * 5


async def test_a_question_that_is_out_may_be_joined():
    asked = Asked()
    shared = Shared(asked, join=True)
    first = asyncio.create_task(shared("a"))
    await turns()
    later = asyncio.create_task(shared("a"))
    await turns()
    asked.gates[0].set_result(None)
    assert [await first, await later] == [("a", 1)] * 2
    again = asyncio.create_task(shared("a"))
    await turns()
    asked.gates[1].set_result(None)
    assert await again == ("a", 2)


async def test_a_question_does_not_wait_long_for_one_that_hangs():
    asked = Asked()
    shared = Shared(asked)
    hangs = asyncio.create_task(shared("a"))
    await turns()
    later = asyncio.create_task(shared("a"))
    await asyncio.sleep(0.4)
    assert len(asked.gates) == 2
    asked.gates[1].set_result(None)
    assert await later == ("a", 2)
    asked.gates[0].set_result(None)
    assert await hangs == ("a", 1)


async def test_a_caller_who_goes_away_harms_no_other():
    asked = Asked()
    shared = Shared(asked)
    one, two = asyncio.create_task(shared("a")), asyncio.create_task(shared("a"))
    await turns()
    one.cancel()
    await turns()
    asked.gates[0].set_result(None)
    assert await two == ("a", 1)


async def test_an_error_goes_to_all_who_share_it_and_to_nobody_else():
    async def fails(key):
        raise ValueError(key)

    shared = Shared(fails)
    for each in await asyncio.gather(shared("a"), shared("a"), return_exceptions=True):
        assert isinstance(each, ValueError)
    gone = asyncio.create_task(shared("a"))
    await asyncio.sleep(0)
    gone.cancel()
    await turns()


async def test_who_waits_when_it_closes_is_told():
    shared = Shared(Asked())
    waiting = asyncio.create_task(shared("a"))
    await turns()
    await shared.close()
    with pytest.raises(LogUnavailable):
        await waiting
