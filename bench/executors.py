"""A cluster of Spark for measuring, and the memory of its executors while a job runs."""

import contextlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.processes import Failed
from bench.run import Bench
from cluster.processes import DidNotStart, descendants
from cluster.spark import SparkCluster

CORES = 2
"""Executors, each with one core."""
FLAGS = ("--memory", "1g", "--conf", "spark.executor.memory=1g", "--conf", "spark.executor.cores=1")
LOOK_SECONDS = 0.5
_COLLECTED = re.compile(r"\[([0-9.]+)s\].* \d+M->(\d+)M\(\d+M\)")
"""A line of Java's log of collections: when, and how many MiB of its heap were left."""
MIB = 2**20


@contextlib.contextmanager
def cluster(bench: Bench) -> Iterator[SparkCluster]:
    """Run a master and workers, each with an executor of 1 GiB; raises `Failed`."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        try:
            started = SparkCluster(Path(folder), workers=CORES)
            started.start()
        except DidNotStart as error:
            raise Failed(str(error)) from error
        try:
            yield started
        finally:
            started.stop()


def logging_collections(folder: Path) -> tuple[str, str]:
    """Return the flags by which executors write what each collection left of their heaps into a folder.

    They also look for garbage all the time: else what is left is mostly what was not looked at yet.
    """
    looking = "-XX:InitiatingHeapOccupancyPercent=5 -XX:-G1UseAdaptiveIHOP"
    return "--conf", f"spark.executor.extraJavaOptions={looking} -Xlog:gc:file={folder}/gc-%p.log"


class Live(NamedTuple):
    """What collections left of the heap of an executor: the least of it in a time is what the work held then, in MiB.

    Java takes memory up to its limit before it collects, so what it takes of the machine says little.
    """

    second_mib: float = 0.0
    """In the second third of the time."""
    last_mib: float = 0.0
    """In the last third."""


def live(folder: Path) -> Live:
    """Return what the executor held that held most at last."""
    return max((_live(file.read_text()) for file in folder.glob("gc-*.log")), default=Live(), key=lambda each: each[1])


def _live(log: str) -> Live:
    _, second, last = _thirds([(float(found[1]), int(found[2])) for found in _COLLECTED.finditer(log)])
    return Live(min(second, default=0), min(last, default=0))


def _thirds(seen: Sequence[tuple[float, int]]) -> list[list[int]]:
    """Return what was seen in each third of the time from the first look to the last."""
    thirds: list[list[int]] = [[], [], []]
    for when, number in seen:
        began, ended = seen[0][0], seen[-1][0]
        thirds[min(2, int(3 * (when - began) / max(ended - began, 0.001)))].append(number)
    return thirds


@dataclass
class Memory:
    """Resident bytes of the executor that had most, over time."""

    looks: list[tuple[float, int, int]] = field(default_factory=list)
    """When, of Java, and of all its processes of Python."""

    def look(self, cluster: SparkCluster) -> None:
        """Note what there is now."""
        executors = [pid for worker in cluster.workers.values() for pid in worker.executors()]
        java = max(map(_resident, executors), default=0)
        python = max((sum(map(_resident, descendants(pid))) for pid in executors), default=0)
        self.looks.append((time.perf_counter(), java, python))

    @property
    def java(self) -> int:
        """The most of Java."""
        return max((java for _, java, _ in self.looks), default=0)

    @property
    def python(self) -> int:
        """The most of Python."""
        return max((python for _, _, python in self.looks), default=0)

    @property
    def growth(self) -> float:
        """The most of both in the last third of the time, to the most in the second; in the first they start."""
        _, second, last = _thirds([(when, java + python) for when, java, python in self.looks if java])
        return max(last, default=0) / max(second, default=1)

    def figures(self) -> dict[str, float]:
        """Return what is shown of it."""
        return {"java_mib": self.java / MIB, "python_mib": self.python / MIB}


@contextlib.contextmanager
def watched(cluster: SparkCluster) -> Iterator[Memory]:
    """Look at the executors until the block ends."""
    memory, ended = Memory(), threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            memory.look(cluster)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield memory
    finally:
        ended.set()
        watching.join()


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0
