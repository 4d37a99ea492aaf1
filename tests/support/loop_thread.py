"""An event loop in its own thread, for services that tests call from other threads."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import uvloop

from tests.support.waiting import PATIENCE_SECONDS

T = TypeVar("T")


@contextlib.contextmanager
def on_loop_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[tuple[T, asyncio.AbstractEventLoop]]:
    """Keep an async context open until the block ends; yields its value and its loop.

    Exceptions of its start and its end are raised here.
    """
    started: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with opened as found:
            started.set_result((found, asyncio.get_running_loop(), stop))
            await stop.wait()

    def run_loop() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(serve())
            except BaseException as error:
                (ended if started.done() else started).set_exception(error)
            else:
                ended.set_result(None)

    # A daemon: an event loop with a connection left open by a failed stop never closes.
    thread = threading.Thread(target=run_loop, daemon=True)
    thread.start()
    found, loop, stop = started.result(PATIENCE_SECONDS)
    try:
        yield found, loop
    finally:
        loop.call_soon_threadsafe(stop.set)
        ended.result(PATIENCE_SECONDS)
        thread.join(PATIENCE_SECONDS)
