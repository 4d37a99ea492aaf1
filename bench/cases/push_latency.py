"""From a publish to its delivery, with a hundred subscriptions that are used."""

from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.callers import Publish
from bench.push import PROJECT, endpoints, latencies, make, publish, receivers, steady_latencies, topic
from bench.report import Result, at_most, percentile
from bench.run import Bench

SUBSCRIPTIONS = 100
RATE = 100.0
"""Publishes a second in all."""
LEAST_SECONDS = 5.0
"""So that there are enough deliveries for a 99th part of them."""
P99_SECONDS = 0.1


def push_latency(bench: Bench) -> Iterator[Result]:
    """Yield the results of half of the deliveries, and of all but one in a hundred.

    The yardstick of the first is a publish on the idle service: both wait for the disk once.
    """
    seconds = max(bench.plan.seconds, LEAST_SECONDS)
    with receivers(bench, more_ports=SUBSCRIPTIONS) as to, bench.service(*to.flags()) as service:
        all_of_them = endpoints(iter(to.receiving.more("")), "ok", SUBSCRIPTIONS)
        make(service, to.receiving.ca, all_of_them)
        topics = [topic(each) for each in all_of_them]
        [idle] = preparing.topics(service, f"projects/{PROJECT}", "idle", 1)
        publish(service, topics, RATE, SUBSCRIPTIONS)  # connections are made
        latencies(to.receiving, "/ok/", SUBSCRIPTIONS)

        def deliveries() -> list[float]:
            return steady_latencies(service, to, "/ok/", topics, RATE, seconds)

        def requests() -> float:
            return bench.load(service, Publish([idle]), 1).p50

        pairs = bench.in_turn("deliveries of a hundred subscriptions, beside publishes", deliveries, requests)
    p50 = median(percentile(each, 50) for each, _ in pairs)
    p99 = median(percentile(each, 99) for each, _ in pairs)
    request = median(each for _, each in pairs)
    params: dict[str, int | str] = {"subscriptions": SUBSCRIPTIONS}
    figures = {"p50_ms": 1000 * p50, "p99_ms": 1000 * p99, "idle_request_p50_ms": 1000 * request}
    yield Result("push-latency", params, figures, p50 / request, "p50 of a publish on the idle service", at_most(10))
    yield Result("push-latency-p99", params, figures, p99 / P99_SECONDS, "100 ms", at_most(1))
