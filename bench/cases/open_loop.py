"""Open loop: requests come whether the service is done or not, at 20, 80 and 200 % of what it can do."""

import threading
from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.callers import Publish
from bench.processes import Service, load
from bench.report import Result, at_least, at_most, progress
from bench.run import Bench, figures, middle, p99, requests_per_second
from bench.tally import Outcome

CONNECTIONS = 256
"""Of the maximum and of the open loops alike: with 1,000 even the bare handler does half of what it does with 64."""
MEMORY = 250 * 10**6
SAMPLE_SECONDS = 0.5


def open_loop(bench: Bench) -> Iterator[Result]:
    """Yield results for latency under growing load and for overload."""
    with bench.service() as service:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "open", 8)
        progress(f"  the maximum: publish 1 at {CONNECTIONS} connections")
        maximum = median(
            bench.load(service, Publish(topics), CONNECTIONS).requests_per_second for _ in range(bench.plan.pairs)
        )
        yield _steady(bench, service, topics, maximum)
        yield from _overload(bench, service, topics, maximum)


def _steady(bench: Bench, service: Service, topics: list[str], maximum: float) -> Result:
    pairs = bench.in_turn(
        "open loop at 20 and 80 % of the maximum",
        lambda: bench.load(service, Publish(topics), CONNECTIONS, 0.2 * maximum),
        lambda: bench.load(service, Publish(topics), CONNECTIONS, 0.8 * maximum),
    )
    calm, busy = [each for each, _ in pairs], [each for _, each in pairs]
    return Result(
        "open",
        {"percent": 80, "connections": CONNECTIONS},
        figures(busy)
        | {"calm_p99_ms": 1000 * middle(calm, p99), "maximum_requests_s": maximum, "unsent": _unsent(busy)},
        median(loud.p99 / quiet.p99 for quiet, loud in pairs),
        "p99 at 20 % of the maximum",
        at_most(5),
    )


def _overload(bench: Bench, service: Service, topics: list[str], maximum: float) -> Iterator[Result]:
    seconds = bench.plan.overload_seconds
    progress(f"  open loop at 200 % of the maximum for {seconds:g} s")
    memory = service.anonymous_memory()
    with _Highest(service) as highest:
        outcome = load(bench.job(service, Publish(topics), CONNECTIONS, rate=2 * maximum, seconds=seconds))
    yield Result(
        "open",
        {"percent": 200, "connections": CONNECTIONS},
        figures([outcome]) | {"maximum_requests_s": maximum, "unsent": outcome.unsent},
        requests_per_second(outcome) / maximum,
        "accepted to the maximum",
        at_least(0.9),
    )
    yield Result(
        "open-memory",
        {"percent": 200, "connections": CONNECTIONS},
        {"before_mb": memory / 10**6, "highest_mb": highest.bytes / 10**6},
        highest.bytes / MEMORY,
        "250 MB",
        at_most(1),
    )
    yield Result(
        "open-refusals",
        {"percent": 200, "connections": CONNECTIONS},
        {"refused": sum(outcome.refused.values()), "not_retryable": outcome.not_retryable},
        outcome.not_retryable,
        "refusals without Retry-After",
        at_most(0),
    )


def _unsent(outcomes: list[Outcome]) -> float:
    return middle(outcomes, lambda each: each.unsent)


class _Highest:
    """Watches the memory of a service while the block runs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.bytes = 0

    def __enter__(self) -> "_Highest":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self.bytes = max(self.bytes, self._service.anonymous_memory())
