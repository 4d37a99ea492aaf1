"""The kernel's figures about a process, latency of syncs, and eviction from the page cache."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.report import percentile

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor seconds a process and its descendants have used so far."""
    seconds = 0.0
    for each in (pid, *_children(pid)):
        with contextlib.suppress(FileNotFoundError):  # a child that ended meanwhile
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            seconds += _TICK * (int(fields[11]) + int(fields[12]))
    return seconds


def _children(pid: int) -> Iterator[int]:
    """Yield all descendants of a process; none where the kernel does not tell."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from _children(child)


def anonymous_memory(pid: int) -> int:
    """Return a process's resident bytes without file pages; raises `OSError` when the kernel does not tell."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not tell RssAnon")


class Syncs(NamedTuple):
    per_second: float
    p50: float
    """Seconds of an fdatasync, as p99."""
    p99: float


def appends(folder: Path, size: int, seconds: float) -> Syncs:
    """Append `size` bytes to a file and sync them, again and again."""
    file, record, latencies = folder / "raw", os.urandom(size), []
    handle = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            os.write(handle, record)
            start = time.perf_counter()
            os.fdatasync(handle)
            latencies.append(time.perf_counter() - start)
        elapsed = time.perf_counter() - began
    finally:
        os.close(handle)
        file.unlink()
    latencies.sort()
    return Syncs(len(latencies) / elapsed, percentile(latencies, 50), percentile(latencies, 99))


def forget(folder: Path) -> None:
    """Ask the kernel to drop its cached pages of all files in a folder, so that the next reads are cold."""
    for file in (each for each in folder.rglob("*") if each.is_file()):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
