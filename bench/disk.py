"""The comparator of durability: a raw file that is appended to and synced, without anything else."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from bench.report import percentile


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
