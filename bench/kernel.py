"""The kernel's figures about a process: what it takes of processors, and of memory."""

import os
from collections.abc import Iterator
from pathlib import Path

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
