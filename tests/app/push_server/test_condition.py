"""The condition of the push server: the texts of push contract 4, and P26."""

import asyncio

from ams.app.push_server.condition import HITS, MISSES, NO_WORKER, OK, Condition


def test_a_start_says_nothing_then_what_is_missing_then_that_it_works() -> None:
    condition = Condition()
    seen = [condition.text]
    condition.missed()
    seen.append(condition.text)
    condition.reached()
    seen.append(condition.text)

    assert seen == ["", NO_WORKER, OK]


def test_p26_a_service_that_is_away_for_long_is_told_and_one_failure_is_not() -> None:
    condition = Condition(OK)
    for _ in range(MISSES - 1):
        condition.missed()
    assert condition.is_ok

    condition.missed()
    assert condition.text == NO_WORKER

    for _ in range(HITS - 1):
        condition.reached()
    assert not condition.is_ok

    condition.reached()
    assert condition.is_ok


def test_failures_count_only_in_a_row() -> None:
    condition = Condition(OK)
    for _ in range(10):
        condition.missed()
        condition.reached()

    assert condition.is_ok


async def test_a_change_wakes_those_who_wait_for_it() -> None:
    condition = Condition()
    waiting = asyncio.create_task(condition.changed.wait())
    await asyncio.sleep(0)
    condition.reached()

    await asyncio.wait_for(waiting, 1)
