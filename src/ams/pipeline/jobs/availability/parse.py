"""Parses messages of monitoring: results, and lists of profiles and topology. All are Avro datums without header.

Writer and reader must agree on the schemas. Of results three are in use, which differ in where `actual_data` stands.
A message with a list says in its attributes what it holds (`type`), of which day (`partition_date`) and for which
report; its payload is one datum, or all of a day behind each other.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal, NamedTuple

import msgspec
from fastavro import parse_schema, schemaless_reader

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.documents import Downtime, EndpointItem, GroupItem, Profile, moment
from ams.pipeline.jobs.availability.timelines import STATUSES
from ams.pipeline.jobs.fields import group

Shape = Literal["current", "without_actual_data", "actual_data_last"]


def _schema(name: str, words: Iterable[str], others: Mapping[str, Any]) -> Any:
    types = {**dict.fromkeys(words, "string"), **{each: ["null", kind] for each, kind in others.items()}}
    fields = [{"name": each, "type": kind} for each, kind in types.items()]
    return parse_schema({"type": "record", "name": name, "namespace": "argo.avro", "fields": fields})


_WORDS = ("timestamp", "service", "hostname", "metric", "status")
_SHAPES: Mapping[Shape, str] = {
    "current": "monitoring_host actual_data summary message tags",
    "without_actual_data": "monitoring_host summary message tags",
    "actual_data_last": "monitoring_host summary message tags actual_data",
}
_TAGS = {"tags": {"type": "map", "values": ["null", "string"]}}
RESULT_SCHEMAS: Mapping[Shape, Any] = {
    shape: _schema("metric_data", _WORDS, {**dict.fromkeys(names.split(), "string"), **_TAGS})
    for shape, names in _SHAPES.items()
}


class _Metric(msgspec.Struct, frozen=True):
    service: str
    metric: str


_KINDS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "group_endpoints": (EndpointItem, ("type", "group", "service", "hostname")),
    "group_groups": (GroupItem, ("type", "group", "subgroup")),
    "metric_profile": (_Metric, ("profile", "service", "metric")),
    "downtimes": (Downtime, ("hostname", "service", "start_time", "end_time")),
}
LIST_SCHEMAS: Mapping[str, Any] = {
    kind: _schema(kind, words, {} if kind == "downtimes" else {"tags": {"type": "map", "values": "string"}})
    for kind, (_, words) in _KINDS.items()
}

_UNREADABLE = (EOFError, IndexError, KeyError, MemoryError, OverflowError, StopIteration, TypeError, ValueError)
_TIME = re.compile(r"(?:^|\s)'?time'?=([0-9.]+)(ms|s)?(?:;|\s|$)")


def parse_results(
    data: bytes, attributes: Mapping[str, str], shape: Shape, latest: float = math.inf
) -> Iterator[dict[str, Any]]:
    """Yield the one result of a message in a shape, with the columns of `figures.RESULTS`.

    Raises `Broken` for a payload that is not exactly one datum, and for a result that cannot be placed among the
    statuses or in time, up to `latest`, in seconds since 1970.
    """
    stream = io.BytesIO(data)
    record = _datum(stream, RESULT_SCHEMAS[shape], f"not a datum of the schema {shape}")
    if stream.tell() != len(data):
        raise Broken(f"{len(data) - stream.tell()} bytes after the datum of the schema {shape}")
    yield _result(record, attributes.get("partition_date", ""), latest)


def parse_lists(data: bytes, attributes: Mapping[str, str], report: str) -> Iterator[dict[str, str] | Broken]:
    """Yield `type`, `partition_date` and `item` (JSON) of each record of a message with lists.

    Yields nothing for another report or for weights, and `Broken` for a downtime that ends before it starts. Raises
    `Broken` for a message that is not datums of its type from beginning to end.
    """
    kind = attributes.get("type", "")
    if attributes.get("report", report) != report or kind == "weights":  # no figure depends on weights
        return
    if kind not in _KINDS:
        raise Broken(f"type {kind[:30]!r} is none of {', '.join(_KINDS)}")
    text = attributes.get("partition_date", "")
    if not text:
        raise Broken("attribute partition_date is missing")
    try:
        common = {"type": kind, "partition_date": date.fromisoformat(text).isoformat()}
    except ValueError:
        raise Broken(f"partition_date {text[:30]!r} is no day") from None
    stream, items = io.BytesIO(data), []
    while stream.tell() < len(data):
        items.append(_item(_datum(stream, LIST_SCHEMAS[kind], f"not datums of the schema {kind}"), kind))
    yield from (item if isinstance(item, Broken) else {**common, "item": item} for item in items)


def _datum(stream: io.BytesIO, schema: Any, otherwise: str) -> dict[str, Any]:
    try:
        return dict(schemaless_reader(stream, schema, None))  # type: ignore[arg-type]  # all schemas here are of records
    except _UNREADABLE:
        raise Broken(otherwise) from None


def _result(record: Mapping[str, Any], partition_date: str, latest: float) -> dict[str, Any]:
    for name in _WORDS:
        if not record[name]:
            raise Broken(f"{name} is empty")
    if record["status"] not in STATUSES:
        raise Broken(f"status {record['status'][:20]!r} is none of {', '.join(STATUSES)}")
    text = record["timestamp"]
    try:
        seconds = moment(text)
    except ValueError as error:
        raise Broken(f"timestamp {text[:30]!r}: {error}") from error
    if not 0 <= seconds <= latest:
        raise Broken(f"timestamp {text} lies {'before 1970' if seconds < 0 else 'in the future'}")
    timestamp = datetime.fromtimestamp(seconds, UTC)
    _check_day(timestamp, partition_date)
    return {
        "date": timestamp.date().isoformat(),
        "timestamp": timestamp,
        **{name: record[name] for name in _WORDS[1:]},
        **{name: record[name] or "" for name in ("monitoring_host", "summary", "message")},
        "response_time": response_time(record.get("actual_data") or ""),
    }


def _check_day(timestamp: datetime, partition_date: str) -> None:
    """Refuse results of a wrong clock: the publisher's date must match, give or take a day."""
    try:
        day = date.fromisoformat(partition_date)
    except ValueError:
        return
    if abs((timestamp.date() - day).days) > 1:
        raise Broken(f"timestamp {timestamp:%Y-%m-%d} is not of the partition_date {partition_date}")


def response_time(performance: str) -> float | None:
    """Read how long a check took, in seconds, out of performance data such as `time=2.227776s;;;0.000000 size=6B`."""
    found = _TIME.search(performance)
    try:
        return float(found[1]) * (0.001 if found[2] == "ms" else 1) if found else None
    except ValueError:
        return None


def _item(record: Mapping[str, Any], kind: str) -> str | Broken:
    known = {name: value for name, value in record.items() if value is not None}
    try:
        item: Any = msgspec.convert(known, _KINDS[kind][0])
    except ValueError as error:
        raise Broken(f"{kind}: {error}") from None
    if isinstance(item, Downtime) and item.is_reversed:
        return Broken(f"{kind}: end_time lies before start_time")
    return msgspec.json.encode(item).decode()


class Lists(NamedTuple):
    """Lists of monitored things, by day."""

    endpoints: Mapping[str, list[EndpointItem]] = {}
    groups: Mapping[str, list[GroupItem]] = {}
    profiles: Mapping[str, Profile] = {}
    downtimes: Mapping[str, list[Downtime]] = {}


def lists(rows: Iterable[tuple[str, str, str]]) -> Lists:
    """Collect records (`type`, `partition_date`, `item`) into lists; duplicates and any order are fine."""
    held: dict[str, dict[str, list[Any]]] = {kind: {} for kind in _KINDS}
    for kind, day, item in sorted(set(rows)):
        held[kind].setdefault(day, []).append(msgspec.json.decode(item, type=_KINDS[kind][0]))
    profiles = {day: group((each.service, each.metric) for each in of) for day, of in held["metric_profile"].items()}
    return Lists(held["group_endpoints"], held["group_groups"], profiles, held["downtimes"])
