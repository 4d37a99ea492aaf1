"""Acknowledge at 64 connections, each moving a cursor of its own, against the bare handler's publish of 1."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Acknowledge, Publish
from bench.report import Result, at_least
from bench.run import Bench, figures, median_ratio, middle, requests_per_second

CONNECTIONS = 64
BATCH = 5000
"""Messages handed out at once and acknowledged one by one; small ones, as an acknowledgement never sees them."""
SMALL = 64


def acknowledge(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "ack", 1)
        subscriptions = preparing.subscriptions(service, [topic], CONNECTIONS)
        preparing.fill(service, [topic], BATCH, size=SMALL)
        pairs = bench.in_turn(
            f"acknowledge at {CONNECTIONS} connections",
            lambda: bench.load(service, Acknowledge(subscriptions, BATCH), CONNECTIONS),
            lambda: bench.load(bare, Publish([topic]), CONNECTIONS),
        )
        yield Result(
            "ack",
            {"connections": CONNECTIONS},
            figures([each for each, _ in pairs])
            | {"bare_requests_s": middle([each for _, each in pairs], requests_per_second)},
            median_ratio(pairs, requests_per_second),
            "requests/s of the bare handler",
            at_least(0.6),
        )
