"""Publish through one node and one broker: against a bare loop of explicit batches, and against the embedded log."""

import secrets
from collections.abc import Iterator

from bench import preparing
from bench.beside import Batches, Job, beside
from bench.callers import Publish
from bench.cluster import Parts, parts
from bench.processes import Service
from bench.report import Result, at_least
from bench.run import Bench, figures, median_ratio, messages_per_second, middle, requests_per_second
from bench.stats import median

CALLERS = 16
SINGLE_CALLERS = 64


def cluster_publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for requests of 100, then for those of 1."""
    with parts(bench) as there, there.service() as node, bench.service() as embedded:
        yield _against_batches(bench, there, node, _topics(node))
        yield _against_embedded(bench, node, embedded, _topics(node, "single"), _topics(embedded))


def _topics(service: Service, project: str = "BENCH") -> list[str]:
    return preparing.topics(service, preparing.project(service, project), "publish", 1)


def _against_batches(bench: Bench, there: Parts, node: Service, topics: list[str]) -> Result:
    def bare_loop() -> float:
        work = Batches(there.brokers.servers, f"bare-{secrets.token_hex(4)}", CALLERS, 100)
        return beside(Job(work, bench.plan.seconds)).per_second

    pairs = bench.in_turn(
        f"publish 100 at {CALLERS} connections", lambda: bench.load(node, Publish(topics, 100), CALLERS), bare_loop
    )
    return Result(
        "cluster-publish",
        {"messages": 100, "connections": CALLERS},
        figures([ours for ours, _ in pairs]) | {"bare_batches_messages_s": median(theirs for _, theirs in pairs)},
        median(messages_per_second(ours) / theirs for ours, theirs in pairs),
        "messages/s of a bare loop of explicit batches",
        at_least(0.4),
    )


def _against_embedded(bench: Bench, node: Service, embedded: Service, ours: list[str], theirs: list[str]) -> Result:
    pairs = bench.in_turn(
        f"publish 1 at {SINGLE_CALLERS} connections",
        lambda: bench.load(node, Publish(ours), SINGLE_CALLERS),
        lambda: bench.load(embedded, Publish(theirs), SINGLE_CALLERS),
    )
    return Result(
        "cluster-publish",
        {"messages": 1, "connections": SINGLE_CALLERS},
        figures([each for each, _ in pairs])
        | {"embedded_requests_s": middle([each for _, each in pairs], requests_per_second)},
        median_ratio(pairs, requests_per_second),
        "requests/s of the embedded log",
        at_least(0.5),
    )
