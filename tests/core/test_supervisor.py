import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from ams.core import supervisor
from ams.core.supervisor import FAULT, PartFailed, Supervisor, run_until_stopped


class Planted(Exception):
    """What no part expects."""


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.mark.parametrize("error", [Planted, SystemExit])
async def test_a_thread_that_fails_is_logged_and_its_waiters_fail(told: list[str], error: type[BaseException]) -> None:
    watched = Supervisor()

    def work() -> None:
        raise error

    with capture_logs() as lines:
        watched.thread("disk", "disk", work, lambda: told.append("failed")).start()
        await watched.until(asyncio.Event())

    assert told == ["failed"]
    assert watched.failure == f"disk failed ({error.__name__})"
    assert [(each["event"], each["part"], each["log_level"]) for each in lines] == [("part.failed", "disk", "critical")]
    assert isinstance(lines[0]["exc_info"], error)
    with pytest.raises(PartFailed, match=rf"disk failed \({error.__name__}\)"):
        watched.check()


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


class Program:
    """Starts when it is let, and says what became of it."""

    def __init__(self, *, starts: bool = True) -> None:
        self.said: list[str] = []
        self._may_start = asyncio.Event()
        if starts:
            self._may_start.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        try:
            await self._may_start.wait()
        except asyncio.CancelledError:
            self.said.append("start undone")
            raise
        yield "a program"
        self.said.append("stopped in order")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """In how many seconds the process was to be ended."""
    found: list[float] = []
    monkeypatch.setattr(supervisor, "end_within", found.append)
    yield found
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def sigterm(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_a_program_that_is_told_to_stop_stops_in_order(ends: list[float]) -> None:
    program = Program()
    with capture_logs() as lines:
        ran = await run_until_stopped(
            program.running(), sigterm, Supervisor(), structlog.get_logger(), stop_seconds=3, failed_seconds=7
        )

    assert (ran, program.said, ends) == ("a program", ["stopped in order"], [3])
    assert [line["event"] for line in lines] == ["stopping"]


async def test_a_program_of_which_a_vital_part_fails_stops_in_its_own_time(ends: list[float]) -> None:
    program, watched = Program(), Supervisor()

    await run_until_stopped(
        program.running(), lambda _: watched.failed("part", ValueError()), watched, structlog.get_logger(),
        stop_seconds=3, failed_seconds=7,
    )  # fmt: skip

    assert (program.said, ends) == (["stopped in order"], [7])


async def test_a_start_is_undone_when_the_stop_comes_first(ends: list[float]) -> None:
    program, announced = Program(starts=False), list[str]()
    asyncio.get_running_loop().call_soon(sigterm)

    with capture_logs() as lines:
        ran = await run_until_stopped(
            program.running(), announced.append, Supervisor(), structlog.get_logger(), stop_seconds=3
        )

    assert (ran, program.said, announced, ends) == (None, ["start undone"], [], [3])
    assert [(line["event"], line["reason"]) for line in lines] == [("stopped", "asked to stop before it was ready")]
