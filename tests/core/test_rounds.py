import asyncio
from itertools import pairwise
from typing import Any

import pytest

from ams.core.errors import Unavailable
from ams.core.rounds import Rounds
from ams.core.supervisor import Supervisor
from ams.core.turns import Turns
from tests.support.waiting import wait_until_async

LONG = 3600.0


class Site:
    """Work of which tests say how its rounds end, and what was told."""

    def __init__(self) -> None:
        self.supervisor = Supervisor()
        self.put_off: list[str] = []
        self.begun = 0
        self.ended = 0
        self.errors: list[Exception] = []
        """How the next rounds end; the others end well."""
        self.open = asyncio.Event()
        self.open.set()
        """Until this is set rounds hang."""

    async def work(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.open.wait()
        self.ended += 1

    def rounds(self, seconds: float = 0.0, **options: Any) -> Rounds:
        return Rounds("work", seconds, self.work, lambda reason: self.put_off.append(reason), **options)


@pytest.fixture
def site() -> Site:
    return Site()


async def some_turns() -> None:
    """Let rounds begin that are to."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_round_comes_after_the_other_until_the_close(site: Site) -> None:
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended > 2)
    await rounds.close()

    done = site.begun
    await some_turns()
    assert site.begun == done
    assert site.supervisor.failure is None


async def test_it_begins_with_the_pause_unless_a_round_is_to_come_soon(site: Site) -> None:
    rounds = site.rounds(LONG)
    await rounds.start(site.supervisor)
    await some_turns()
    assert site.begun == 0
    rounds.soon()
    await wait_until_async(lambda: site.ended == 1)
    await rounds.close()

    again = site.rounds(LONG)
    again.soon()
    await again.start(site.supervisor)
    await wait_until_async(lambda: site.ended == 2)
    await again.close()


async def test_what_is_asked_for_during_a_round_comes_after_it(site: Site) -> None:
    rounds = site.rounds(LONG)
    site.open.clear()
    rounds.soon()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.begun == 1)
    rounds.soon()
    site.open.set()
    await wait_until_async(lambda: site.ended == 2)
    await rounds.close()


@pytest.mark.parametrize(
    ("errors", "says", "put_off", "survived"),
    [
        ([Unavailable("it is away")], True, ["it is away"], {}),
        ([KeyError("planted")] * 2, True, [], {"work": 2}),
        ([Unavailable()], False, [], {"work": 1}),
    ],
    ids=[
        "an expected error puts a round off",
        "a defect is counted",
        "so is any error where nothing can be said of it",
    ],
)
async def test_after_an_error_the_next_round_is_tried(
    site: Site, errors: list[Exception], says: bool, put_off: list[str], survived: dict[str, int]
) -> None:
    site.errors = [*errors]
    rounds = site.rounds() if says else Rounds("work", 0.0, site.work)
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended > 0)
    await rounds.close()

    assert (site.put_off, site.supervisor.survived, site.supervisor.failure) == (put_off, survived, None)


@pytest.mark.parametrize("error", [Unavailable(), KeyError("planted")])
async def test_after_a_round_that_failed_the_next_one_may_come_sooner(site: Site, error: Exception) -> None:
    site.errors = [error]
    rounds = site.rounds(LONG, retry_seconds=0.0)
    rounds.soon()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended == 1)
    await some_turns()
    await rounds.close()

    assert site.begun == 2


async def test_a_round_may_change_the_pause(site: Site) -> None:
    async def work() -> None:
        rounds.seconds = 0.0
        await site.work()

    rounds = Rounds("work", LONG, work)
    rounds.soon()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended > 1)
    await rounds.close()


async def test_the_close_cancels_a_round_under_way(site: Site) -> None:
    site.open.clear()
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.begun == 1)
    assert not rounds.is_over
    await rounds.close()

    assert (site.begun, site.ended) == (1, 0)
    assert rounds.is_over
    assert site.supervisor.failure is None


async def test_with_a_last_round_the_close_lets_one_under_way_end_and_adds_it(site: Site) -> None:
    site.open.clear()
    rounds = site.rounds(has_last=True)
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.begun == 1)
    closing = asyncio.create_task(rounds.close())
    await some_turns()
    assert not closing.done()
    site.open.set()
    await closing

    assert (site.begun, site.ended) == (2, 2)
    assert site.supervisor.failure is None


async def test_the_last_round_comes_also_if_none_did_before(site: Site) -> None:
    site.errors = [KeyError("planted")]
    rounds = site.rounds(LONG, has_last=True)
    await rounds.close()
    assert site.begun == 1

    began = site.rounds(LONG, has_last=True)
    await began.start(site.supervisor)
    await began.close()
    assert site.ended == 1


async def test_a_cancel_ends_it_at_once(site: Site) -> None:
    rounds = site.rounds(LONG)
    await rounds.start(site.supervisor)
    rounds.cancel()
    rounds.soon()
    await rounds.close()

    assert site.begun == 0


async def test_what_is_more_than_an_exception_is_the_end_of_the_part(site: Site) -> None:
    class Planted(BaseException):
        pass

    async def work() -> None:
        raise Planted

    rounds = Rounds("work", 0.0, work)
    await rounds.start(site.supervisor)
    await site.supervisor.until(asyncio.Event())
    await rounds.close()

    assert site.supervisor.failure == "work failed (Planted)"


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

    await third
    await turns()

    assert first.cancelled()
    assert second.cancelled()
