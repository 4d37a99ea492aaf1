"""The program of a worker process, started by `ams.workers.pool`.

It reads tasks from standard input and writes answers to standard output, in frames: a length of four bytes, then
MessagePack. Data and results are in shared memory. The data is untrusted: the operating system limits memory and CPU
time, and the process knows no secrets of the service.
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
SHARED_BYTES = 2**26  # shared memory: maximum of a task and of its result
MEMORY_BYTES = 3 * 2**28  # of address space; a task beyond it ends the process. The service's systemd unit allows it
CPU_SECONDS = 10  # per task; normally the service kills it sooner

Task = tuple[str, list[int]]  # the name of a function, and the sizes of its input parts
JobAnswer = tuple[list[int], str, str]  # the sizes of its result parts; or the type and the message of its error
Part = bytes | memoryview
Job = Callable[[Sequence[memoryview]], Sequence[Part]]
"""A module-level function from parts to parts. Its result must not refer to its input, which is overwritten."""


def name_of(job: Job) -> str:
    """Return the name by which a worker finds a function."""
    return f"{job.__module__}:{job.__qualname__}"


def parts_in(memory: memoryview, sizes: Iterable[int]) -> Sequence[memoryview]:
    """Return the consecutive parts in shared memory."""
    found, start = [], 0
    for size in sizes:
        found.append(memory[start : start + size])
        start += size
    return found


def frame(content: bytes) -> Sequence[bytes]:
    """Return the frame of some content."""
    return len(content).to_bytes(LENGTH, "big"), content


def serve(source: BinaryIO, sink: BinaryIO, memory: memoryview) -> None:
    """Answer tasks until the end of the input. Unexpected errors end the process."""
    decoder = msgspec.msgpack.Decoder(Task)
    sink.writelines(frame(READY))
    sink.flush()
    while head := source.read(LENGTH):
        job, sizes = decoder.decode(source.read(int.from_bytes(head, "big")))
        # The operating system kills this process if a task takes far too long, whatever its state.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        sink.writelines(frame(msgspec.msgpack.encode(_answer(job, sizes, memory))))
        sink.flush()


def _answer(job: str, given: Sequence[int], memory: memoryview) -> JobAnswer:
    try:
        made = _job(job)(parts_in(memory, given))
    except AmsError as error:
        return [], type(error).__name__, error.message
    start, sizes = 0, [len(part) for part in made]
    for part, size in zip(made, sizes, strict=True):
        memory[start : start + size] = part
        start += size
    return sizes, "", ""


@lru_cache
def _job(name: str) -> Job:
    module, _, function = name.partition(":")
    job: Job = getattr(importlib.import_module(module), function)
    return job


def main() -> None:
    """Limit this process, then serve."""
    # If memory runs out, the operating system shall kill this process, not the service.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this process
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    serve(sys.stdin.buffer, sys.stdout.buffer, memoryview(mmap.mmap(int(sys.argv[1]), SHARED_BYTES)))


if __name__ == "__main__":
    main()
