"""Start to ready: with an empty folder, after a kill under load, and with a full folder; and memory with that one.

"Ready" is the line `ready URL` of the process. The full folder holds `large_backlog` messages, or fewer when the disk
is small. Pulls from its oldest messages are compared with pulls from a small backlog.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench import preparing
from bench.callers import Publish, Pull
from bench.processes import RunningLoad, Service
from bench.report import Result, at_most, progress
from bench.run import Bench, figures, median_ratio, messages_per_second, middle

EMPTY_SECONDS = 1.0
KILLED_SECONDS = 3.0
LOAD_SECONDS = 1.0
CONNECTIONS = 16
PULL = 100
SMALL_BACKLOG = 1000
MIN_FREE_BYTES_PER_MESSAGE = 3000
"""Twice what a message takes on the disk."""
MEMORY_BYTES = 250 * 10**6


def start(bench: Bench) -> Iterator[Result]:
    """Yield the results of all starts, of pulls from a full folder, and of memory."""
    progress("  start to ready")
    yield _started("empty", [_empty(bench) for _ in range(bench.plan.pairs)], EMPTY_SECONDS)
    yield _started("after a kill", [_killed(bench) for _ in range(bench.plan.pairs)], KILLED_SECONDS)
    messages = min(bench.plan.large_backlog, shutil.disk_usage(bench.folder).free // MIN_FREE_BYTES_PER_MESSAGE)
    if messages < bench.plan.large_backlog:
        progress(f"  the disk has space for {messages} messages only")
    with bench.data_folder() as data:
        with Service(data) as service:
            yield from _full(bench, service, messages)
            service.kill()
        yield _started(f"{messages} messages, after a kill", [_restarted(data)], KILLED_SECONDS)
        again = [_restarted(data) for _ in range(bench.plan.pairs)]
        yield _started(f"{messages} messages", again, KILLED_SECONDS)


def _started(folder: str, seconds: list[float], allowed: float) -> Result:
    values = {"seconds": median(seconds), "slowest_seconds": max(seconds)}
    return Result("start", {"folder": folder}, values, median(seconds) / allowed, f"{allowed:g} s", at_most(1))


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
        return _restarted(data)


def _restarted(data: Path) -> float:
    """Start the service on a folder, stop it, and return the seconds until it was ready."""
    service = Service(data)
    service.stop()
    return service.seconds_to_ready


def _full(bench: Bench, service: Service, messages: int) -> Iterator[Result]:
    project = preparing.project(service, "BENCH")
    [small] = preparing.topics(service, project, "small", 1)
    [large] = preparing.topics(service, project, "large", 1)
    few = preparing.subscriptions(service, [small], CONNECTIONS)
    many = preparing.subscriptions(service, [large], CONNECTIONS)
    preparing.fill(service, [small], SMALL_BACKLOG)
    progress(f"  publishing {messages} messages")
    preparing.fill(service, [large], messages)
    memory = [service.anonymous_memory()]
    what = f"pull {PULL} from the oldest of {SMALL_BACKLOG} and {messages}"
    pairs = bench.loads(what, (service, Pull(few, PULL)), (service, Pull(many, PULL)), CONNECTIONS)
    memory.append(service.anonymous_memory())
    yield Result(
        "backlog",
        {"backlog": messages, "messages": PULL, "connections": CONNECTIONS},
        figures([large for _, large in pairs])
        | {"small_backlog_messages_s": middle([small for small, _ in pairs], messages_per_second)},
        median_ratio(pairs, messages_per_second),
        f"times slower than a backlog of {SMALL_BACKLOG}",
        at_most(1.2),
    )
    yield Result(
        "memory",
        {"stored": messages},
        {"anonymous_mb": max(memory) / 10**6, "data_folder_mb": service.disk_usage() / 10**6},
        max(memory) / MEMORY_BYTES,
        "250 MB",
        at_most(1),
    )
