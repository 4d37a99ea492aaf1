"""Counting: publish 1 and pull 100 of the service, against the same without counters."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Publish, Pull
from bench.processes import Service
from bench.report import Result, at_least
from bench.run import Bench, figures, median_ratio, middle, requests_per_second

CONNECTIONS = 16
BACKLOG = 20_000


def counting(bench: Bench) -> Iterator[Result]:
    """Yield the ratio of requests a second with counters to those without."""
    with bench.service() as counted, bench.service(program="bench.uncounted") as uncounted:
        works = [(_publish(each), _pull(each)) for each in (counted, uncounted)]
        for case, ours, theirs in zip(("publish", "pull"), *works, strict=True):
            yield _result(bench, case, (counted, ours), (uncounted, theirs))


def _publish(service: Service) -> Publish:
    return Publish(preparing.topics(service, preparing.project(service, "BENCH"), "counting", 1))


def _pull(service: Service) -> Pull:
    topics = preparing.topics(service, preparing.project(service, "PULLS"), "counting", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, BACKLOG)
    preparing.spread(service, subscriptions, BACKLOG)
    return Pull(subscriptions, 100)


def _result(
    bench: Bench, case: str, ours: tuple[Service, Publish | Pull], theirs: tuple[Service, Publish | Pull]
) -> Result:
    pairs = bench.in_turn(
        f"{case} with counters and without",
        lambda: bench.load(*ours, CONNECTIONS),
        lambda: bench.load(*theirs, CONNECTIONS),
    )
    return Result(
        "counting",
        {"case": case, "connections": CONNECTIONS},
        figures([each for each, _ in pairs])
        | {"uncounted_requests_s": middle([each for _, each in pairs], requests_per_second)},
        median_ratio(pairs, requests_per_second),
        "requests/s without counters",
        at_least(0.95),
    )
