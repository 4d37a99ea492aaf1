"""From a publish to the answer of a pull that waits for it, with one publisher and one consumer."""

from collections.abc import Iterator

from bench import preparing
from bench.report import Result, at_most, progress
from bench.run import Bench
from bench.wake import wakes


def wake(bench: Bench) -> Iterator[Result]:
    """Yield the one result. A publish on the idle service is the yardstick: both wait for the disk once."""
    with bench.service() as service:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "wake", 1)
        subscriptions = preparing.subscriptions(service, topics, 1)
        wakes(service, topics, subscriptions, 20)
        progress("  wake-up of a waiting pull")
        found = wakes(service, topics, subscriptions, bench.plan.wakes)
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
