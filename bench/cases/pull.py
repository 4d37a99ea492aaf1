"""Pull: 1, 100 and 1000 messages at 16 connections, each with a subscription of its own, spread over a backlog."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Consume, Publish, Pull
from bench.processes import Server, Service
from bench.report import Goal, Result, at_least
from bench.run import Bench, figures, messages_per_second, middle, requests_per_second
from bench.stats import median

CONNECTIONS = 16
SIZES: tuple[tuple[int, Goal | None], ...] = ((1, None), (100, at_least(10)), (1000, None))
"""Messages a pull, and the goal: messages for each request the bare handler answers to a publish of 1."""


def pull(bench: Bench) -> Iterator[Result]:
    """Yield a result for each size of a pull, then for pulling and acknowledging in turn."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "pull", 1)
        subscriptions = preparing.subscriptions(service, [topic], CONNECTIONS)
        preparing.fill(service, [topic], bench.plan.backlog)
        preparing.spread(service, subscriptions, bench.plan.backlog)
        for size, goal in SIZES:
            yield _result(bench, service, bare, "pull", Pull(subscriptions, size), goal)
        yield _result(bench, service, bare, "consume", Consume(subscriptions, 100), None)


def _result(bench: Bench, service: Service, bare: Server, case: str, work: Pull | Consume, goal: Goal | None) -> Result:
    pairs = bench.in_turn(
        f"{case} {work.messages} at {CONNECTIONS} connections",
        lambda: bench.load(service, work, CONNECTIONS),
        lambda: bench.load(bare, Publish(["projects/BENCH/topics/bare"]), CONNECTIONS),
    )
    bare_rate = middle([each for _, each in pairs], requests_per_second)
    return Result(
        case,
        {"messages": work.messages, "connections": CONNECTIONS},
        figures([each for each, _ in pairs]) | {"bare_requests_s": bare_rate},
        median(messages_per_second(ours) / requests_per_second(theirs) for ours, theirs in pairs),
        "messages for each publish 1 of the bare handler",
        goal,
    )
