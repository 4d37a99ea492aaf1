"""One greedy tenant beside modest ones: what 10 MB bodies or pulls of a cold backlog do to the others' p99."""

import time
from collections.abc import Callable, Iterator

from bench import preparing
from bench.callers import Consume, Publish, Work
from bench.disk import forget
from bench.processes import Service
from bench.report import Result, at_most
from bench.run import Bench, middle, p99
from bench.tally import Outcome

GREEDY_CONNECTIONS = 16
MODEST_CONNECTIONS = 64
MODEST_RATE = 200.0
"""Publishes a second of the others: an open loop, so that waiting shows as latency and not as fewer requests."""
BIG_MESSAGE = 1_040_000
BIG_MESSAGES = 7
"""Seven messages near the limit make a body of 9.7 MB."""
SETTLE_SECONDS = 1.0
"""What the greedy tenant left on its way is done by then, and does not hit the others while they are alone."""
ALLOWED_FOR_BIG_BODIES = 0.060
"""Seconds beyond three times: decoding and checking a body of 10 MB cannot be shared."""


def tenants(bench: Bench) -> Iterator[Result]:
    """Yield a result for each kind of greed."""
    with bench.service() as service:
        modest = preparing.topics(service, preparing.project(service, "MODEST"), "topic", 8)
        greedy = preparing.topics(service, preparing.project(service, "GREEDY"), "topic", 16)
        big = Publish(greedy, BIG_MESSAGES, BIG_MESSAGE)
        yield _result(bench, service, modest, "10 MB bodies", big, ALLOWED_FOR_BIG_BODIES, lambda: None)

        cold = preparing.topics(service, "projects/GREEDY", "cold", 1)
        pullers = preparing.subscriptions(service, cold, GREEDY_CONNECTIONS)
        preparing.fill(service, cold, 10 * bench.plan.backlog)

        def cool() -> None:
            preparing.spread(service, pullers, 10 * bench.plan.backlog)
            forget(service.data)

        yield _result(bench, service, modest, "cold backlog", Consume(pullers, 1000), 0.0, cool)


def _result(
    bench: Bench,
    service: Service,
    topics: list[str],
    greed: str,
    work: Work,
    allowed: float,
    before: Callable[[], None],
) -> Result:
    def alone() -> Outcome:
        return bench.load(service, Publish(topics), MODEST_CONNECTIONS, MODEST_RATE)

    def beside() -> Outcome:
        before()
        others, greedy = bench.beside(service, work, GREEDY_CONNECTIONS, alone)
        eaten.append(greedy)
        time.sleep(SETTLE_SECONDS)
        return others

    eaten: list[Outcome] = []
    pairs = bench.in_turn(f"others beside a tenant with {greed}", alone, beside)
    quiet, loud = middle([each for each, _ in pairs], p99), middle([each for _, each in pairs], p99)
    return Result(
        "tenants",
        {"greed": greed, "connections": GREEDY_CONNECTIONS},
        {
            "others_p99_ms": 1000 * loud,
            "others_alone_p99_ms": 1000 * quiet,
            "greedy_requests_s": middle(eaten, lambda each: each.requests_per_second),
        },
        loud / (3 * quiet + allowed),
        f"3 times alone + {1000 * allowed:g} ms" if allowed else "3 times alone",
        at_most(1),
    )
