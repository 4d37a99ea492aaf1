"""The program of a worker process, begun by `ams.workers.pool`.

It takes tasks on its input and answers on its output, both in frames: a length of four bytes, then MessagePack. The
data of a task and its result are in memory that it shares with the service. The data is not trusted: memory and time of
the processor are limited by the system, and no secret of the service is known here.
"""

import contextlib
import importlib
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import BinaryIO

import msgspec

from ams.core.errors import AmsError

LENGTH = 4  # bytes of a frame's length
READY = b"ready"
SHARED = 2**26  # bytes of shared memory: neither a task nor its result can be larger
MEMORY = 3 * 2**28
"""Bytes of address space: a task that takes more ends the process. The service's unit has room for all workers'."""
CPU_SECONDS = 10  # of one task; the service ends it sooner, unless it is gone itself

Part = bytes | memoryview
Job = Callable[[Sequence[memoryview]], Sequence[Part]]
"""A function of a module, from parts to parts. Its result does not refer to its input, which is written over."""


class Task(msgspec.Struct, array_like=True):
    """The name of a function, and the sizes of the parts that it is given."""

    job: str
    sizes: Sequence[int]


class Answer(msgspec.Struct, array_like=True):
    """The sizes of the parts that a function returned, or the error it raised."""

    sizes: Sequence[int] = ()
    error: str = ""
    message: str = ""


def name_of(job: Job) -> str:
    """Return the name that a worker finds a function by."""
    return f"{job.__module__}:{job.__qualname__}"


def parts_in(memory: memoryview, sizes: Iterable[int]) -> Sequence[memoryview]:
    """Return the parts that lie one after the other in shared memory."""
    found, start = [], 0
    for size in sizes:
        found.append(memory[start : start + size])
        start += size
    return found


def frame(content: bytes) -> Sequence[bytes]:
    """Return the bytes that are written for some content."""
    return len(content).to_bytes(LENGTH, "big"), content


def serve(source: BinaryIO, sink: BinaryIO, memory: memoryview) -> None:
    """Answer tasks until there are no more. An error that no job raises on purpose ends the process."""
    decoder = msgspec.msgpack.Decoder(Task)
    sink.writelines(frame(READY))
    sink.flush()
    while head := source.read(LENGTH):
        task = decoder.decode(source.read(int.from_bytes(head, "big")))
        # Ends this process if a task takes far too long: the operating system does it, in any state of the process.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        sink.writelines(frame(msgspec.msgpack.encode(_answer(task, memory))))
        sink.flush()


def _answer(task: Task, memory: memoryview) -> Answer:
    try:
        made = _job(task.job)(parts_in(memory, task.sizes))
    except AmsError as error:
        return Answer((), type(error).__name__, error.message)
    start, sizes = 0, [len(part) for part in made]
    for part, size in zip(made, sizes, strict=True):
        memory[start : start + size] = part
        start += size
    return Answer(sizes)


@lru_cache
def _job(name: str) -> Job:
    module, _, function = name.partition(":")
    job: Job = getattr(importlib.import_module(module), function)
    return job


def main() -> None:
    """Limit this process, then serve."""
    # Where memory runs out, the operating system is to end this process and not the service.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed for the service; it ends this process itself
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    serve(sys.stdin.buffer, sys.stdout.buffer, memoryview(mmap.mmap(int(sys.argv[1]), SHARED)))


if __name__ == "__main__":
    main()
