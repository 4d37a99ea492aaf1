"""The kernel's figures about a process, its syncs of a file, and its cache of files."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.report import percentile

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor seconds a process and its descendants have used so far."""
    return sum(map(_processor_seconds, (pid, *_children(pid))))


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # a child that ended meanwhile
        return 0.0
    return _TICK * (int(fields[11]) + int(fields[12]))


def _children(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and theirs; none where the kernel does not tell."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from _children(child)


def anonymous_memory(pid: int) -> int:
    """Return a process's resident bytes that are no pages of files; raises `OSError` when the kernel does not tell."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not tell RssAnon")


class Syncs(NamedTuple):
    """Rate and latency of appends with fdatasync."""

    per_second: float
    p50: float
    """Seconds of an fdatasync, as p99."""
    p99: float


def appends(folder: Path, size: int, seconds: float) -> Syncs:
    """Append `size` bytes and sync them, again and again."""
    file = folder / "raw"
    handle = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        return _appends(handle, os.urandom(size), seconds)
    finally:
        os.close(handle)
        file.unlink()


def _appends(handle: int, record: bytes, seconds: float) -> Syncs:
    latencies = []
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        os.write(handle, record)
        start = time.perf_counter()
        os.fdatasync(handle)
        latencies.append(time.perf_counter() - start)
    elapsed = time.perf_counter() - began
    latencies.sort()
    return Syncs(len(latencies) / elapsed, percentile(latencies, 50), percentile(latencies, 99))


def forget(folder: Path) -> None:
    """Ask the kernel to drop its pages of all files in a folder, so that reading them is cold."""
    for file in (each for each in folder.rglob("*") if each.is_file()):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
