"""Supervised tasks of a process, background rounds, pauses after failures, and log lines."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core import supervisor
from ams.core.backoff import Backoff, Pauses
from ams.core.errors import Unavailable, Unusable
from ams.core.supervisor import FAULT, FairQueue, PartFailed, Supervisor, Ticker, run_until_stopped
from ams.core.telemetry import LogStream
from tests.support.waiting import some_turns, wait_until_async


class PlantedError(Exception):
    """An unexpected exception."""


@pytest.fixture
def announcements() -> list[str]:
    return []


@pytest.mark.parametrize("error", [PlantedError, SystemExit])
async def test_a_failed_thread_is_logged_and_fails_waiters(announcements: list[str], error: type[BaseException]):
    watched = Supervisor()

    def work() -> None:
        raise error

    with capture_logs() as lines:
        watched.thread("disk", "disk", work, lambda: announcements.append("failed")).start()
        await watched.until(asyncio.Event())

    assert announcements == ["failed"]
    assert watched.failure == f"disk failed ({error.__name__})"
    assert [(each["event"], each["part"], each["log_level"]) for each in lines] == [("part.failed", "disk", "critical")]
    assert isinstance(lines[0]["exc_info"], error)
    with pytest.raises(PartFailed, match=rf"disk failed \({error.__name__}\)"):
        watched.check()


async def test_a_thread_may_return_and_a_task_not_unless_it_may_end_or_is_cancelled(announcements: list[str]) -> None:
    watched = Supervisor()

    async def work() -> None:
        return

    thread = watched.thread("disk", "disk", lambda: None, lambda: announcements.append("failed"))
    thread.start()
    await asyncio.to_thread(thread.join)
    one, other = watched.task("server", work(), may_end=True), watched.task("beats", asyncio.sleep(60))
    other.cancel()
    await asyncio.wait({one, other})
    await asyncio.sleep(0)
    watched.check()
    assert announcements == []

    watched.task("beats", work())
    await watched.until(asyncio.Event())
    assert watched.failure == "beats failed (PartFailed)"


async def test_a_failing_way_to_give_up_does_not_keep_the_process_from_ending() -> None:
    watched = Supervisor()

    def give_up() -> None:
        raise KeyError

    with capture_logs() as lines:
        watched.report_failure("disk", PlantedError("with what must not be shown"), give_up)
        watched.report_failure("beats", KeyError("x"))
    await watched.until(asyncio.Event())

    assert watched.failure == "disk failed (PlantedError)"  # the first one

    assert [each["event"] for each in lines] == ["part.failed", "part.not_given_up", "part.failed"]


def test_rounds_that_fail_are_counted_and_logged() -> None:
    watched = Supervisor()

    with capture_logs() as lines:
        for _ in range(2):
            try:
                raise PlantedError
            except PlantedError:
                watched.log_failure("counting")

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
def end_delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    found: list[float] = []
    monkeypatch.setattr(supervisor, "end_within", found.append)
    yield found
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def sigterm(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def run_program(program: Program, announce: Callable[[str], None], watched: Supervisor) -> str | None:
    return await run_until_stopped(
        program.running(), announce, watched, structlog.get_logger(), stop_seconds=3, failed_seconds=7
    )


async def test_a_program_that_is_told_to_stop_stops_in_order(end_delays: list[float]) -> None:
    program = Program()
    with capture_logs() as lines:
        assert await run_program(program, sigterm, Supervisor()) == "a program"

    assert (program.said, end_delays) == (["stopped in order"], [3])
    assert [line["event"] for line in lines] == ["stopping"]


async def test_a_program_of_which_a_vital_part_fails_stops_in_its_own_time(end_delays: list[float]) -> None:
    program, watched = Program(), Supervisor()

    await run_program(program, lambda _: watched.report_failure("part", ValueError()), watched)

    assert (program.said, end_delays) == (["stopped in order"], [7])


async def test_a_start_is_undone_when_the_stop_comes_first(end_delays: list[float]) -> None:
    program, announced = Program(starts=False), list[str]()
    asyncio.get_running_loop().call_soon(sigterm)

    with capture_logs() as lines:
        assert await run_program(program, announced.append, Supervisor()) is None

    assert (program.said, announced, end_delays) == (["start undone"], [], [3])
    assert [(line["event"], line["reason"]) for line in lines] == [("stopped", "asked to stop before it was ready")]


LONG = 3600.0


class Site:
    def __init__(self) -> None:
        self.supervisor = Supervisor()
        self.put_off: list[str] = []
        self.begun = 0
        self.ended = 0
        self.errors: list[Exception] = []  # how the next rounds end; the others end well
        self.open = asyncio.Event()
        self.open.set()
        """Rounds hang until this is set."""

    async def work(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.open.wait()
        self.ended += 1

    def rounds(self, seconds: float = 0.0, **options: Any) -> Ticker:
        return Ticker("work", seconds, self.work, lambda reason: self.put_off.append(reason), **options)

    async def start_ticker(self, seconds: float = 0.0, *, soon: bool = False, **options: Any) -> Ticker:
        rounds = self.rounds(seconds, **options)
        if soon:
            rounds.soon()
        await rounds.start(self.supervisor)
        return rounds


@pytest.fixture
def site() -> Site:
    return Site()


async def test_one_round_comes_after_the_other_until_the_close(site: Site) -> None:
    rounds = await site.start_ticker()
    await wait_until_async(lambda: site.ended > 2)
    await rounds.close()

    done = site.begun
    await some_turns()
    assert site.begun == done
    assert site.supervisor.failure is None


async def test_it_begins_with_the_pause_unless_a_round_is_to_come_soon(site: Site) -> None:
    rounds = await site.start_ticker(LONG)
    await some_turns()
    assert site.begun == 0
    rounds.soon()
    await wait_until_async(lambda: site.ended == 1)
    await rounds.close()

    again = await site.start_ticker(LONG, soon=True)
    await wait_until_async(lambda: site.ended == 2)
    await again.close()


async def test_what_is_asked_for_during_a_round_comes_after_it(site: Site) -> None:
    site.open.clear()
    rounds = await site.start_ticker(LONG, soon=True)
    await wait_until_async(lambda: site.begun == 1)
    rounds.soon()
    site.open.set()
    await wait_until_async(lambda: site.ended == 2)
    await rounds.close()


@pytest.mark.parametrize(
    ("errors", "says", "put_off", "survived"),
    [
        ([Unavailable("it is away")], True, ["it is away"], {}), ([KeyError("planted")] * 2, True, [], {"work": 2}),
        ([Unavailable()], False, [], {"work": 1}),
    ],
    ids=[
        "an expected error puts a round off", "a defect is counted", "so is any error where nothing can be said of it",
    ],
)  # fmt: skip
async def test_after_an_error_the_next_round_is_tried(
    site: Site, errors: list[Exception], says: bool, put_off: list[str], survived: dict[str, int]
) -> None:
    site.errors = [*errors]
    rounds = site.rounds() if says else Ticker("work", 0.0, site.work)
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended > 0)
    await rounds.close()

    assert (site.put_off, site.supervisor.survived, site.supervisor.failure) == (put_off, survived, None)


@pytest.mark.parametrize("error", [Unavailable(), KeyError("planted")])
async def test_after_a_round_that_failed_the_next_one_may_come_sooner(site: Site, error: Exception) -> None:
    site.errors = [error]
    rounds = await site.start_ticker(LONG, retry_seconds=0.0, soon=True)
    await wait_until_async(lambda: site.ended == 1)
    await some_turns()
    await rounds.close()

    assert site.begun == 2


async def test_a_round_may_change_the_pause(site: Site) -> None:
    async def work() -> None:
        rounds.seconds = 0.0
        await site.work()

    rounds = Ticker("work", LONG, work)
    rounds.soon()
    await rounds.start(site.supervisor)
    await wait_until_async(lambda: site.ended > 1)
    await rounds.close()


async def test_the_close_cancels_a_round_under_way(site: Site) -> None:
    site.open.clear()
    rounds = await site.start_ticker()
    await wait_until_async(lambda: site.begun == 1)
    assert not rounds.is_over
    await rounds.close()

    assert (site.begun, site.ended) == (1, 0)
    assert rounds.is_over
    assert site.supervisor.failure is None


async def test_with_a_last_round_the_close_lets_one_under_way_end_and_adds_it(site: Site) -> None:
    site.open.clear()
    rounds = await site.start_ticker(has_last=True)
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
    await site.rounds(LONG, has_last=True).close()
    assert site.begun == 1

    began = await site.start_ticker(LONG, has_last=True)
    await began.close()
    assert site.ended == 1


async def test_a_cancel_ends_it_at_once(site: Site) -> None:
    rounds = await site.start_ticker(LONG)
    rounds.cancel()
    rounds.soon()
    await rounds.close()

    assert site.begun == 0


async def test_what_is_more_than_an_exception_is_the_end_of_the_part(site: Site) -> None:
    class Planted(BaseException):
        pass

    async def work() -> None:
        raise Planted

    rounds = Ticker("work", 0.0, work)
    await rounds.start(site.supervisor)
    await site.supervisor.until(asyncio.Event())
    await rounds.close()

    assert site.supervisor.failure == "work failed (Planted)"


async def tick_forever(ticks: list[int]) -> None:
    while True:
        ticks[0] += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("at_once", [True, False])
async def test_waiters_resume_in_order_one_in_so_many_iterations_of_the_loop(every: int, at_once: bool) -> None:
    turns, ticks, seen = FairQueue(every), [0], []

    async def go_on(number: int) -> None:
        await turns()
        seen.append((number, ticks[0]))

    ticker = asyncio.create_task(tick_forever(ticks))
    if at_once:
        await asyncio.gather(*[go_on(number) for number in range(5)])
    else:
        for number in range(5):
            await go_on(number)
    ticker.cancel()

    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    assert all(after - before >= every for (_, before), (_, after) in pairwise(seen))


async def test_nobody_waits_for_all_waiters_of_another() -> None:
    turns, seen = FairQueue(), list[str]()

    async def go_on(who: str) -> None:
        await turns(who)
        seen.append(who)

    await asyncio.gather(*[go_on(who) for who in "AAAAABBC"])

    assert "".join(seen) == "ABCABAAA"


async def test_who_is_cancelled_takes_no_turn_and_holds_up_nobody() -> None:
    turns = FairQueue()
    first, second, third = (asyncio.create_task(turns()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()

    await third
    await turns()

    assert first.cancelled()
    assert second.cancelled()


def test_pauses_grow_by_the_factor_up_to_the_longest_until_a_success() -> None:
    pauses = Pauses(Backoff(0.1, 1.0, factor=3.0), lambda: 0.5)
    for _ in range(2):
        assert [pauses.next() for _ in range(5)] == pytest.approx([0.1, 0.3, 0.9, 1.0, 1.0])
        pauses.reset()


def test_full_jitter_leaves_at_least_the_least() -> None:
    """Push contract 15, P2: one to sixty seconds."""
    full = Backoff(1.0, 60.0, jitter=(0.0, 1.0), least=1.0)

    assert [full.pause(0, chance) for chance in (0.0, 1.0)] == [1.0, 1.0]
    assert [full.pause(3, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 4.5, 8.0]
    assert full.pause(10**6, 1.0) == 60.0
    assert Backoff(0.1, 60.0, jitter=(0.0, 1.0), least=1.0).pause(0, 0.3) == pytest.approx(0.1)


@given(
    first=st.floats(0.001, 10), growth=st.floats(1, 1000), factor=st.floats(1, 5), low=st.floats(0, 1),
    spread=st.floats(0, 1), failures=st.integers(0, 10**9), seed=st.integers(),
)  # fmt: skip
def test_pauses_stay_within_their_bounds(
    first: float, growth: float, factor: float, low: float, spread: float, failures: int, seed: int
) -> None:
    backoff = Backoff(first, first * growth, factor, (low, low + spread))

    pause = backoff.pause(failures, random.Random(seed).random())

    nominal = backoff.nominal(failures)
    assert first <= nominal <= first * growth
    assert nominal * low * 0.999 <= pause <= nominal * (low + spread) * 1.001
    assert backoff.nominal(failures) <= backoff.nominal(failures + 1)


def test_a_line_goes_to_the_syslog_as_this_program_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        with LogStream("syslog", address) as syslog, LogStream("console,syslog", address) as both:
            syslog.write("10% of it\n")
            both.write("a line\n")
            both.flush()
        said = [listener.recv(1000) for _ in range(2)]

    assert said == [b"<30>ams: 10% of it\x00", b"<30>ams: a line\x00"]
    assert capsys.readouterr().err == "a line\n"


def test_without_a_syslog_the_start_stops_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="log_facilities: no syslog at") as stopped:
        LogStream("syslog", str(tmp_path / "none"))
    assert "\n" not in stopped.value.message
