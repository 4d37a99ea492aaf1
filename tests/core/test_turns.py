import asyncio
from itertools import pairwise

import pytest

from ams.core.turns import Turns


async def ticking(ticks: list[int]) -> None:
    """Count turns of the event loop."""
    while True:
        ticks[0] += 1
        await asyncio.sleep(0)


async def test_one_goes_on_in_each_turn_of_the_event_loop_in_the_order_they_came() -> None:
    turns, ticks, seen = Turns(), [0], []

    async def go_on(number: int) -> None:
        await turns()
        seen.append((number, ticks[0]))

    ticker = asyncio.create_task(ticking(ticks))
    await asyncio.gather(*[go_on(number) for number in range(5)])
    ticker.cancel()

    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert len({tick for _, tick in seen}) == 5


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("at_once", [True, False])
async def test_one_goes_on_in_so_many_turns_of_the_event_loop(every: int, at_once: bool) -> None:
    turns, ticks, seen = Turns(every), [0], []

    async def go_on() -> None:
        await turns()
        seen.append(ticks[0])

    ticker = asyncio.create_task(ticking(ticks))
    if at_once:
        await asyncio.gather(*[go_on() for _ in range(5)])
    else:
        for _ in range(5):
            await go_on()
    ticker.cancel()

    assert all(second - first >= every for first, second in pairwise(seen))


async def test_who_is_cancelled_takes_no_turn_and_holds_up_nobody() -> None:
    turns = Turns()
    first, second, third = (asyncio.create_task(turns()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()

    await asyncio.wait_for(third, 1)
    await asyncio.wait_for(turns(), 1)

    assert first.cancelled()
    assert second.cancelled()
