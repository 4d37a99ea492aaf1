"""Lanes and loops: connections that follow their scripts, in a closed loop or an open one.

- Closed: each connection sends its next request when the answer of the last one has come.
- Open: requests are due at fixed times, independent of the service. One that finds every connection busy waits for the
  first free one, and its latency is counted from when it was due. Due times are looked at every millisecond, which
  adds up to one millisecond to a latency.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

from bench.callers import Script, Unexpected
from bench.connection import Address, Connection, Response, connect
from bench.tally import Tally

TICK_SECONDS = 0.001
RECONNECT_SECONDS = 0.1


class ScriptedConnection:
    """One connection following its script."""

    def __init__(self, address: Address, script: Script, tally: Tally, loop: "Loop") -> None:
        self._address = address
        self._script = script
        self._tally = tally
        self._loop = loop
        self._step = next(script)
        self._due = 0.0
        self._prepared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = Connection()

    async def prepare(self) -> None:
        """Connect, and make the steps that come before the first counted one."""
        await self._connect()
        if self._step.counted:
            self._prepared.set_result(None)
        else:
            self._send()
        await self._prepared

    @property
    def is_prepared(self) -> bool:
        """Return whether its preparing steps are done."""
        return self._prepared.done()

    def start(self, due: float) -> None:
        """Send the next request, which was due at this time."""
        self._due = due
        self._send()

    async def reconnect(self) -> None:
        """Take a new connection for the lost one, after a moment, and go on."""
        await asyncio.sleep(RECONNECT_SECONDS)
        try:
            await self._connect()
        except OSError as error:
            self._loop.fail(error)
        else:
            self._loop.free(self, time.perf_counter())

    def close(self) -> None:
        """End the connection; a request on its way is forgotten."""
        self._connection.close()

    async def _connect(self) -> None:
        self._connection = await connect(self._address)
        self._connection.answered = self._answered

    def _send(self) -> None:
        self._connection.keep_bodies = self._step.reads_body
        self._connection.send(self._step.request)

    def _answered(self, answer: Response) -> None:
        now = time.perf_counter()
        self._tally.add(self._step, answer, now - self._due)
        try:
            self._step = self._script.send(answer)
        except Unexpected as error:
            self._loop.fail(error)
            return
        if self._connection.closed:
            self._loop.lost(self)
        elif not self._step.counted:
            self._send()
        elif self._prepared.done():
            self._loop.free(self, now)
        else:
            self._prepared.set_result(None)


class Loop:
    """A closed loop: each connection sends again after its response."""

    def __init__(self) -> None:
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def prepare(self, lanes: list[ScriptedConnection]) -> None:
        """Connect all lanes and make what comes before their first counted step."""
        preparing = asyncio.gather(*(lane.prepare() for lane in lanes))
        first: list[asyncio.Future[Any]] = [preparing, self._failure]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            preparing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await preparing  # else asyncio would print it behind the reason
            await self._failure
        await preparing

    def begin(self, lanes: list[ScriptedConnection]) -> None:
        """Start all lanes."""
        now = time.perf_counter()
        for lane in lanes:
            lane.start(now)

    def free(self, lane: ScriptedConnection, now: float) -> None:
        """Give a lane that was answered its next request."""
        lane.start(now)

    def lost(self, lane: ScriptedConnection) -> None:
        """Let a lane whose connection ended connect again; while preparing that is a failure."""
        if not lane.is_prepared:
            self.fail(Unexpected("a connection ended before the measurement began"))
            return
        task = asyncio.ensure_future(lane.reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    def fail(self, error: Exception) -> None:
        """End the load: what it measures is worth nothing."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def last(self, seconds: float) -> None:
        """Let the load go on; raises `Unexpected` if it failed."""
        done, _ = await asyncio.wait([self._failure], timeout=seconds)
        for each in done:
            each.result()

    def unsent(self) -> int:
        """Return how many requests are due and not sent."""
        return 0

    def end(self) -> None:
        """Start nothing more."""
        self._failure.cancel()
        for task in self._reconnecting:
            task.cancel()


class OpenLoop(Loop):
    """Requests are due at fixed times; free lanes take them in order."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._gap = 1 / rate
        self._next_due = 0.0
        self._idle: deque[ScriptedConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, lanes: list[ScriptedConnection]) -> None:
        """Begin to look at due times."""
        self._idle.extend(lanes)
        self._next_due = time.perf_counter()
        self._tick()

    def free(self, lane: ScriptedConnection, now: float) -> None:
        """Give a free lane the request that is due longest, or let it rest."""
        if self._next_due <= now:
            self._start(lane)
        else:
            self._idle.append(lane)

    def unsent(self) -> int:
        """Return how many requests are due and not sent."""
        return max(0, int((time.perf_counter() - self._next_due) / self._gap))

    def end(self) -> None:
        """Start nothing more."""
        super().end()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = time.perf_counter()
        while self._idle and self._next_due <= now:
            self._start(self._idle.popleft())
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _start(self, lane: ScriptedConnection) -> None:
        due = self._next_due
        self._next_due += self._gap
        lane.start(due)
