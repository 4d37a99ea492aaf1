import asyncio
import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from ams.core.supervisor import FAULT, PartFailed, Supervisor


class Planted(Exception):
    """What no part expects."""


@pytest.fixture
def told() -> list[str]:
    return []


async def test_a_thread_that_ends_by_an_exception_is_logged_and_what_waits_for_it_is_failed(told: list[str]) -> None:
    watched, stop = Supervisor(), asyncio.Event()

    def work() -> None:
        raise Planted

    with capture_logs() as lines:
        watched.thread("disk", "disk", work, lambda: told.append("failed")).start()
        async with asyncio.timeout(5):
            await watched.until(stop)

    assert told == ["failed"]
    assert watched.failure == "disk failed (Planted)"
    assert [(each["event"], each["part"], each["log_level"]) for each in lines] == [("part.failed", "disk", "critical")]
    assert isinstance(lines[0]["exc_info"], Planted)
    with pytest.raises(PartFailed, match=r"disk failed \(Planted\)"):
        watched.check()


async def test_also_one_that_ends_the_interpreter(told: list[str]) -> None:
    watched = Supervisor()

    def work() -> None:
        raise SystemExit

    watched.thread("disk", "disk", work, lambda: told.append("failed")).start()
    async with asyncio.timeout(5):
        await watched.until(asyncio.Event())

    assert told == ["failed"]


async def test_a_thread_may_return(told: list[str]) -> None:
    watched, thread_ended = Supervisor(), threading.Event()
    thread = watched.thread("disk", "disk", thread_ended.set, lambda: told.append("failed"))

    thread.start()
    await asyncio.to_thread(thread.join)

    assert watched.failure is None
    assert told == []


async def test_a_task_may_not() -> None:
    watched = Supervisor()

    async def work() -> None:
        return

    watched.task("beats", work())
    async with asyncio.timeout(5):
        await watched.until(asyncio.Event())

    assert watched.failure == "beats failed (PartFailed)"


async def test_unless_it_is_one_that_may_end_or_is_cancelled() -> None:
    watched = Supervisor()

    async def work() -> None:
        return

    one, other = watched.task("server", work(), may_end=True), watched.task("beats", asyncio.sleep(60))
    other.cancel()
    await asyncio.wait({one, other})
    await asyncio.sleep(0)

    assert watched.failure is None
    watched.check()


async def test_the_first_failure_is_the_one_that_is_told() -> None:
    watched = Supervisor()

    watched.failed("disk", Planted("with what must not be shown"))
    watched.failed("beats", KeyError("x"))

    assert watched.failure == "disk failed (Planted)"


async def test_a_failing_way_to_give_up_does_not_keep_the_process_from_ending() -> None:
    watched = Supervisor()

    def give_up() -> None:
        raise KeyError

    with capture_logs() as lines:
        watched.failed("disk", Planted(), give_up)
    async with asyncio.timeout(5):
        await watched.until(asyncio.Event())

    assert [each["event"] for each in lines] == ["part.failed", "part.not_given_up"]


async def test_being_told_to_stop_is_no_failure() -> None:
    watched, stop = Supervisor(), asyncio.Event()

    stop.set()
    await watched.until(stop)

    watched.check()


def test_rounds_that_fail_are_counted_and_logged() -> None:
    watched = Supervisor()

    with capture_logs() as lines:
        for _ in range(2):
            try:
                raise Planted
            except Planted:
                watched.survive("counting")

    assert watched.survived == {"counting": 2}
    assert [(each["event"], each["work"]) for each in lines] == [("background.failed", "counting")] * 2


HANGING = """
import threading
from ams.core.supervisor import end_within
end_within(0.1)
threading.Event().wait()
"""


def test_a_process_that_hangs_is_ended_and_says_where_it_hung() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == FAULT
    assert "stop.forced" in ended.stdout + ended.stderr
    assert "in wait" in ended.stderr
