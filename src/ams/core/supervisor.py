"""Supervision: threads and tasks that a process cannot do without, and what follows when one of them ends.

One policy for all of them. The end is logged with its traceback, what waits for the part is failed, the process is not
ready from then on and says why, and the program ends it: a fresh start is the one repair that is known to work.
Work that comes in rounds survives an exception of one round by itself, and reports it here so that it is counted.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import structlog

FAULT = 70
"""How a process ends of which a vital part failed, or which hung at its stop: a fault of the program itself."""

logger = structlog.get_logger("ams")

T = TypeVar("T")
GiveUp = Callable[[], None]
"""Fails what waits for a part that has ended; called on the event loop, once."""


def _nothing() -> None:
    return None


class PartFailed(Exception):
    """A part that the process cannot do without has ended; the text says which."""


class Supervisor:
    """Watches the vital parts of one process. Made and used on its event loop."""

    def __init__(self) -> None:
        self.failure: str | None = None
        """Which vital part failed first, and the kind of its exception; never the exception's own text."""
        self.survived: Counter[str] = Counter()
        """Rounds of background work that ended with an unexpected exception, by work."""
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
    None when it was to stop before it was ready; then the start has been undone.
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
    """End this process in so many seconds, even if a thread hangs: a stop that hangs would wait for a `kill -9`.

    Nothing is lost by it that was answered: what is promised is on the disk before the answer. Where every thread
    stands is written to standard error.
    """

    def end() -> None:
        time.sleep(seconds)
        logger.critical("stop.forced", seconds=seconds)
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback()
        os._exit(FAULT)

    threading.Thread(target=end, name="ams-end", daemon=True).start()
