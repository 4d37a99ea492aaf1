"""From a publish to the answer of a pull that waits for it, with one publisher and one consumer.

In the cluster shape the pull waits at another node than the one that is published through.
"""

from collections.abc import Iterator

from bench import preparing
from bench.beside import Batches, Job, beside
from bench.cluster import parts
from bench.processes import Service
from bench.report import Result, at_most, progress
from bench.run import Bench
from bench.wake import Wakes, wakes

ROUND_TRIPS = 25
"""The goal in the cluster: 50 ms where a broker's round trip takes 2."""


def wake(bench: Bench) -> Iterator[Result]:
    """Yield the one result. A publish on the idle service is the yardstick: both wait for the disk once."""
    with bench.service() as service:
        found = _found(bench, service, service)
        yield Result(
            "wake",
            {"tries": bench.plan.wakes},
            {
                "p50_ms": 1000 * found.p50,
                "p99_ms": 1000 * found.p99,
                "idle_request_p50_ms": 1000 * found.publish_p50,
            },
            found.p99 / found.publish_p50,
            "p50 of a publish on the idle service",
            at_most(15),
        )


def cluster_wake(bench: Bench) -> Iterator[Result]:
    """Yield the one result: published through one node, waited for at another."""
    with parts(bench) as there, there.nodes(2) as [publishing, waiting]:
        found = _found(bench, publishing, waiting)
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


def _found(bench: Bench, publishing: Service, waiting: Service) -> Wakes:
    topics = preparing.topics(publishing, preparing.project(publishing, "BENCH"), "wake", 1)
    subscriptions = preparing.subscriptions(publishing, topics, 1)
    wakes(publishing, topics, subscriptions, 20, waiting)
    progress("  wake-up of a waiting pull")
    return wakes(publishing, topics, subscriptions, bench.plan.wakes, waiting)
