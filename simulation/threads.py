"""Threads in virtual time: real threads of which one runs at a time, with their locks and queues.

A thread runs from its event until it waits for a lock, a queue, another thread or the disk. Then it returns the baton
to the simulator, so it is not interrupted between two waits. The service's own locks and queues synchronise threads;
the simulator only chooses when each one runs.
"""

import _thread
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

MAX_DEFAULT_WORKERS = 6  # of an event loop's own executor


class Killed(BaseException):
    """The process of the thread has ended."""


class Deadlock(Exception):
    """No event will ever wake a waiting thread or event loop."""


class SimThread:
    """A thread as `threading.Thread` makes one."""

    current: "SimThread | None" = None  # holder of the baton; None: the simulator

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "thread",
        args: Sequence[Any] = (),
        *,
        daemon: bool = True,
    ) -> None:
        from simulation.process import SimProcess

        self.name, self.daemon = name, daemon
        self.process: SimProcess = SimProcess.running()
        self.has_ended = False
        self.ident: int | None = None
        self.waits_for: object = None
        self._work: Callable[[], object] = lambda: target(*args)
        self._waiters: list[SimThread] = []
        self._go, self._back = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()

    def start(self) -> None:
        """Begin soon."""
        self.process.threads.append(self)
        threading.Thread(target=self._run, name=f"sim {self.name}", daemon=True).start()
        self.wake()

    def wake(self, seconds: float | None = None) -> None:
        """Run in this many seconds, or after a pause of the process."""
        delay = self.process.draw(self.process.world.latencies.wake) if seconds is None else seconds
        self.process.after(delay + self.process.pause_left, self.go_on, f"thread {self.name}")

    def go_on(self) -> None:
        """Run until the next wait. Called on the simulator's thread."""
        if self.has_ended:
            return
        before, SimThread.current = SimThread.current, self
        self._go.release()
        self._back.acquire()
        SimThread.current = before

    def park(self) -> None:
        """Return the baton and wait for it. Called on this thread."""
        if self.process.is_dying:
            raise Killed
        self._back.release()
        self._go.acquire()
        if self.process.is_dying:
            raise Killed

    def join(self, timeout: float | None = None) -> None:
        """Return when it has ended."""
        wait_until(lambda: self.has_ended, self._waiters)

    def _run(self) -> None:
        self.ident = threading.get_ident()
        self._go.acquire()
        try:
            if not self.process.is_dying:
                self._work()
        except Killed:
            pass
        finally:
            self.has_ended = True
            wake_all(self._waiters)
            self._back.release()


def wake_all(waiters: list[SimThread]) -> None:
    """Wake all waiters to check their condition."""
    while waiters:
        waiters.pop(0).wake()


def wait_until(is_so: Callable[[], bool], waiters: list[SimThread]) -> None:
    """Wait for a condition. The code that makes it true wakes `waiters`.

    An event loop that waits for a thread blocks its own process only.
    """
    from simulation.process import SimProcess

    thread = SimThread.current
    while not is_so():
        if thread is None:
            SimProcess.running().step_blocked()
        elif thread.process.is_dying:
            raise Killed
        else:
            waiters.append(thread)
            thread.park()


def pause(seconds: float) -> None:
    """Let time pass on a thread; does nothing on an event loop."""
    thread = SimThread.current
    if thread is None:
        return
    process = thread.process
    if process.is_dying:
        raise Killed
    event = process.after(seconds + process.pause_left, thread.go_on, f"thread {thread.name}")
    if not process.world.takes(event):
        thread.park()


class SimLock:
    """A lock as `threading.Lock` makes one."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiters: list[SimThread] = []

    def acquire(self) -> bool:
        """Take the lock."""
        wait_until(lambda: not self._is_held, self._waiters)
        self._is_held = True
        return True

    def release(self) -> None:
        """Release the lock."""
        self._is_held = False
        wake_all(self._waiters)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimQueue:
    """A queue as `queue.SimpleQueue` makes one."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters: list[SimThread] = []

    def put(self, item: Any) -> None:
        """Add an item, and wake waiters."""
        self._items.append(item)
        wake_all(self._waiters)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the first item. Raises `queue.Empty` if none comes in time."""
        thread = SimThread.current
        is_over = False
        if timeout is not None and thread is not None and not self._items:

            def end() -> None:
                nonlocal is_over
                is_over = True
                if thread in self._waiters:
                    self._waiters.remove(thread)
                    thread.go_on()

            thread.process.after(timeout, end, f"timeout of {thread.name}")
        wait_until(lambda: is_over or bool(self._items), self._waiters)
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the first item. Raises `queue.Empty` if there is none."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """Return whether it has no items."""
        return not self._items


class SimExecutor:
    """A pool as `concurrent.futures.ThreadPoolExecutor` makes one, for `SimLoop.run_in_executor`."""

    def __init__(self, max_workers: int = MAX_DEFAULT_WORKERS, thread_name_prefix: str = "worker") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._jobs = SimQueue()
        self._threads: list[SimThread] = []
        self._idle = 0
        self._has_ended = False

    def run(self, job: Callable[[], None]) -> None:
        """Queue a job for one of the threads."""
        if self._has_ended:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._idle:
            self._idle -= 1
        elif len(self._threads) < self._most:
            self._threads.append(SimThread(target=self._work, name=f"{self._name}-{len(self._threads)}"))
            self._threads[-1].start()
        self._jobs.put(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all threads after the queued jobs."""
        self._has_ended = True
        for _ in self._threads:
            self._jobs.put(None)
        for each in self._threads if wait else ():
            each.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            if self._jobs.empty():
                self._idle += 1
