"""Topology, metric profiles and downtimes as they travel in messages: Avro binary datums, one or all of a day in each.

The attributes of such a message say what it holds (`type`), of which day (`partition_date`) and for which report.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple

import msgspec
from fastavro import parse_schema, schemaless_reader

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.exceptions import Downtime
from ams.pipeline.jobs.availability.profiles import MetricProfile, ServiceMetrics
from ams.pipeline.jobs.availability.results import UNREADABLE
from ams.pipeline.jobs.availability.topology import EndpointItem, GroupItem

_TAGGED = {"name": "tags", "type": ["null", {"type": "map", "values": "string"}]}
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "group_endpoints": ("type", "group", "service", "hostname"),
    "group_groups": ("type", "group", "subgroup"),
    "metric_profile": ("profile", "service", "metric"),
    "downtimes": ("hostname", "service", "start_time", "end_time"),
}
SCHEMAS: Mapping[str, Any] = {
    kind: parse_schema(
        {
            "type": "record",
            "name": kind,
            "namespace": "argo.avro",
            "fields": [
                *({"name": name, "type": "string"} for name in names),
                *([] if kind == "downtimes" else [_TAGGED]),
            ],
        }
    )
    for kind, names in _FIELDS.items()
}
"""The schemas by the type that the attributes name."""

UNUSED = ("weights",)
"""A type that is sent as well, and that no figure here depends on."""


class Metric(msgspec.Struct, frozen=True):
    """A metric that counts for a service."""

    service: str
    metric: str


_KINDS: Mapping[str, type] = {
    "group_endpoints": EndpointItem,
    "group_groups": GroupItem,
    "metric_profile": Metric,
    "downtimes": Downtime,
}


def parse_for(report: str) -> Callable[[bytes, Mapping[str, str]], Iterator[dict[str, str]]]:
    """Make the parser of messages with such lists.

    It yields `type`, `partition_date` and `item` (JSON) of each record, none for another report or an unused type. It
    raises `Broken` for a message that is not datums of its type from beginning to end; nothing of it is used then.
    """

    def parse(data: bytes, attributes: Mapping[str, str]) -> Iterator[dict[str, str]]:
        kind = attributes.get("type", "")
        if attributes.get("report", report) != report or kind in UNUSED:
            return
        if kind not in SCHEMAS:
            raise Broken(f"type {kind[:30]!r} is none of {', '.join(SCHEMAS)}")
        if not attributes.get("partition_date"):
            raise Broken("attribute partition_date is missing")
        common = {"type": kind, "partition_date": _day(attributes["partition_date"])}
        yield from [{**common, "item": _item(record, kind)} for record in _records(data, kind)]

    return parse


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Broken(f"partition_date {text[:30]!r} is no day") from None


def _records(data: bytes, kind: str) -> Iterator[dict[str, Any]]:
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        try:
            yield dict(schemaless_reader(stream, SCHEMAS[kind], None))  # type: ignore[arg-type]  # a record's schema
        except UNREADABLE:
            raise Broken(f"not datums of the schema {kind}") from None


def _item(record: dict[str, Any], kind: str) -> str:
    known = {name: value for name, value in record.items() if value is not None}
    try:
        return msgspec.json.encode(msgspec.convert(known, _KINDS[kind])).decode()
    except ValueError as error:
        raise Broken(f"{kind}: {error}") from None


class Lists(NamedTuple):
    """All that came, by the day it is of."""

    endpoints: tuple[EndpointItem, ...] = ()
    groups: tuple[GroupItem, ...] = ()
    profiles: Mapping[str, MetricProfile] = {}
    downtimes: Mapping[str, tuple[Downtime, ...]] = {}


def lists(rows: Iterable[tuple[str, str, str]]) -> Lists:
    """Put together what came.

    Args:
        rows: `type`, `partition_date` and `item` of each record, doubled or not, in any order.
    """
    held: dict[str, dict[str, list[Any]]] = {kind: {} for kind in _KINDS}
    for kind, day, item in sorted(set(rows)):
        held[kind].setdefault(day, []).append(msgspec.json.decode(item, type=_KINDS[kind]))
    return Lists(
        _dated(held["group_endpoints"]),
        _dated(held["group_groups"]),
        {day: _profile(metrics) for day, metrics in held["metric_profile"].items()},
        {day: tuple(items) for day, items in held["downtimes"].items()},
    )


def _dated(held: Mapping[str, Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(msgspec.structs.replace(item, date=day) for day, items in held.items() for item in items)


def _profile(metrics: Iterable[Metric]) -> MetricProfile:
    services: dict[str, list[str]] = {}
    for each in metrics:
        services.setdefault(each.service, []).append(each.metric)
    return MetricProfile([ServiceMetrics(service, names) for service, names in services.items()])
