"""From starting the process to the line `ready`: with an empty folder, and after a kill under load."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import preparing
from bench.callers import Publish
from bench.processes import RunningLoad, Service
from bench.report import Result, at_most, progress
from bench.run import Bench

EMPTY_SECONDS = 1.0
KILLED_SECONDS = 3.0
LOAD_SECONDS = 1.0


def start(bench: Bench) -> Iterator[Result]:
    """Yield both results."""
    progress("  start to ready")
    yield started({"folder": "empty"}, [_empty(bench) for _ in range(bench.plan.pairs)], EMPTY_SECONDS)
    yield started({"folder": "after a kill"}, [_killed(bench) for _ in range(bench.plan.pairs)], KILLED_SECONDS)


def started(params: dict[str, int | str], seconds: list[float], allowed: float) -> Result:
    """Return the result of some starts."""
    return Result(
        "start",
        params,
        {"seconds": median(seconds), "slowest_seconds": max(seconds)},
        median(seconds) / allowed,
        f"{allowed:g} s",
        at_most(1),
    )


def _empty(bench: Bench) -> float:
    with bench.service() as service:
        return service.seconds_to_ready


def _killed(bench: Bench) -> float:
    with bench.data_folder() as data:
        service = Service(data)
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "start", 1)
        load = RunningLoad(bench.job(service, Publish([topic]), 16, seconds=60))
        time.sleep(LOAD_SECONDS)
        service.kill()
        load.abandon()
        return restarted(data)


def restarted(data: Path) -> float:
    """Start the service on a folder, stop it, and return the seconds it took to be ready."""
    service = Service(data)
    service.stop()
    return service.seconds_to_ready
