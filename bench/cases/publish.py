"""Publish: 1 message a request at 1, 16 and 64 connections, 100 and 1000 at 16, against the bare handler and a file."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Publish
from bench.disk import Syncs, appends
from bench.processes import Server, Service
from bench.report import Goal, Result, at_least, at_most
from bench.run import Bench, figures, median_ratio, middle, p99, requests_per_second
from bench.stats import median
from bench.tally import Outcome

SHAPES: tuple[tuple[int, int, Goal | None], ...] = (
    (1, 1, None),
    (1, 16, None),
    (1, 64, at_least(0.6)),
    (100, 16, at_least(0.4)),
    (1000, 16, None),
)
"""Messages a request, connections, goal of the ratio to the bare handler."""
STORED_MESSAGE = 1450
"""Bytes a message of 1 KiB takes in the log, about: base64 and its place."""


def publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for each shape, then the p99 and the comparison with a raw file."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "publish", 1)
        for per_request, connections, goal in SHAPES:
            pairs = _pairs(bench, service, bare, Publish([topic], per_request), connections)
            ours, theirs = [each for each, _ in pairs], [each for _, each in pairs]
            yield Result(
                "publish",
                {"messages": per_request, "connections": connections},
                figures(ours) | {"bare_requests_s": middle(theirs, requests_per_second)},
                median_ratio(pairs, requests_per_second),
                "requests/s of the bare handler",
                goal,
            )
            if (per_request, connections) == (1, 64):
                yield from _against_the_disk(bench, ours, theirs)


def _pairs(
    bench: Bench, service: Service, bare: Server, work: Publish, connections: int
) -> list[tuple[Outcome, Outcome]]:
    return bench.in_turn(
        f"publish {work.per_request} at {connections} connections",
        lambda: bench.load(service, work, connections),
        lambda: bench.load(bare, work, connections),
    )


def _against_the_disk(bench: Bench, ours: list[Outcome], theirs: list[Outcome]) -> Iterator[Result]:
    syncs = bench.in_turn(
        "append and fdatasync of a raw file",
        lambda: appends(bench.folder, STORED_MESSAGE, bench.plan.seconds / 2),
        lambda: appends(bench.folder, 64 * STORED_MESSAGE, bench.plan.seconds / 2),
    )
    one, group = [each for each, _ in syncs], [each for _, each in syncs]
    allowed = middle(theirs, p99) + 5 * median(each.p99 for each in one)
    yield Result(
        "publish-p99",
        {"messages": 1, "connections": 64},
        {
            "p99_ms": 1000 * middle(ours, p99),
            "bare_p99_ms": 1000 * middle(theirs, p99),
            "fdatasync_p99_ms": 1000 * median(each.p99 for each in one),
        },
        middle(ours, p99) / allowed,
        "p99 of the bare handler + 5 p99 of an fdatasync",
        at_most(1),
    )
    grouped = 64 * median(_rate(each) for each in group)
    yield Result(
        "publish-file",
        {"messages": 1, "connections": 64},
        {"raw_file_messages_s": grouped, "raw_file_fdatasyncs_s": median(_rate(each) for each in one)},
        middle(ours, requests_per_second) / grouped,
        "messages/s of a raw file, 64 to an fdatasync",
    )


def _rate(syncs: Syncs) -> float:
    return syncs.per_second
