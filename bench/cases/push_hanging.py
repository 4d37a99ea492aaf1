"""Good endpoints beside many that hang, refuse, drip and never end: what the bad ones do to the others' latency."""

import contextlib
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench.processes import Service
from bench.push import Receivers, endpoints, latencies, make, publish, receivers, steady_latencies, topic
from bench.report import Result, at_most, percentile, progress
from bench.run import FULL, Bench
from tests.support.pushed import Endpoint

RATE = 100.0
"""Publishes a second to the good ones, in all."""
LEAST_SECONDS = 5.0
MESSAGES = 3
"""To each bad one, so that it has something to be tried with all the time."""
GOAL = 1.5


class Crowd(NamedTuple):
    """How many endpoints there are of each kind."""

    hanging: int
    refusing: int
    dripping: int
    endless: int
    good: int


CROWD = Crowd(100, 100, 100, 50, 650)
SMALL = Crowd(10, 10, 10, 5, 65)


class HangingResult(NamedTuple):
    """Latencies of the good ones, sorted, and the service's memory."""

    latencies: list[float]
    memory: int


def push_hanging(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    crowd = CROWD if bench.plan == FULL else SMALL
    pairs = bench.in_turn(
        "good endpoints beside bad ones, and alone", lambda: _beside(bench, crowd), lambda: _alone(bench, crowd)
    )
    beside, alone = (median(percentile(each[place].latencies, 99) for each in pairs) for place in (0, 1))
    yield Result(
        "push-hanging",
        crowd._asdict(),
        {
            "p99_ms": 1000 * beside,
            "alone_p99_ms": 1000 * alone,
            "p50_ms": 1000 * median(percentile(each.latencies, 50) for each, _ in pairs),
            "alone_p50_ms": 1000 * median(percentile(each.latencies, 50) for _, each in pairs),
            "memory_mb": median(each.memory for each, _ in pairs) / 1e6,
            "alone_memory_mb": median(each.memory for _, each in pairs) / 1e6,
        },
        median(percentile(each.latencies, 99) / percentile(other.latencies, 99) for each, other in pairs),
        "p99 of the good ones alone",
        at_most(GOAL),
    )


def _alone(bench: Bench, crowd: Crowd) -> HangingResult:
    with receivers(bench, crowd.good) as to, bench.service(*to.flags()) as service:
        return _measured(bench, service, to, _good(service, to, crowd))


def _beside(bench: Bench, crowd: Crowd) -> HangingResult:
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as until_verified:
        to = stack.enter_context(receivers(bench, crowd.good))
        bad = stack.enter_context(receivers(bench, crowd.hanging + crowd.dripping + crowd.endless))
        refusing = until_verified.enter_context(receivers(bench, crowd.refusing))
        flags = to.flags(bad.receiving, refusing.receiving)
        service = stack.enter_context(bench.service(*flags))
        good = _good(service, to, crowd)
        bases = iter(bad.receiving.more(""))
        misbehaving = [
            *endpoints(bases, "hang", crowd.hanging),
            *endpoints(bases, "drip", crowd.dripping),
            *endpoints(bases, "endless", crowd.endless),
        ]
        make(service, bad.receiving.ca, misbehaving)
        gone = endpoints(iter(refusing.receiving.more("")), "refusing", crowd.refusing)
        make(service, refusing.receiving.ca, gone)
        until_verified.close()  # nothing listens there any more
        topics = [topic(each) for each in (*misbehaving, *gone)]
        publish(service, topics, 2 * RATE, MESSAGES * len(topics))
        return _measured(bench, service, to, good)


def _good(service: Service, to: Receivers, crowd: Crowd) -> list[Endpoint]:
    good = endpoints(iter(to.receiving.more("")), "ok", crowd.good)
    make(service, to.receiving.ca, good)
    return good


def _measured(bench: Bench, service: Service, to: Receivers, good: list[Endpoint]) -> HangingResult:
    topics = [topic(each) for each in good]
    publish(service, topics, RATE, len(good))  # connections are made
    latencies(to.receiving, "/ok/", len(good))
    found = steady_latencies(service, to, "/ok/", topics, RATE, max(bench.plan.seconds, LEAST_SECONDS))
    progress(f"    p99 {1000 * percentile(found, 99):.1f} ms, {service.anonymous_memory() / 1e6:.0f} MB")
    return HangingResult(found, service.anonymous_memory())
