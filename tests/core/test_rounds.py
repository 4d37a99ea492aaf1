import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ams.core.errors import Unavailable
from ams.core.rounds import Rounds
from ams.core.supervisor import Supervisor

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


async def reached(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0)


async def within(work: Awaitable[object]) -> None:
    async with asyncio.timeout(10):
        await work


async def test_one_round_comes_after_the_other_until_the_close(site: Site) -> None:
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended > 2)
    await within(rounds.close())

    done = site.begun
    await asyncio.sleep(0.01)
    assert site.begun == done
    assert site.supervisor.failure is None


async def test_it_begins_with_the_pause_unless_a_round_is_to_come_soon(site: Site) -> None:
    rounds = site.rounds(LONG)
    await rounds.start(site.supervisor)
    await asyncio.sleep(0.01)
    assert site.begun == 0
    rounds.soon()
    await reached(lambda: site.ended == 1)
    await rounds.close()

    again = site.rounds(LONG)
    again.soon()
    await again.start(site.supervisor)
    await reached(lambda: site.ended == 2)
    await again.close()


async def test_what_is_asked_for_during_a_round_comes_after_it(site: Site) -> None:
    rounds = site.rounds(LONG)
    site.open.clear()
    rounds.soon()
    await rounds.start(site.supervisor)
    await reached(lambda: site.begun == 1)
    rounds.soon()
    site.open.set()
    await reached(lambda: site.ended == 2)
    await rounds.close()


async def test_an_expected_error_puts_a_round_off(site: Site) -> None:
    site.errors = [Unavailable("it is away")]
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended > 0)
    await rounds.close()

    assert site.put_off == ["it is away"]
    assert site.supervisor.survived == {}


async def test_a_defect_is_counted_and_the_next_round_is_tried(site: Site) -> None:
    site.errors = [KeyError("planted"), KeyError("planted")]
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended > 0)
    await rounds.close()

    assert site.put_off == []
    assert site.supervisor.survived == {"work": 2}
    assert site.supervisor.failure is None


async def test_where_nothing_says_it_is_put_off_an_expected_error_is_a_defect(site: Site) -> None:
    site.errors = [Unavailable()]
    rounds = Rounds("work", 0.0, site.work)
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended > 0)
    await rounds.close()

    assert site.supervisor.survived == {"work": 1}


@pytest.mark.parametrize("error", [Unavailable(), KeyError("planted")])
async def test_after_a_round_that_failed_the_next_one_may_come_sooner(site: Site, error: Exception) -> None:
    site.errors = [error]
    rounds = site.rounds(LONG, retry_seconds=0.0)
    rounds.soon()
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended == 1)
    await asyncio.sleep(0.01)
    await rounds.close()

    assert site.begun == 2


async def test_a_round_may_change_the_pause(site: Site) -> None:
    async def work() -> None:
        rounds.seconds = 0.0
        await site.work()

    rounds = Rounds("work", LONG, work)
    rounds.soon()
    await rounds.start(site.supervisor)
    await reached(lambda: site.ended > 1)
    await rounds.close()


async def test_the_close_cancels_a_round_under_way(site: Site) -> None:
    site.open.clear()
    rounds = site.rounds()
    await rounds.start(site.supervisor)
    await reached(lambda: site.begun == 1)
    assert not rounds.is_over
    await within(rounds.close())

    assert (site.begun, site.ended) == (1, 0)
    assert rounds.is_over
    assert site.supervisor.failure is None


async def test_with_a_last_round_the_close_lets_one_under_way_end_and_adds_it(site: Site) -> None:
    site.open.clear()
    rounds = site.rounds(has_last=True)
    await rounds.start(site.supervisor)
    await reached(lambda: site.begun == 1)
    closing = asyncio.create_task(rounds.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    site.open.set()
    await within(closing)

    assert (site.begun, site.ended) == (2, 2)
    assert site.supervisor.failure is None


async def test_the_last_round_comes_also_if_none_did_before(site: Site) -> None:
    site.errors = [KeyError("planted")]
    rounds = site.rounds(LONG, has_last=True)
    await rounds.close()
    assert site.begun == 1

    began = site.rounds(LONG, has_last=True)
    await began.start(site.supervisor)
    await within(began.close())
    assert site.ended == 1


async def test_a_cancel_ends_it_at_once(site: Site) -> None:
    rounds = site.rounds(LONG)
    await rounds.start(site.supervisor)
    rounds.cancel()
    rounds.soon()
    await within(rounds.close())

    assert site.begun == 0


async def test_what_is_more_than_an_exception_is_the_end_of_the_part(site: Site) -> None:
    class Planted(BaseException):
        pass

    async def work() -> None:
        raise Planted

    rounds = Rounds("work", 0.0, work)
    await rounds.start(site.supervisor)
    await within(site.supervisor.until(asyncio.Event()))
    await rounds.close()

    assert site.supervisor.failure == "work failed (Planted)"
