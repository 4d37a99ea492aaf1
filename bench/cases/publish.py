"""Publish: 1 message a request at 1, 16 and 64 connections, 100 and 1000 at 16, against the bare handler and a file.

Also with a JSON schema against without, and with counters against without, which pull 100 is measured for too.
"""

from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.callers import Publish, Pull
from bench.disk import appends
from bench.processes import Service
from bench.report import Goal, Result, at_least, at_most
from bench.run import Bench, compared, middle, p99, requests_per_second
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
CONNECTIONS = 16
DOCUMENTS = 100
"""JSON documents a request."""
SCHEMA: dict[str, object] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "site": {"type": "string", "pattern": "^[A-Z]{2,20}$"},
        "time": {"type": "string", "format": "date-time"},
        "values": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"metric": {"type": "string", "minLength": 1}, "value": {"type": "number", "minimum": 0}},
                "required": ["metric", "value"],
                "additionalProperties": False,
            },
        },
        "summary": {"type": "string"},
    },
    "required": ["site", "time", "values"],
    "additionalProperties": False,
}
BACKLOG = 20_000
"""Messages that are there to be pulled, with and without counters."""


def publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for each shape, then the p99 and the comparison with a raw file."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "publish", 1)
        for per_request, connections, goal in SHAPES:
            work = Publish([topic], per_request)
            what = f"publish {per_request} at {connections} connections"
            pairs = bench.loads(what, (service, work), (bare, work), connections)
            params: dict[str, int | str] = {"messages": per_request, "connections": connections}
            yield compared("publish", params, pairs, "bare_requests_s", "requests/s of the bare handler", goal)
            if (per_request, connections) == (1, 64):
                yield from _against_the_disk(bench, [ours for ours, _ in pairs], [theirs for _, theirs in pairs])


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
    grouped = 64 * median(each.per_second for each in group)
    yield Result(
        "publish-file",
        {"messages": 1, "connections": 64},
        {"raw_file_messages_s": grouped, "raw_file_fdatasyncs_s": median(each.per_second for each in one)},
        middle(ours, requests_per_second) / grouped,
        "messages/s of a raw file, 64 to an fdatasync",
    )


def schemas(bench: Bench) -> Iterator[Result]:
    """Yield the ratio of requests a second with the schema to those without."""
    with bench.service() as service:
        project = preparing.project(service, "BENCH")
        checked, free = preparing.topics(service, project, "schemas", 2)
        preparing.schema(service, project, "documents", SCHEMA, [checked])
        ours, theirs = (Publish([topic], DOCUMENTS, documents=True) for topic in (checked, free))
        what = f"publish {DOCUMENTS} with a schema and without"
        pairs = bench.loads(what, (service, ours), (service, theirs), CONNECTIONS)
        params: dict[str, int | str] = {"messages": DOCUMENTS, "connections": CONNECTIONS}
        yield compared("schemas", params, pairs, "free_requests_s", "requests/s without a schema", at_least(0.5))


def counting(bench: Bench) -> Iterator[Result]:
    """Yield the ratio of requests a second with counters to those without."""
    with bench.service() as counted, bench.service(program="bench.uncounted") as uncounted:
        works = [(_counted_publish(each), _counted_pull(each)) for each in (counted, uncounted)]
        for case, ours, theirs in zip(("publish", "pull"), *works, strict=True):
            what = f"{case} with counters and without"
            pairs = bench.loads(what, (counted, ours), (uncounted, theirs), CONNECTIONS)
            params: dict[str, int | str] = {"case": case, "connections": CONNECTIONS}
            against = "requests/s without counters"
            yield compared("counting", params, pairs, "uncounted_requests_s", against, at_least(0.95))


def _counted_publish(service: Service) -> Publish:
    return Publish(preparing.topics(service, preparing.project(service, "BENCH"), "counting", 1))


def _counted_pull(service: Service) -> Pull:
    topics = preparing.topics(service, preparing.project(service, "PULLS"), "counting", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, BACKLOG)
    preparing.spread(service, subscriptions, BACKLOG)
    return Pull(subscriptions, 100)
