"""Metrics with many topics, subscriptions and members, against an empty list: one connection, one request at a time."""

import itertools
import time
from collections.abc import Iterator, Sequence
from statistics import median

import uvloop

from bench import preparing
from bench.connection import Address, SerialClient, connect, request
from bench.processes import Failed, Service
from bench.report import Result, at_most, progress
from bench.run import Bench

REQUESTS = 50
"""Of each route in one measurement."""
SETTLE_SECONDS = 3.0
"""Time for what was published to be counted into its days."""
EMPTY_LIST = "projects/EMPTY/topics"


def metrics(bench: Bench) -> Iterator[Result]:
    """Yield a result for each route that returns metrics."""
    with bench.service() as service:
        preparing.project(service, "EMPTY")
        routes = _prepared(bench, service)
        time.sleep(SETTLE_SECONDS)
        for route in routes:
            pairs = bench.in_turn(
                f"{route} with {bench.plan.topics} topics",
                lambda route=route: _seconds(service, route),  # type: ignore[misc]  # bound now, not when called
                lambda: _seconds(service, EMPTY_LIST),
            )
            yield Result(
                "metrics",
                {"route": route.partition("?")[0], "topics": bench.plan.topics},
                {"p50_ms": 1000 * median(each for each, _ in pairs)},
                median(ours / empty for ours, empty in pairs),
                "time of an empty list",
                at_most(5),
            )


def _prepared(bench: Bench, service: Service) -> Sequence[str]:
    """Make a project with many topics, each with a subscription, a message and a member; return what is asked for."""
    project, many = preparing.project(service, "BENCH"), bench.plan.topics
    progress(f"  making {many} topics, subscriptions and members")
    topics = preparing.topics(service, project, "many", many)
    subscriptions = preparing.subscriptions(service, topics, many)
    preparing.members(service, "BENCH", many)
    preparing.fill(service, topics, 1)
    return [
        "metrics",
        "metrics/va_metrics",
        "metrics/va_metrics?projects=BENCH",
        "users/usageReport",
        f"{project}:metrics",
        f"{topics[0]}:metrics",
        f"{subscriptions[0]}:metrics",
    ]


def _seconds(service: Service, path: str) -> float:
    return uvloop.run(_median_of(service, path))


async def _median_of(service: Service, path: str) -> float:
    asker = SerialClient(await connect(Address.of(service.url)))
    ask = request("GET", f"/v1/{path}", service.token)
    taken = []
    for _ in itertools.repeat(None, REQUESTS):
        began = time.perf_counter()
        answer = await asker.ask(ask)
        taken.append(time.perf_counter() - began)
        if answer.status != 200:
            raise Failed(f"GET /v1/{path} was answered {answer.status}")
    asker.close()
    return median(taken)
