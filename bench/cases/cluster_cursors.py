"""Acknowledge in PostgreSQL, and be woken by what was published through another node."""

from collections.abc import Iterator

from bench import preparing
from bench.beside import Batches, Job, Statements, beside
from bench.callers import Acknowledge
from bench.cluster import parts
from bench.report import Result, at_least, at_most, progress
from bench.run import Bench, figures, requests_per_second
from bench.stats import median
from bench.wake import wakes

CONNECTIONS = 64
BATCH = 5000
SMALL = 64
OF_THE_STATEMENT = 10_000 / 35_000
"""The goal: 10,000 a second where the bare grouped statement moves 35,000 cursors."""
ROUND_TRIPS = 25
"""The goal for waking: 50 ms where a broker's round trip takes 2."""


def cluster_ack(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    with parts(bench) as there, there.service() as node:
        topics = preparing.topics(node, preparing.project(node, "BENCH"), "ack", 1)
        subscriptions = preparing.subscriptions(node, topics, CONNECTIONS)
        preparing.fill(node, topics, BATCH, size=SMALL)
        bare = Statements(there.postgres.url(), CONNECTIONS)
        pairs = bench.in_turn(
            f"acknowledge at {CONNECTIONS} connections",
            lambda: bench.load(node, Acknowledge(subscriptions, BATCH), CONNECTIONS),
            lambda: beside(Job(bare, bench.plan.seconds)),
        )
        ours = [each for each, _ in pairs]
        yield Result(
            "cluster-ack",
            {"connections": CONNECTIONS},
            figures(ours) | {"bare_statement_cursors_s": median(each.per_second for _, each in pairs)},
            median(requests_per_second(each) / theirs.per_second for each, theirs in pairs),
            "cursors/s of the bare grouped statement",
            at_least(OF_THE_STATEMENT),
        )


def cluster_wake(bench: Bench) -> Iterator[Result]:
    """Yield the one result: published through one node, waited for at another."""
    with parts(bench) as there, there.nodes(2) as [publishing, waiting]:
        topics = preparing.topics(publishing, preparing.project(publishing, "BENCH"), "wake", 1)
        subscriptions = preparing.subscriptions(publishing, topics, 1)
        wakes(publishing, topics, subscriptions, 20, waiting)
        progress("  wake-up of a pull that waits at another node")
        found = wakes(publishing, topics, subscriptions, bench.plan.wakes, waiting)
        broker = beside(Job(Batches(there.brokers.servers, "round-trip", callers=1, per_request=1), bench.plan.seconds))
        yield Result(
            "cluster-wake",
            {"tries": bench.plan.wakes},
            {
                "p50_ms": 1000 * found.p50,
                "p99_ms": 1000 * found.p99,
                "publish_p50_ms": 1000 * found.publish_p50,
                "broker_round_trip_p50_ms": 1000 * broker.p50,
                "broker_round_trip_p99_ms": 1000 * broker.p99,
            },
            found.p99 / max(broker.p50, 0.002),
            "round trips to the broker (at least 2 ms each)",
            at_most(ROUND_TRIPS),
        )
