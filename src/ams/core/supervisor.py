"""Supervision of vital threads and tasks, and periodic background work (`docs/explanation/architecture.md`).

When a vital part ends, the program ends too: a restart is the only repair known to work.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import structlog

from ams.core.errors import AmsError

FAULT = 70  # exit status (EX_SOFTWARE) when a vital part failed or the stop hung
logger = structlog.get_logger("ams")

T = TypeVar("T")
GiveUp = Callable[[], None]  # fails the waiters of a part that has ended; called once, on the event loop


async def wait_for_first(*works: Awaitable[Any]) -> list[Any]:
    """Wait for the first of several, and cancel the others; return their results, None for those cancelled."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [each.result() if each.done() else None for each in tasks]
    finally:
        for each in tasks:
            each.cancel()


class PartFailed(Exception):
    """A vital part of the process has ended; the text says which."""


class Supervisor:
    """Watches the vital parts of a process. Created and used on its event loop."""

    def __init__(self) -> None:
        self.failure: str | None = None  # first vital part that failed, and its exception type
        self.survived: Counter[str] = Counter()  # background rounds with an unexpected exception, by work
        self._failed = asyncio.Event()

    def thread(
        self, part: str, name: str, work: Callable[[], None], give_up: GiveUp = lambda: None
    ) -> threading.Thread:
        """Return a thread for `work`, not started. `work` may return; an exception is a failure of the part."""
        loop = asyncio.get_running_loop()

        def run_watched() -> None:
            try:
                work()
            except BaseException as error:  # any exception ends the thread
                # RuntimeError: the loop is closed, so nothing waits any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.report_failure, part, error, give_up)

        return threading.Thread(target=run_watched, name=name, daemon=True)

    def task(
        self, part: str, work: Coroutine[Any, Any, None], give_up: GiveUp = lambda: None, *, may_end: bool = False
    ) -> "asyncio.Task[None]":
        """Run `work` as a task that ends only when cancelled; with `may_end` it may also return."""
        task = asyncio.create_task(work, name=f"ams {part}")

        def check_end(task: "asyncio.Task[None]") -> None:
            if task.cancelled():
                return
            if (error := task.exception()) is not None:
                self.report_failure(part, error, give_up)
            elif not may_end:
                self.report_failure(part, PartFailed(f"{part} returned"), give_up)

        task.add_done_callback(check_end)
        return task

    def report_failure(self, part: str, error: BaseException, give_up: GiveUp = lambda: None) -> None:
        """Report that a vital part has failed. Runs on the event loop."""
        logger.critical("part.failed", part=part, kind=type(error).__name__, exc_info=error)
        if self.failure is None:
            self.failure = f"{part} failed ({type(error).__name__})"
        try:
            give_up()
        except Exception:  # the process ends all the same
            logger.exception("part.not_given_up", part=part)
        self._failed.set()

    def log_failure(self, work: str) -> None:
        """Count and log the current exception of a background round."""
        self.survived[work] += 1
        logger.exception("background.failed", work=work)

    async def until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set or a vital part has failed."""
        await wait_for_first(stop.wait(), self._failed.wait())

    def check(self) -> None:
        """Raise `PartFailed` if a vital part failed."""
        if self.failure is not None:
            raise PartFailed(f"{self.failure}; the line part.failed of its log says where")


async def run_until_stopped(
    start: AbstractAsyncContextManager[T], announce: Callable[[T], None], supervisor: Supervisor, log: Any, *,
    stop_seconds: float, failed_seconds: float | None = None,
) -> T | None:  # fmt: skip
    """Run a program until SIGTERM, SIGINT or the failure of a vital part.

    `announce` is called after the start. The stop may take `stop_seconds`, or `failed_seconds` after a failure.

    Returns:
        The running program that `start` yielded; None if it was stopped before it was ready. The start is then undone.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        end_within(stop_seconds)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    async with contextlib.AsyncExitStack() as stack:
        if (run := await _start_unless_stopped(stop, stack.enter_async_context(start))) is None:
            log.info("stopped", reason="asked to stop before it was ready")
            return None
        announce(run)
        await supervisor.until(stop)
        if supervisor.failure:
            end_within(stop_seconds if failed_seconds is None else failed_seconds)
        log.info("stopping")
    return run


async def _start_unless_stopped(stop: asyncio.Event, start: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `start`; None if the stop came first, after undoing the start."""
    starting = asyncio.create_task(start)
    run: T | None = (await wait_for_first(starting, stop.wait()))[0]
    await asyncio.wait({starting})
    return run


def end_within(seconds: float) -> None:
    """Exit after `seconds`, even if a thread hangs, with the stack of each thread on standard error.

    Answered requests are not lost: data is on disk before the answer.
    """

    def end() -> None:
        time.sleep(seconds)
        logger.critical("stop.forced", seconds=seconds)
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback()
        os._exit(FAULT)

    threading.Thread(target=end, name="ams-end", daemon=True).start()


class Ticker:
    """Periodic background work from `start` to `close`."""

    def __init__(
        self, part: str, seconds: float, work: Callable[[], Awaitable[object]],
        put_off: Callable[..., object] | None = None, *, retry_seconds: float | None = None, has_last: bool = False,
    ) -> None:  # fmt: skip
        """Make periodic work.

        Args:
            part: its name in logs and metrics.
            seconds: pause between rounds.
            work: one round.
            put_off: called with the `reason` after an `AmsError`; None: such an error is a defect.
            retry_seconds: pause after a failed round; None: `seconds`.
            has_last: `close` waits for the current round and runs a last one, instead of cancelling.
        """
        self.seconds = seconds  # from the end of a round to the next; a round may change it
        self._part, self._work, self._put_off, self._retry_seconds = part, work, put_off, retry_seconds
        self._has_last = has_last
        self._soon = asyncio.Event()
        self.is_over = False  # True: closed
        self._supervisor = Supervisor()
        self._task: asyncio.Task[None] | None = None

    async def start(self, supervisor: Supervisor) -> None:
        """Start with a pause, or with a round after `soon`."""
        self._supervisor = supervisor
        self._task = supervisor.task(self._part, self._run_rounds(), may_end=self._has_last)

    def soon(self) -> None:
        """Start the next round at once, or right after the current one."""
        self._soon.set()

    def cancel(self) -> None:
        """Stop the work at once, also within a round."""
        self.is_over = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop the work and wait until it has ended."""
        if not self._has_last:
            self.cancel()
        self.is_over = True
        self._soon.set()
        if self._task is not None:
            await asyncio.wait((self._task,))
        if self._has_last:
            await self._run_round()

    async def _run_rounds(self) -> None:
        pause = self.seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
            if self.is_over:
                return
            self._soon.clear()
            is_done = await self._run_round()
            pause = self.seconds if is_done or self._retry_seconds is None else self._retry_seconds

    async def _run_round(self) -> bool:
        try:
            await self._work()
        except Exception as error:
            if self._put_off is not None and isinstance(error, AmsError):
                self._put_off(reason=error.message)
            else:  # a defect must not stop the work
                self._supervisor.log_failure(self._part)
            return False
        return True


class FairQueue:
    """Fair queue: resumes one waiter per event loop iteration, or per `every` iterations.

    Other due work runs between two waiters. Keys (`who`) take turns, FIFO within each key, so no key waits for all
    waiters of another.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._passed = every - 1  # iterations since the last resume, at most `every`
        self._is_due = False  # whether `_next` will be called
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def __call__(self, who: Hashable = None) -> None:
        """Yield to the event loop; at most one waiter resumes per loop iteration."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        self._passed += 1
        while self._waiting and self._passed >= self._every:
            turn = pop_in_turn(self._waiting)
            if not turn.done():  # its caller was not cancelled
                turn.set_result(None)
                self._passed = 0
        self._is_due = bool(self._waiting) or self._passed < self._every - 1
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next)


def pop_in_turn(waiting: OrderedDict[Hashable, deque[T]]) -> T:
    """Remove and return the next item: keys take turns, FIFO within each key. There is one at least."""
    who, items = next(iter(waiting.items()))
    item = items.popleft()
    if items:
        waiting.move_to_end(who)
    else:
        del waiting[who]
    return item
