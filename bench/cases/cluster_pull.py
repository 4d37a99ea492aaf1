"""Pull from Kafka: at the tail, and catching up far behind it, against the embedded log."""

import time
from collections.abc import Iterator

from bench import preparing
from bench.callers import Consume, Pull
from bench.cluster import parts
from bench.processes import RunningLoad, Service
from bench.report import Result, at_least, at_most
from bench.run import Bench, figures, median_ratio, messages_per_second, middle, p99
from bench.stats import median
from bench.tally import Outcome

CONNECTIONS = 16
TAIL = 20_000
"""Messages of 1 KiB in the topic."""
NEWEST = 100
"""Of these, those that subscriptions at the tail stand before."""
BEHIND = 10
"""Subscriptions that catch up."""
CATCH_UP_PULL = 1000
TAIL_RATE = 200.0
"""Pulls a second at the tail beside those who catch up: an open loop, so that waiting shows."""
HEAD_START_SECONDS = 1.0


def cluster_pull(bench: Bench) -> Iterator[Result]:
    """Yield the result at the tail, then those of catching up."""
    with parts(bench) as there, there.service() as node, bench.service() as embedded:
        ours, theirs = _at_the_tail(node), _at_the_tail(embedded)
        pairs = bench.in_turn(
            f"pull 100 at the tail, {CONNECTIONS} connections",
            lambda: bench.load(node, Pull(ours, NEWEST), CONNECTIONS),
            lambda: bench.load(embedded, Pull(theirs, NEWEST), CONNECTIONS),
        )
        rates = [messages_per_second(each) for _, each in pairs]
        yield Result(
            "cluster-pull",
            {"messages": 100, "connections": CONNECTIONS},
            figures([each for each, _ in pairs]) | {"embedded_messages_s": median(rates)},
            median_ratio(pairs, messages_per_second),
            "messages/s of the embedded log",
            at_least(0.7),
        )
        yield from _catching_up(bench, node, ours, median(rates))


def _at_the_tail(service: Service) -> list[str]:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "tail", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, TAIL)
    preparing.seek(service, ((name, TAIL - NEWEST) for name in subscriptions))
    return subscriptions


def _catching_up(bench: Bench, node: Service, tail: list[str], embedded: float) -> Iterator[Result]:
    messages = 10 * bench.plan.backlog
    topics = preparing.topics(node, "projects/BENCH", "long", 1)
    behind = preparing.subscriptions(node, topics, BEHIND)
    preparing.fill(node, topics, messages)
    caught: list[Outcome] = []

    def alone() -> Outcome:
        return bench.load(node, Pull(tail, 10), CONNECTIONS, TAIL_RATE)

    def beside() -> Outcome:
        preparing.seek(node, ((name, 0) for name in behind))
        seconds = bench.plan.seconds + 2 * HEAD_START_SECONDS
        catching = RunningLoad(bench.job(node, Consume(behind, CATCH_UP_PULL), BEHIND, seconds=seconds))
        time.sleep(HEAD_START_SECONDS)
        found = alone()
        caught.append(catching.outcome())
        return found

    pairs = bench.in_turn(f"{BEHIND} subscriptions catch up beside pulls at the tail", alone, beside)
    yield Result(
        "cluster-catch-up",
        {"subscriptions": BEHIND, "backlog": messages},
        figures(caught) | {"embedded_pull_100_messages_s": embedded},
        middle(caught, messages_per_second) / embedded,
        "messages/s of pulling 100 from the embedded log",
        at_least(0.5),
    )
    quiet, loud = middle([each for each, _ in pairs], p99), middle([each for _, each in pairs], p99)
    yield Result(
        "cluster-catch-up-tail",
        {"subscriptions": BEHIND, "rate": int(TAIL_RATE)},
        {"tail_p99_ms": 1000 * loud, "alone_p99_ms": 1000 * quiet},
        loud / quiet,
        "p99 of the tail alone",
        at_most(2),
    )
