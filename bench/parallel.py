"""Parallel subscriptions: sixteen consumers of one, against sixteen consumers of an ordered subscription each."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Consume, Lease
from bench.report import Result, at_least
from bench.run import Bench, compared, messages_per_second

CONNECTIONS = 16
PULL = 100


def parallel(bench: Bench) -> Iterator[Result]:
    with bench.service() as service:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "parallel", 1)
        ordered = preparing.subscriptions(service, [topic], CONNECTIONS, "ordered")
        shared = preparing.subscriptions(service, [topic], 1, "parallel", parallel=True)
        preparing.fill(service, [topic], bench.plan.backlog)
        preparing.spread(service, ordered, bench.plan.backlog)
        pairs = bench.loads(
            f"pull {PULL} and acknowledge at {CONNECTIONS} connections, one parallel subscription or ordered ones",
            (service, Lease(shared, PULL)),
            (service, Consume(ordered, PULL)),
            CONNECTIONS,
        )
    params: dict[str, int | str] = {"messages": PULL, "connections": CONNECTIONS}
    against = "messages/s of as many ordered subscriptions"
    yield compared("parallel", params, pairs, "ordered_messages_s", against, at_least(0.5), messages_per_second)
