"""A cluster of Spark for jobs under kills: kills of its parts, and job settings to survive them."""

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.caretaker import Caretaker
from local_cluster.spark import SparkCluster

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a short-lived executor: the optimizing compiler would come too late."""


@dataclass(slots=True)
class Kills:
    cluster: SparkCluster
    draw: random.Random
    executors: int = 0  # killed while they had a task, or waited for one
    workers: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "spark.master": self.cluster.url, "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA, "spark.task.maxFailures": "10",
            "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.1", "spark.speculation.minTaskRuntime": "10ms",
        }  # fmt: skip

    @property
    def each(self) -> Sequence[Callable[[], None]]:
        return (self.executor, self.worker)

    def executor(self) -> None:
        """Kill an executor and its Python process, if there is one."""
        there = [pid for worker in self.cluster.workers.values() for pid in worker.executors()]
        if there:
            os.kill(self.draw.choice(there), signal.SIGKILL)
            self.executors += 1

    def worker(self) -> None:
        """Kill a worker with all its executors."""
        self.draw.choice(list(self.cluster.workers.values())).process.kill()
        self.workers += 1


@contextmanager
def run_killed_cluster(folder: Path, seed: int, *, workers: int = 3) -> Iterator[Kills]:
    said: list[str] = []
    with SparkCluster(folder, workers=workers, memory="512m") as cluster, Caretaker(cluster, said.append):
        yield on_cluster(cluster, seed, said)


def on_cluster(cluster: SparkCluster, seed: int, said: list[str] | None = None) -> Kills:
    """Return kills for a running cluster; `said` gets messages about dead parts."""
    return Kills(cluster, random.Random(seed), said=[] if said is None else said)
