"""Schemas: publish 100 JSON documents a request to a topic with a JSON schema, against a topic without."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Publish
from bench.report import Result, at_least
from bench.run import Bench, figures, median_ratio, middle, requests_per_second

MESSAGES, CONNECTIONS = 100, 16
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


def schemas(bench: Bench) -> Iterator[Result]:
    """Yield the ratio of requests a second with the schema to those without."""
    with bench.service() as service:
        project = preparing.project(service, "BENCH")
        checked, free = preparing.topics(service, project, "schemas", 2)
        preparing.schema(service, project, "documents", SCHEMA, [checked])
        pairs = bench.in_turn(
            f"publish {MESSAGES} with a schema and without",
            lambda: bench.load(service, Publish([checked], MESSAGES, documents=True), CONNECTIONS),
            lambda: bench.load(service, Publish([free], MESSAGES, documents=True), CONNECTIONS),
        )
        yield Result(
            "schemas",
            {"messages": MESSAGES, "connections": CONNECTIONS},
            figures([each for each, _ in pairs])
            | {"free_requests_s": middle([each for _, each in pairs], requests_per_second)},
            median_ratio(pairs, requests_per_second),
            "requests/s without a schema",
            at_least(0.5),
        )
