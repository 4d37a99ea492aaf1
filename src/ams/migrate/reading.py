"""Reading long topics in processes of their own: that takes as long as storing, which goes on meanwhile."""

import asyncio
import multiprocessing
import os
import signal
import threading
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import aclosing
from typing import NamedTuple

from ams.core.errors import Unavailable
from ams.core.messages import Stored
from ams.core.runs import Columns

PROCESSES = 2
LONG = 10_000
"""Messages: what is shorter is read sooner than it is given to a process."""
MESSAGES = 20_000
"""In a part, which one process reads at a time."""
BYTES = 32 * 2**20
"""Of a part's messages, after which it ends early."""

Batches = AsyncGenerator[Sequence[Stored], None]


class Part(NamedTuple):
    """Messages as one process gives them to another."""

    messages: Columns
    following: int
    """The offset behind it."""


class Readers:
    """Processes that each call `read(START, END)`, a function of a module with its arguments, for part after part."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), _begin)

    async def batches(self, read: Callable[[int, int], Part], start: int, end: int, earliest: int) -> Batches:
        """Yield the messages from `start` up to `end`, in order, none with a time before `earliest`."""
        loop = asyncio.get_running_loop()
        bounds = deque((first, min(first + MESSAGES, end)) for first in range(start, end, MESSAGES))
        under_way: deque[tuple[int, asyncio.Future[Part]]] = deque()

        def begin(first: int, last: int) -> asyncio.Future[Part]:
            return loop.run_in_executor(self._pool, read, first, last)

        try:
            while bounds or under_way:
                while bounds and len(under_way) <= PROCESSES:
                    first, last = bounds.popleft()
                    under_way.append((last, begin(first, last)))
                last, future = under_way.popleft()
                part = await future
                while True:
                    batch = _raised(part.messages, earliest)
                    if batch:
                        earliest = batch.times[-1]
                        yield batch
                    if part.following >= last:
                        break
                    part = await begin(part.following, last)
        except BrokenProcessPool:
            raise Unavailable("a process that reads messages ended") from None
        finally:
            for _, future in under_way:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Let a process end with the one that started it, however that ends, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


async def part_of(batches: Batches, end: int) -> Part:
    """Return the first of the messages up to `end`, as many as a part takes."""
    messages, size = Columns(array("q"), array("q"), []), 0
    async with aclosing(batches):
        async for batch in batches:
            messages.extend(Columns.of(batch))
            size += sum(len(each.fragment) for each in batch)
            if size >= BYTES:
                return Part(messages, messages.offsets[-1] + 1)
    return Part(messages, end)


def _raised(messages: Columns, earliest: int) -> Columns:
    """Return messages of which none has a time before `earliest`: those of the part before may be later."""
    times = messages.times
    for number, time in enumerate(times):
        if time >= earliest:
            break
        times[number] = earliest
    return messages
