"""The load generator: `python -m bench.load` reads a `Job` on stdin, runs it, and writes an `Outcome` to stdout.

It is a separate process, so that its work and memory do not count for the bench or the service.

- Closed loop: each connection sends its next request when the answer of the last one has come.
- Open loop: requests are due at fixed times, independent of the service. One that finds every connection busy waits for
  the first free one, and its latency is counted from when it was due. Due times are looked at every millisecond, which
  adds up to one millisecond to a latency.
"""

import asyncio
import contextlib
import gc
import sys
import time
from array import array
from collections import Counter, deque
from typing import Any

import msgspec
import uvloop

from bench.callers import Script, Step, Unexpected, Work, scripts
from bench.connection import Address, Connection, Response, connect
from bench.kernel import processor_seconds
from bench.report import percentile

TICK_SECONDS = 0.001
RECONNECT_SECONDS = 0.1


class Job(msgspec.Struct):
    """A load to generate."""

    url: str
    token: str
    work: Work
    connections: int
    seconds: float
    warm_up: float = 0.3
    """Seconds of load before the measurement begins."""
    rate: float | None = None
    """Requests a second in an open loop; absent = closed loop."""
    pid: int | None = None
    """The server's process, whose processor time is measured; absent = not measured."""


class Outcome(msgspec.Struct):
    """Result of a load: requests answered within the measured time."""

    requests: int = 0
    """Answered 200."""
    messages: int = 0
    seconds: float = 0.0
    p50: float = 0.0
    """Latency in seconds of requests answered 200, as p99 and slowest."""
    p99: float = 0.0
    slowest: float = 0.0
    refused: dict[int, int] = {}
    """Other answers by status; 0 is a connection that ended before the answer."""
    not_retryable: int = 0
    """Refusals that do not say Retry-After."""
    unsent: int = 0
    """Requests of an open loop that were due and never found a free connection."""
    client_cpu: float = 0.0
    """Share of one core the generator used; near 1 the generator is the limit, not the service."""
    server_seconds: float = 0.0
    """Processor seconds the server took meanwhile; 0 when that was not measured."""

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def server_microseconds(self) -> float:
        """Processor microseconds of the server for each request answered 200."""
        return 1e6 * self.server_seconds / self.requests

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


class Tally:
    """Counts answers that come while it is open."""

    def __init__(self) -> None:
        self.open = False
        self._latencies = array("d")
        self._messages = 0
        self._refused: Counter[int] = Counter()
        self._not_retryable = 0
        self._began = self._began_cpu = 0.0

    def begin(self) -> None:
        self.open = True
        self._began, self._began_cpu = time.perf_counter(), time.process_time()

    def add(self, step: Step, answer: Response, latency: float) -> None:
        if not self.open or not step.counted:
            return
        if answer.status == 200:
            self._latencies.append(latency)
            self._messages += step.messages
            return
        self._refused[answer.status] += 1
        if not answer.retry_after:
            self._not_retryable += 1

    def end(self, unsent: int) -> Outcome:
        """Stop counting and return the result."""
        self.open = False
        seconds = time.perf_counter() - self._began
        ordered = sorted(self._latencies)
        return Outcome(
            requests=len(ordered),
            messages=self._messages,
            seconds=seconds,
            p50=percentile(ordered, 50),
            p99=percentile(ordered, 99),
            slowest=percentile(ordered, 100),
            refused=dict(self._refused),
            not_retryable=self._not_retryable,
            unsent=unsent,
            client_cpu=(time.process_time() - self._began_cpu) / seconds,
        )


class ScriptedConnection:
    """One connection following its script."""

    def __init__(self, address: Address, script: Script, tally: Tally, loop: "Loop") -> None:
        self._address = address
        self._script = script
        self._tally = tally
        self._loop = loop
        self._step = next(script)
        self._due = 0.0
        self.prepared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = Connection()

    async def prepare(self) -> None:
        """Connect, and make the steps that come before the first counted one."""
        await self._connect()
        if self._step.counted:
            self.prepared.set_result(None)
        else:
            self._send()
        await self.prepared

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
        elif self.prepared.done():
            self._loop.free(self, now)
        else:
            self.prepared.set_result(None)


class Loop:
    """A closed loop: each connection sends again after its response."""

    def __init__(self) -> None:
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def prepare(self, lanes: list[ScriptedConnection]) -> None:
        """Connect all lanes and send the requests before their first counted step."""
        preparing = asyncio.gather(*(lane.prepare() for lane in lanes))
        first: list[asyncio.Future[Any]] = [preparing, self._failure]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            preparing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await preparing  # otherwise asyncio would print it after the reason
            await self._failure
        await preparing

    def begin(self, lanes: list[ScriptedConnection]) -> None:
        now = time.perf_counter()
        for lane in lanes:
            lane.start(now)

    def free(self, lane: ScriptedConnection, now: float) -> None:
        lane.start(now)

    def lost(self, lane: ScriptedConnection) -> None:
        """Reconnect a lane whose connection ended; during preparation that is a failure."""
        if not lane.prepared.done():
            self.fail(Unexpected("a connection ended before the measurement began"))
            return
        task = asyncio.ensure_future(lane.reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    def fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def last(self, seconds: float) -> None:
        done, _ = await asyncio.wait([self._failure], timeout=seconds)
        for each in done:
            each.result()

    def unsent(self) -> int:
        """Return how many requests are due and not sent."""
        return 0

    def end(self) -> None:
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
        self._idle.extend(lanes)
        self._next_due = time.perf_counter()
        self._tick()

    def free(self, lane: ScriptedConnection, now: float) -> None:
        if self._next_due <= now:
            self._start(lane)
        else:
            self._idle.append(lane)

    def unsent(self) -> int:
        return max(0, int((time.perf_counter() - self._next_due) / self._gap))

    def end(self) -> None:
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


async def run(job: Job) -> Outcome:
    """Generate a load and return its outcome; raises `Unexpected` when its answers make it worthless."""
    loop = OpenLoop(job.rate) if job.rate else Loop()
    tally = Tally()
    address = Address.of(job.url)
    lanes = [
        ScriptedConnection(address, script, tally, loop) for script in scripts(job.work, job.connections, job.token)
    ]
    try:
        await loop.prepare(lanes)
        loop.begin(lanes)
        await loop.last(job.warm_up)
        used = processor_seconds(job.pid) if job.pid else 0.0
        tally.begin()
        await loop.last(job.seconds)
        outcome = tally.end(loop.unsent())
        outcome.server_seconds = processor_seconds(job.pid) - used if job.pid else 0.0
        return outcome
    finally:
        loop.end()
        for lane in lanes:
            lane.close()


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    gc.disable()  # a pause of ours would look like one of the service
    try:
        outcome = uvloop.run(run(job))
    except Unexpected as error:
        sys.exit(f"bench.load: {error}")
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
