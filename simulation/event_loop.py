"""An asyncio event loop in virtual time.

Each callback is an event of the world and takes a little time, so other events come in between: a packet, a thread,
another process, a crash. Callbacks run in the order in which they became ready, as in asyncio; the moment is random.
Uses public parts of asyncio, and those meant for implementations of event loops: `Handle` and `TimerHandle` with their
`_run`, and `_set_running_loop`.
"""

import asyncio
import contextvars
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from simulation.threads import SimExecutor

if TYPE_CHECKING:
    from simulation.network import ListeningSocket, SimSocket
    from simulation.process import SimProcess
    from simulation.world import Event

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Context = contextvars.Context | None


class SimTimer(TimerHandle):
    """A timer, and its event in the world."""

    __slots__ = ("event",)
    event: "Event"


class SimLoop(AbstractEventLoop):
    """The event loop of one process."""

    def __init__(self, process: "SimProcess") -> None:
        self.process = process
        self.is_blocked = False  # its thread waits for another one
        self.sockets: dict[int, ListeningSocket] = {}  # sockets to watch, by number
        self._ready: deque[tuple[Handle, str]] = deque()
        self._turn: Event | None = None
        self._readers: dict[int, Handle] = {}
        self._executor: SimExecutor | None = None
        self._is_closed = False
        self._woken_at = 0.0  # arrival of the last call from a thread

    # Running

    def go_on(self) -> None:
        """Schedule the next ready callback."""
        if self._ready and self._turn is None and not self.is_blocked:
            process = self.process
            delay = process.draw(process.world.latencies.callback) + process.pause_left
            self._turn = process.after(delay, self._run_one, f"callback {self._ready[0][1]}")

    def _run_one(self) -> None:
        from simulation.process import SimProcess

        self._turn = None
        if self.is_blocked or not self._ready:
            return
        handle, _ = self._ready.popleft()
        if not handle.cancelled():
            before, SimProcess.current = SimProcess.current, self.process
            asyncio._set_running_loop(self)
            try:
                handle._run()
            finally:
                asyncio._set_running_loop(before.loop if before is not None else None)
                SimProcess.current = before
        self.go_on()

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Drop all callbacks and timers."""
        self._is_closed = True
        self._ready.clear()
        self._readers.clear()

    # Callbacks and timers

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None) -> Handle:
        """Run a callback after all that are ready."""
        handle = Handle(callback, args, self, context)
        self._ready.append((handle, getattr(callback, "__qualname__", type(callback).__name__)))
        self.go_on()
        return handle

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None) -> Handle:
        """Run a callback from a thread, in the order of the calls, after the latency of waking the loop.

        Raises: RuntimeError: the loop is closed.
        """
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        process = self.process
        handle = Handle(callback, args, self, context)
        name = getattr(callback, "__qualname__", type(callback).__name__)
        self._woken_at = max(self._woken_at, process.now + process.draw(process.world.latencies.wake))
        process.at(self._woken_at, lambda: self._add(handle, name), f"from thread {name}")
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None
    ) -> TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context = None
    ) -> TimerHandle:
        handle = SimTimer(when, callback, args, self, context)
        name = getattr(callback, "__qualname__", type(callback).__name__)
        handle.event = self.process.after(when - self.time(), lambda: self._add(handle, name), f"timer {name}")
        return handle

    def _add(self, handle: Handle, name: str) -> None:
        if not handle.cancelled():
            self._ready.append((handle, name))
            self.go_on()

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Cancel a timer's event."""
        if isinstance(handle, SimTimer):
            handle.event.cancel()

    def time(self) -> float:
        return self.process.now

    # Futures and tasks

    def create_future(self) -> "Future[Any]":
        return Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context = None,
    ) -> "Task[T]":
        return Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an unhandled exception, unless a crash caused it."""
        if not self.process.is_dying:
            error = context.get("exception")
            self.process.troubles.append(f"{context['message']}: {error!r}")

    # Threads

    def run_in_executor(  # type: ignore[override]  # a future, as every loop returns
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "Future[T]":
        """Run a function in a thread of a simulated pool."""
        future: Future[T] = self.create_future()
        if executor is None:
            executor = self._executor = self._executor or SimExecutor()
        if self.process.is_dying:  # its threads are gone: run here
            _settle(future, *_outcome(lambda: func(*args)))
            return future

        def job() -> None:
            if not future.cancelled():
                result, error = _outcome(lambda: func(*args))
                self.call_soon_threadsafe(_settle, future, result, error)

        executor.run(job)
        return future

    # Sockets

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        """Run a callback whenever a connection waits to be accepted."""
        self._readers[fd] = Handle(callback, args, self, None)
        self.sockets[fd].look()

    def remove_reader(self, fd: Any) -> bool:
        handle = self._readers.pop(fd, None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def read_ready(self, fd: int) -> bool:
        """Run the callback of a watched socket. Returns False if it is not watched."""
        handle = self._readers.get(fd)
        if handle is None:
            return False
        self._ready.append((handle, "accept"))
        self.go_on()
        return True

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], sock: "SimSocket", **tls: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Make a transport for an accepted connection."""
        assert not tls, "TLS is not simulated"
        protocol = protocol_factory()
        return await sock.attach(self, protocol), protocol

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str = "",
        port: int = 0,
        *,
        sock: "SimSocket | None" = None,
        **how: Any,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to a port of the simulated network, or use a connected socket. Raises `OSError`."""
        sock = sock or await self.process.world.network.connect(self.process, port)
        protocol = protocol_factory()
        return await sock.attach(self, protocol), protocol


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error


def _settle(future: "Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
