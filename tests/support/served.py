"""The whole service in a thread of this process, over a real socket, at a time that stands still."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import uvloop

from ams.app.serving import Running, running
from ams.core.clock import ManualClock, SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from tests.support import shape

SERVICE_TOKEN = "the-service-token"
WORKER_TOKEN = "the-token-of-the-push-worker"
START_SECONDS = 60


@dataclass(frozen=True)
class Served:
    """A running service, its clock and the token of its first administrator."""

    run: Running
    token: str
    clock: ManualClock
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of the API, which is served over plain HTTP."""
        host, _, port = self.run.base_url.removeprefix("http://").partition(":")
        return host, int(port)

    def connect(self, seconds: float) -> socket.socket:
        """Return a new connection, on which each step may take so long."""
        return socket.create_connection(self.address, timeout=seconds)


@contextlib.contextmanager
def served(data: Path, **settings: object) -> Iterator[Served]:
    """Serve until the block ends. A pull waits for 50 ms only, and the disk may be nearly full.

    On Kafka and PostgreSQL, whose clocks nobody moves, the time that stands still is that of the start.
    """
    usual = {"service_token": SERVICE_TOKEN, "pull_wait": 0.05, "min_free_bytes": 0, "reserve_bytes": 0}
    every = usual | {"port": 0, "ops_port": 0} | shape.settings(data) | settings
    chosen = Settings(data=str(data), **every)  # type: ignore[arg-type]  # tests name settings freely
    clock = ManualClock(SystemClock().wall()) if shape.is_cluster() else ManualClock()
    started: Future[tuple[Running, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=_run, args=(chosen, clock, started))
    thread.start()
    run, loop, stop = started.result(START_SECONDS)
    try:
        kept = data / "admin.token"  # not of a second node: the first made the administrator
        yield Served(run, kept.read_text().strip() if kept.exists() else SERVICE_TOKEN, clock, loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _run(
    settings: Settings, clock: ManualClock, started: "Future[tuple[Running, asyncio.AbstractEventLoop, asyncio.Event]]"
) -> None:
    async def serve() -> None:
        stop = asyncio.Event()
        async with running(settings, Supervisor(), clock=clock) as run:
            started.set_result((run, asyncio.get_running_loop(), stop))
            await stop.wait()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
