"""Replaces time, threads and chance in the service while a world runs.

The service imports `time`, `threading`, `queue` and thread pools as usual. Each of its modules that has one of these
gets the simulated one under the same name, until the world ends. Nothing else of a module changes.
"""

import contextlib
import logging
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import structlog

import ams.app.lifecycle  # loads all modules of the service
from ams.app.backup import live_copy
from ams.push import endpoint_connection
from ams.storage.database import sqlite as database
from ams.storage.database.sqlite import SqliteStore
from ams.storage.log.embedded.segment import OpenSegment
from ams.web.fair_scheduler import FairScheduler
from simulation.process import SimProcess
from simulation.sqlite_files import sqlite_files
from simulation.threads import SimExecutor, SimLock, SimQueue, SimThread, pause
from simulation.world import World

START_OF_TIME = 1_700_000_000.0  # seconds since the epoch at which every world begins
LOOK_SECONDS = (1e-7, 3e-6)  # time between two readings of the clock within one callback

LogEvent = Mapping[str, Any]

assert ams.app.lifecycle


class _SimTime(ModuleType):
    """Replaces the module `time` by the clock of a world."""

    def __init__(self, world: World) -> None:
        super().__init__("time")
        self._world = world
        self._looked = 0.0  # sum of the time that readings took

    def monotonic(self) -> float:
        """Return the time of the world."""
        return self._world.now

    def perf_counter(self) -> float:
        """Return the world's time plus the time of earlier readings, so that a loop iteration has a duration."""
        if not _is_dying():  # a killed process must not change later draws of the world
            self._looked += self._world.chance.uniform(*LOOK_SECONDS)
        return self._world.now + self._looked

    def time(self) -> float:
        """Return the time of day."""
        return START_OF_TIME + self._world.now

    def sleep(self, seconds: float) -> None:
        """Pause the running thread."""
        pause(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextlib.contextmanager
def install_seams(world: World, note: Callable[[LogEvent], None], *, answers_google: bool = False) -> Iterator[None]:
    """Give the service time, threads and chance of a world; `note` gets each line of its log."""
    if answers_google:  # before the modules of the service are patched
        import ams.app.wiring.pubsub as _pubsub
        from simulation.google import answering, listen
    chance = random.Random(world.chance.random())
    simulated_time = _SimTime(world)
    threads = SimpleNamespace(Thread=SimThread, Lock=SimLock, RLock=threading.RLock, Event=threading.Event)
    replacements: list[tuple[object, object]] = [
        (time, simulated_time),
        (threading, threads),
        (queue, SimpleNamespace(SimpleQueue=SimQueue, Empty=queue.Empty)),
        (queue.SimpleQueue, SimQueue),
        (ThreadPoolExecutor, SimExecutor),
        (formatdate, lambda **_: "Tue, 14 Nov 2023 22:13:20 GMT"),
    ]

    def random_bytes(size: int) -> bytes:
        return bytes(size) if _is_dying() else chance.randbytes(size)

    by_identity = {id(real): simulated for real, simulated in replacements}
    state = random.getstate()
    before = structlog.get_config()
    with contextlib.ExitStack() as stack:
        for module in [each for name, each in sys.modules.items() if name.startswith("ams.") and each is not None]:
            for name, value in list(vars(module).items()):
                if id(value) in by_identity:
                    stack.enter_context(mock.patch.object(module, name, by_identity[id(value)]))
        stack.enter_context(mock.patch.object(os, "urandom", random_bytes))
        stack.enter_context(mock.patch("secrets.token_hex", lambda size=16: random_bytes(size).hex()))
        # Reads and computations of SQLite take no simulated time.
        stack.enter_context(mock.patch.object(SqliteStore, "_attempt", _lasting(world, SqliteStore._attempt)))
        stack.enter_context(mock.patch.object(database, "make_private", sqlite_files().make_file))
        stack.enter_context(mock.patch.object(database, "Disk", sqlite_files))
        databases = SimpleNamespace(path=SimpleNamespace(exists=sqlite_files().exists))
        stack.enter_context(mock.patch.object(live_copy, "os", databases))
        if answers_google:
            stack.enter_context(mock.patch.multiple(_pubsub, answering=answering, listen=listen))
        # Connections to receivers of push are the world's, and without TLS.
        stack.enter_context(mock.patch.object(endpoint_connection, "connect_socket", _connect))
        stack.enter_context(mock.patch.object(endpoint_connection, "start_tls", _skip_tls))
        stack.enter_context(mock.patch("ams.app.wiring.push.trust"))
        # These two classes bound theirs at definition.
        stack.enter_context(mock.patch.object(FairScheduler.__init__, "__defaults__", (simulated_time.perf_counter,)))
        stack.enter_context(mock.patch.object(OpenSegment, "__post_init__", _with_lock(OpenSegment.__post_init__)))
        stack.callback(structlog.configure, **before)
        stack.callback(random.setstate, state)
        random.seed(chance.random())
        structlog.configure(
            processors=[_log_processor(note)],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )
        yield


def _lasting(world: World, work: Callable[..., Any]) -> Callable[..., Any]:
    def lasting(*given: Any) -> Any:
        pause(world.draw(world.latencies.disk))
        result = work(*given)
        pause(world.draw(world.latencies.disk))
        return result

    return lasting


async def _connect(_address: object, port: int) -> Any:
    try:
        process = SimProcess.running()
        return await process.world.network.connect(process, port)
    except OSError as error:
        raise endpoint_connection.Unreachable(endpoint_connection.socket_error_text(error)) from error


async def _skip_tls(plain: Any, _trust: object, _host: str) -> Any:
    _, wire = await SimProcess.running().loop.create_connection(endpoint_connection._Wire, sock=plain)
    return wire


def _is_dying() -> bool:
    is_in_process = SimThread.current is not None or SimProcess.current is not None
    return is_in_process and SimProcess.running().is_dying


def _with_lock(whole: Callable[[OpenSegment], None]) -> Callable[[OpenSegment], None]:
    def post_init(segment: OpenSegment) -> None:
        segment.lock = SimLock()  # type: ignore[assignment]
        whole(segment)

    return post_init


def _log_processor(note: Callable[[LogEvent], None]) -> Callable[..., str]:
    def processor(_: object, method: str, event: LogEvent) -> str:
        if not _is_dying():
            note({"level": method, **event})
        raise structlog.DropEvent

    return processor
