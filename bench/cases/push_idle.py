"""A thousand subscriptions that are delivered and get nothing: what they cost, beside a thousand that are pulled."""

import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench import preparing
from bench.cluster import parts
from bench.processes import Service
from bench.push import PROJECT, Receivers, endpoints, make, receivers
from bench.report import Result, at_most, progress
from bench.run import FULL, Bench

SUBSCRIPTIONS = 1000
PORTS = 20
SECONDS, QUICK_SECONDS = 20.0, 5.0
SETTLE_SECONDS = 3.0
CPU = 0.03
"""Of one core."""
MEMORY = 100e6


class Idle(NamedTuple):
    """What a service costs that does nothing."""

    cpu: float
    """Share of one core."""
    memory: int


def push_idle(bench: Bench) -> Iterator[Result]:
    """Yield the results of processor and memory, of the embedded shape."""
    with receivers(bench, PORTS) as to, bench.service(*to.flags()) as pushes, bench.service() as pulls:
        yield from _results(bench, "push-idle", to, pushes, pulls)


def cluster_push_idle(bench: Bench) -> Iterator[Result]:
    """Yield the same of one node of the cluster shape."""
    with (
        parts(bench) as cluster,
        receivers(bench, PORTS) as to,
        cluster.service(*to.flags()) as pushes,
        cluster.service() as pulls,
    ):
        yield from _results(bench, "cluster-push-idle", to, pushes, pulls)


def _results(bench: Bench, case: str, to: Receivers, pushes: Service, pulls: Service) -> Iterator[Result]:
    bases = to.receiving.more("")
    all_of_them = endpoints(iter(bases * (SUBSCRIPTIONS // PORTS)), "ok", SUBSCRIPTIONS)
    progress(f"  {SUBSCRIPTIONS} subscriptions are made, and verified")
    make(pushes, to.receiving.ca, all_of_them)
    names = preparing.topics(pulls, preparing.project(pulls, PROJECT), "topic", SUBSCRIPTIONS)
    preparing.subscriptions(pulls, names, SUBSCRIPTIONS)
    time.sleep(SETTLE_SECONDS)
    seconds = SECONDS if bench.plan == FULL else QUICK_SECONDS
    pairs = bench.in_turn("nothing happens", lambda: _idle(pushes, seconds), lambda: _idle(pulls, seconds))
    cpu = median(each.cpu for each, _ in pairs)
    more = median(each.memory - other.memory for each, other in pairs)
    params: dict[str, int | str] = {"subscriptions": SUBSCRIPTIONS}
    figures = {"cpu_percent": 100 * cpu, "pulled_cpu_percent": 100 * median(each.cpu for _, each in pairs)}
    yield Result(case, params, figures, cpu / CPU, "3 % of a core", at_most(1))
    yield Result(f"{case}-memory", params, {"more_mb": more / 1e6}, more / MEMORY, "100 MB", at_most(1))


def _idle(service: Service, seconds: float) -> Idle:
    began, used = time.perf_counter(), service.processor_seconds()
    time.sleep(seconds)
    share = (service.processor_seconds() - used) / (time.perf_counter() - began)
    return Idle(share, service.anonymous_memory())
