"""Noisy neighbour: p99 of modest tenants beside a flooder in the same service.

The same flood also runs against a second service, which shares only processors and disk. The ratio of both p99 shows
the service's own part.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench import preparing
from bench.callers import Consume, Publish, Read, Work
from bench.kernel import forget
from bench.load import Outcome
from bench.processes import Service
from bench.report import Result, at_most
from bench.run import Bench, middle, p99

GREEDY_CONNECTIONS = 16
THOUSAND = 1000
READERS = 10
RANGE = 2000
MODEST_CONNECTIONS = 64
MODEST_RATE = 200.0
"""Publishes a second of the others: an open loop, so that waiting shows as latency and not as fewer requests."""
BIG_MESSAGE = 1_040_000
BIG_MESSAGES = 7
"""Seven messages near the limit make a body of 9.7 MB."""
SETTLE_SECONDS = 1.0
"""Pause after a flood, so that its last requests do not disturb the next measurement."""
MAX_P99_RATIO = 1.5
"""Limit of the p99 ratio to the same flood in another service."""
ALLOWED_FOR_BIG_BODIES = 0.060
"""Extra seconds beyond three times: decoding and checking a body of 10 MB cannot be shared."""


class Greed(NamedTuple):
    """A load that takes as much as it can get."""

    name: str
    work: Work
    connections: int = GREEDY_CONNECTIONS
    before: Callable[[], None] | None = None
    """Preparation before each measurement."""
    allowed: float | None = None
    """Extra seconds beyond three times the others' p99 alone; None when that is not judged."""


class Turn(NamedTuple):
    """The others' publishes, three times: alone, beside greed in another service, and beside the same in their own."""

    alone: Outcome
    apart: Outcome
    shared: Outcome
    greedy_apart: Outcome
    greedy_shared: Outcome


def tenants(bench: Bench) -> Iterator[Result]:
    with bench.service() as shared, bench.service() as apart:
        modest = preparing.topics(shared, preparing.project(shared, "MODEST"), "topic", 8)
        for here, there in zip(_greeds(bench, shared), _greeds(bench, apart), strict=True):
            yield from _results(here, _turns(bench, Publish(modest), (shared, here), (apart, there)))


def _greeds(bench: Bench, service: Service) -> Iterator[Greed]:
    """Yield the kinds of greed that this service supports."""
    project = preparing.project(service, "GREEDY")
    topics = preparing.topics(service, project, "topic", 16)
    big = Publish(topics, BIG_MESSAGES, BIG_MESSAGE)
    yield Greed("10 MB bodies", big, allowed=ALLOWED_FOR_BIG_BODIES)
    yield Greed("a thousand connections", Publish(topics), THOUSAND)

    backlog = 10 * bench.plan.backlog
    [cold] = preparing.topics(service, project, "cold", 1)
    pullers = preparing.subscriptions(service, [cold], GREEDY_CONNECTIONS)
    preparing.fill(service, [cold], backlog)

    def cool() -> None:
        preparing.spread(service, pullers, backlog)
        forget(service.data)

    yield Greed("cold backlog", Consume(pullers, 1000), before=cool, allowed=0.0)
    yield Greed("Arrow range reads", Read(cold, RANGE, backlog, "application/vnd.apache.arrow.stream"), READERS)


def _turns(bench: Bench, modest: Work, here: tuple[Service, Greed], there: tuple[Service, Greed]) -> list[Turn]:
    def alone() -> Outcome:
        return bench.load(here[0], modest, MODEST_CONNECTIONS, MODEST_RATE)

    def beside(where: Service, greed: Greed) -> tuple[Outcome, Outcome]:
        if greed.before:
            greed.before()
        found = bench.beside(where, greed.work, greed.connections, alone)
        time.sleep(SETTLE_SECONDS)
        return found

    pairs = bench.in_turn(
        f"others beside a tenant with {here[1].name}", lambda: (alone(), beside(*there)), lambda: beside(*here)
    )
    return [
        Turn(quiet, apart, shared, greedy_apart, greedy_shared)
        for (quiet, (apart, greedy_apart)), (shared, greedy_shared) in pairs
    ]


def _results(greed: Greed, turns: list[Turn]) -> Iterator[Result]:
    alone, apart, shared, greedy_apart, greedy_shared = (list(each) for each in zip(*turns, strict=True))
    params: dict[str, int | str] = {"greed": greed.name, "connections": greed.connections}
    values = {
        "others_p99_ms": 1000 * middle(shared, p99),
        "apart_p99_ms": 1000 * middle(apart, p99),
        "alone_p99_ms": 1000 * middle(alone, p99),
        "greedy_requests_s": middle(greedy_shared, lambda each: each.requests_per_second),
        "greedy_apart_requests_s": middle(greedy_apart, lambda each: each.requests_per_second),
    }
    against = "p99 beside the same greed in another service"
    yield Result("tenants", params, values, middle(shared, p99) / middle(apart, p99), against, at_most(MAX_P99_RATIO))
    if greed.allowed is None:
        return
    ratio = middle(shared, p99) / (3 * middle(alone, p99) + greed.allowed)
    against = f"3 times alone + {1000 * greed.allowed:g} ms" if greed.allowed else "3 times alone"
    yield Result("tenants-alone", params, {}, ratio, against, at_most(1))
