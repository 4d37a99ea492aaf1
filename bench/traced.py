"""`python -m bench.traced FILE MODULE [ARGUMENT ...]`: run a server's module, and note where its processor time goes.

SIGUSR1 begins to note, SIGUSR2 ends that and writes a `Trace` to FILE. The event loop's thread is looked at whenever it
has used so much processor time, not when time has passed: what waits, for the disk, for a client or for a processor,
is not seen. Its signal is handled between two steps of the interpreter. So what a library does in C before it calls
Python, such as reading from a socket, is seen in the function that it calls. Of the thread that stores is noted what
it takes as a whole, and within the calls of `ams.storage.files`.
"""

import ctypes
import functools
import linecache
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from ams.storage.files import Disk

INTERVAL_SECONDS = 0.001
"""Of processor time; the kernel looks at this once a tick, so most are longer."""
_THREAD_CPU_CLOCK, _TO_THREAD = 3, 4
"""CLOCK_THREAD_CPUTIME_ID and SIGEV_THREAD_ID of Linux."""

_WRITING = ("transport.write(", "transport.writelines(")
WRITE = "write to the socket uvloop"


class Called(msgspec.Struct):
    """Calls of one kind from one thread."""

    calls: int = 0
    processor: float = 0.0
    """Seconds, as wall."""
    wall: float = 0.0


class Stack(msgspec.Struct):
    """What was running, outermost first, and how often that was seen."""

    frames: list[str]
    """`FUNCTION FILE`, by each."""
    seen: int


class Trace(msgspec.Struct):
    """Where processor time went."""

    seconds: float
    main: float
    """Processor seconds of the main thread, which runs the event loop."""
    threads: dict[str, float]
    """Processor seconds of the others, by name."""
    disk: dict[str, Called]
    """Calls of `ams.storage.files` from threads other than the main one, by `THREAD CALL`."""
    stacks: list[Stack]
    """Of the main thread."""


class Tracer:
    """Notes between two signals."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stacks: Counter[tuple[tuple[CodeType, int], ...]] = Counter()
        self._disk: dict[str, Called] = {}
        self._began = 0.0
        self._used: dict[int, float] = {}

    def begin(self, *_: object) -> None:
        """Note from now on."""
        self._stacks, self._disk = Counter(), {}
        self._began, self._used = time.perf_counter(), _used()

    def end(self, *_: object) -> None:
        """Write down what was noted; the file is there when it is whole."""
        seconds, stacks, disk = time.perf_counter() - self._began, self._stacks, self._disk
        self._stacks, self._disk = Counter(), {}  # what is noted meanwhile counts no more
        used = {ident: taken - self._used.get(ident, 0.0) for ident, taken in _used().items()}
        names = {each.ident: each.name for each in threading.enumerate()}
        main = used.pop(threading.main_thread().ident or 0)
        trace = Trace(
            seconds,
            main,
            {names.get(ident, "?"): taken for ident, taken in used.items()},
            disk,
            [Stack(_frames(stack), seen) for stack, seen in stacks.items()],
        )
        draft = self._file.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(trace))
        draft.rename(self._file)

    def look(self, _: int, frame: FrameType | None) -> None:
        """Note what the main thread is at."""
        found = []
        while frame is not None:
            found.append((frame.f_code, frame.f_lineno or 0))  # none where no line stands for it
            frame = frame.f_back
        self._stacks[tuple(reversed(found))] += 1

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of the disk that is noted when it is made by another thread than the main one."""
        main = threading.main_thread()

        @functools.wraps(call)
        def noted(*arguments: Any, **options: Any) -> Any:
            thread = threading.current_thread()
            if thread is main:
                return call(*arguments, **options)
            began, used = time.perf_counter(), time.thread_time()
            try:
                return call(*arguments, **options)
            finally:
                called = self._disk.setdefault(f"{thread.name} {name}", Called())
                called.calls += 1
                called.processor += time.thread_time() - used
                called.wall += time.perf_counter() - began

        return noted


def _used() -> dict[int, float]:
    """Return the processor seconds of each thread of Python."""
    idents = [each.ident for each in threading.enumerate() if each.ident]
    return {ident: time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in idents}


def _frames(stack: Sequence[tuple[CodeType, int]]) -> list[str]:
    """Return the frames as text; a call that writes to a socket, which is C, as one more."""
    code, line = stack[-1]
    writes = any(each in linecache.getline(code.co_filename, line) for each in _WRITING)
    return [_shown(each) for each, _ in stack] + [WRITE] * writes


def _shown(code: CodeType) -> str:
    """Return `FUNCTION FILE`, the file below the folder its package lies in."""
    file = code.co_filename
    for root in ("/site-packages/", "/src/", f"/python{sys.version_info[0]}.{sys.version_info[1]}/", f"{Path.cwd()}/"):
        file = file.rpartition(root)[2]
    return f"{code.co_qualname} {file.replace(' ', '-')}"


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux, padded to its 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns"))


def look_by_processor_time(look: Callable[[int, FrameType | None], None]) -> None:
    """Call `look` in this, the main, thread each time it has used so much of a processor; raises `OSError`."""
    signal.signal(signal.SIGPROF, look)
    event = _Event(None, signal.SIGPROF, _TO_THREAD, threading.get_native_id())
    nanoseconds = round(1e9 * INTERVAL_SECONDS)
    times, timer, libc = _Times(0, nanoseconds, 0, nanoseconds), ctypes.c_void_p(), ctypes.CDLL(None, use_errno=True)
    if libc.timer_create(_THREAD_CPU_CLOCK, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    if libc.timer_settime(timer, 0, ctypes.byref(times), None):
        raise OSError(ctypes.get_errno(), "timer_settime")


def main() -> None:
    """Run the module under a tracer."""
    file, module, *arguments = sys.argv[1:]
    tracer = Tracer(Path(file))
    for name, call in list(vars(Disk).items()):
        if callable(call) and not name.startswith("_"):
            setattr(Disk, name, tracer.timed(name, call))
    signal.signal(signal.SIGUSR1, tracer.begin)
    signal.signal(signal.SIGUSR2, tracer.end)
    look_by_processor_time(tracer.look)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
