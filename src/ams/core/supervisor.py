"""Supervision of threads and tasks that a process cannot do without, and background work in rounds.

When a vital part ends, its traceback is logged, what waits for it is failed, the process is not ready and says why, and
the program ends it: a fresh start is the one repair that is known to work. In rounds, an expected error puts a round
off, a defect is counted and survived, and the next round is tried.
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

FAULT = 70  # exit status when a vital part failed or the stop hung: a fault of the program itself

logger = structlog.get_logger("ams")

T = TypeVar("T")
GiveUp = Callable[[], None]  # fails what waits for a part that has ended; called on the event loop, once


def _nothing() -> None:
    return None


class PartFailed(Exception):
    """A part that the process cannot do without has ended; the text says which."""


class Supervisor:
    """Watches the vital parts of one process. Made and used on its event loop."""

    def __init__(self) -> None:
        self.failure: str | None = None  # the first vital part that failed, and the kind of its exception
        self.survived: Counter[str] = Counter()  # rounds of background work that ended with a defect, by work
        self._failed = asyncio.Event()

    def thread(self, part: str, name: str, work: Callable[[], None], give_up: GiveUp = _nothing) -> threading.Thread:
        """Return a thread for `work`, to be started. It may return when it was asked to; an exception is a failure."""
        loop = asyncio.get_running_loop()

        def watched() -> None:
            try:
                work()
            except BaseException as error:  # any exception ends the thread
                # Without the loop the process is about to end, and nothing waits any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.failed, part, error, give_up)

        return threading.Thread(target=watched, name=name, daemon=True)

    def task(
        self, part: str, work: Coroutine[Any, Any, None], give_up: GiveUp = _nothing, *, may_end: bool = False
    ) -> "asyncio.Task[None]":
        """Run `work` as a task that only being cancelled may end, or, if it `may_end`, also its own return."""
        task = asyncio.create_task(work, name=f"ams {part}")

        def ended(task: "asyncio.Task[None]") -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                self.failed(part, error, give_up)
            elif not may_end:
                self.failed(part, PartFailed(f"{part} returned"), give_up)

        task.add_done_callback(ended)
        return task

    def failed(self, part: str, error: BaseException, give_up: GiveUp = _nothing) -> None:
        """Do what follows when a vital part ended. On the event loop."""
        logger.critical("part.failed", part=part, kind=type(error).__name__, exc_info=error)
        if self.failure is None:
            self.failure = f"{part} failed ({type(error).__name__})"
        try:
            give_up()
        except Exception:  # the process ends all the same
            logger.exception("part.not_given_up", part=part)
        self._failed.set()

    def survive(self, work: str) -> None:
        """Count and log the exception at hand: a round of background work failed, and the next one will be tried."""
        self.survived[work] += 1
        logger.exception("background.failed", work=work)

    async def until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set or a vital part has failed."""
        waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def check(self) -> None:
        """Raise `PartFailed` if a vital part failed."""
        if self.failure is not None:
            raise PartFailed(f"{self.failure}; the line part.failed of its log says where")


async def run_until_stopped(
    start: AbstractAsyncContextManager[T],
    announce: Callable[[T], None],
    supervisor: Supervisor,
    log: Any,
    *,
    stop_seconds: float,
    failed_seconds: float | None = None,
) -> T | None:
    """Run a program until SIGTERM or SIGINT, or until a vital part of it failed; return what ran.

    `announce` is called when it has started. Its stop may take `stop_seconds`, or `failed_seconds` after a failure.
    None when it was stopped before it was ready; then the start has been undone.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        end_within(stop_seconds)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    async with contextlib.AsyncExitStack() as stack:
        run = await _unless(stop, stack.enter_async_context(start))
        if run is None:
            log.info("stopped", reason="asked to stop before it was ready")
            return None
        announce(run)
        await supervisor.until(stop)
        if supervisor.failure:
            end_within(stop_seconds if failed_seconds is None else failed_seconds)
        log.info("stopping")
    return run


async def _unless(stop: asyncio.Event, start: Coroutine[Any, Any, T]) -> T | None:
    """Return what `start` makes; None when the stop came first, and the start has been undone."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return None
    return await starting


def end_within(seconds: float) -> None:
    """End this process in so many seconds, even if a thread hangs; write where every thread stands to standard error.

    Nothing is lost that was answered: what is promised is on the disk before the answer.
    """

    def end() -> None:
        time.sleep(seconds)
        logger.critical("stop.forced", seconds=seconds)
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback()
        os._exit(FAULT)

    threading.Thread(target=end, name="ams-end", daemon=True).start()


class Rounds:
    """One piece of work, round after round, from `start` to `close`."""

    def __init__(
        self,
        part: str,
        seconds: float,
        work: Callable[[], Awaitable[object]],
        put_off: Callable[..., object] | None = None,
        *,
        retry_seconds: float | None = None,
        has_last: bool = False,
    ) -> None:
        """`work` is one round of the `part`; `put_off` is called with the `reason` of one that an `AmsError` ended.

        Without `put_off` that is a defect too. After a round that failed the next one comes after `retry_seconds`, if
        they are given. With `has_last` the close lets a round under way end and adds a last one; without, it cancels.
        """
        self.seconds = seconds  # from the end of a round to the next one; a round may change it
        self._part, self._work, self._put_off, self._retry_seconds = part, work, put_off, retry_seconds
        self._has_last = has_last
        self._soon = asyncio.Event()
        self._closing = False
        self._supervisor = Supervisor()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Return whether no round comes any more."""
        return self._closing

    async def start(self, supervisor: Supervisor) -> None:
        """Begin with the pause, or with a round if it is to come soon."""
        self._supervisor = supervisor
        self._task = supervisor.task(self._part, self._run(), may_end=self._has_last)

    def soon(self) -> None:
        """Have the next round begin at once, or after the one under way."""
        self._soon.set()

    def cancel(self) -> None:
        """End the work at once, in the middle of a round."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End the work, and return when it has ended."""
        if not self._has_last:
            self.cancel()
        self._closing = True
        self._soon.set()
        if self._task is not None:
            await asyncio.wait((self._task,))
        if self._has_last:
            await self._survive()

    async def _run(self) -> None:
        pause = self.seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
            if self._closing:
                return
            self._soon.clear()
            is_done = await self._survive()
            pause = self.seconds if is_done or self._retry_seconds is None else self._retry_seconds

    async def _survive(self) -> bool:
        try:
            await self._work()
        except Exception as error:
            if self._put_off is not None and isinstance(error, AmsError):
                self._put_off(reason=error.message)
            else:  # a defect must not end the work for good
                self._supervisor.survive(self._part)
            return False
        return True


class Turns:
    """Resumes one waiter per iteration of the event loop; with `every`, one in so many iterations.

    All other work that is due by then is done between two of them. Those who wait take turns, each with its waiters in
    their order, so nobody waits for all waiters of another.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._passed = every - 1  # turns since one went on; no more are counted than it takes for the next
        self._is_due = False  # whether `_next` will be called
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def __call__(self, who: Hashable = None) -> None:
        """Return in a turn of the event loop in which nobody else does; not in this one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        self._passed += 1
        if self._passed >= self._every:
            turn = self._take_first()
            if turn is not None:
                turn.set_result(None)
                self._passed = 0
        self._is_due = bool(self._waiting) or self._passed < self._every - 1
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next)

    def _take_first(self) -> asyncio.Future[None] | None:
        while self._waiting:
            who, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if turns:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            if not turn.done():  # its caller was not cancelled
                return turn
        return None
