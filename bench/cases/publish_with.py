"""Publish with more to do: a JSON schema, an idempotency key, counters; against the same without.

The schema against the bare handler too. With counters also pull 100.
"""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Publish, Pull
from bench.processes import Service
from bench.report import Result, at_least
from bench.run import Bench, compared

CONNECTIONS, MANY_CONNECTIONS = 16, 64
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


def schemas(bench: Bench) -> Iterator[Result]:
    """Yield the ratios of requests a second with the schema: to those without, and to the bare handler's."""
    with bench.service() as service, bench.bare() as bare:
        project = preparing.project(service, "BENCH")
        checked, free = preparing.topics(service, project, "schemas", 2)
        preparing.schema(service, project, "documents", SCHEMA, [checked])
        ours, theirs = (Publish([topic], DOCUMENTS, documents=True) for topic in (checked, free))
        turns = bench.in_turn(
            f"publish {DOCUMENTS} with a schema and without",
            lambda: bench.load(service, ours, CONNECTIONS),
            lambda: (bench.load(service, theirs, CONNECTIONS), bench.load(bare, ours, CONNECTIONS)),
        )
    params: dict[str, int | str] = {"messages": DOCUMENTS, "connections": CONNECTIONS}
    unchecked = [(with_schema, without) for with_schema, (without, _) in turns]
    yield compared("schemas", params, unchecked, "free_requests_s", "requests/s without a schema", at_least(0.5))
    handled = [(with_schema, by_bare) for with_schema, (_, by_bare) in turns]
    yield compared("schemas-bare", params, handled, "bare_requests_s", "requests/s of the bare handler", at_least(0.25))


def idempotent(bench: Bench) -> Iterator[Result]:
    """Yield the ratio of requests a second with an idempotency key, each another, to those without."""
    with bench.service() as service:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "idempotent", 1)
        pairs = bench.loads(
            f"publish 1 at {MANY_CONNECTIONS} connections with an idempotency key and without",
            (service, Publish(topics, keys=True)),
            (service, Publish(topics)),
            MANY_CONNECTIONS,
        )
    params: dict[str, int | str] = {"messages": 1, "connections": MANY_CONNECTIONS}
    yield compared("idempotent", params, pairs, "without_requests_s", "requests/s without a key", at_least(0.85))


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
