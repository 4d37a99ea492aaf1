"""Publishing while backups are taken one after the other, against publishing alone."""

import contextlib
import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import preparing
from bench.callers import Publish
from bench.processes import Failed, Service
from bench.report import Result
from bench.run import Bench, figures, median_ratio, middle, p99
from bench.tally import Outcome

CONNECTIONS = 16


def backup(bench: Bench) -> Iterator[Result]:
    """Yield the one result; it is for orientation, as copying takes a part of the disk and of a core."""
    with bench.service() as service, tempfile.TemporaryDirectory(dir=bench.folder) as made:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "backup", 1)
        preparing.fill(service, topics, bench.plan.backlog)
        seconds: list[float] = []

        def load() -> Outcome:
            return bench.load(service, Publish(topics), CONNECTIONS)

        def load_beside_backups() -> Outcome:
            with _backups(service, Path(made), seconds):
                return load()

        pairs = bench.in_turn("publish beside backups and alone", load_beside_backups, load)
        yield Result(
            "backup",
            {"connections": CONNECTIONS},
            figures([each for each, _ in pairs])
            | {"alone_p99_ms": 1000 * middle([each for _, each in pairs], p99), "backup_seconds": median(seconds)},
            median_ratio(pairs, p99),
            "times the p99 of publishing alone",
        )


@contextlib.contextmanager
def _backups(service: Service, folder: Path, seconds: list[float]) -> Iterator[None]:
    """Take backups until the block ends, one at least; note how long each takes."""
    over, failed = threading.Event(), []

    def take() -> None:
        for number in itertools.count():
            began = time.perf_counter()
            command = ["backup", str(folder / str(number)), "--data", str(service.data)]
            ran = subprocess.run([sys.executable, "-m", "ams.cli.main", *command], capture_output=True, text=True)
            seconds.append(time.perf_counter() - began)
            shutil.rmtree(folder / str(number), ignore_errors=True)
            if ran.returncode:
                failed.append(ran.stderr)
            if over.is_set() or failed:
                return

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise Failed(failed[0])
