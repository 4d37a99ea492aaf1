"""Monitoring results out of messages: one Avro binary datum each, without header and without schema inside.

Writer and reader must agree on the schema. Three are in use; they differ in where `actual_data` stands.
"""

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal

from fastavro import parse_schema, schemaless_reader

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.documents import moment
from ams.pipeline.jobs.availability.statuses import STATUSES

Shape = Literal["current", "without_actual_data", "actual_data_last"]

_WORDS = ("timestamp", "service", "hostname", "metric", "status")
_TAGS: dict[str, Any] = {"type": "map", "values": ["null", "string"]}
_ACTUAL_DATA: dict[str, Any] = {"name": "actual_data", "type": ["null", "string"], "default": None}
_BEFORE: list[dict[str, Any]] = [
    *({"name": name, "type": "string"} for name in _WORDS),
    {"name": "monitoring_host", "type": ["null", "string"]},
]
_AFTER: list[dict[str, Any]] = [
    {"name": "summary", "type": ["null", "string"]},
    {"name": "message", "type": ["null", "string"]},
    {"name": "tags", "type": ["null", _TAGS]},
]
_FIELDS: Mapping[Shape, list[dict[str, Any]]] = {
    "current": [*_BEFORE, _ACTUAL_DATA, *_AFTER],
    "without_actual_data": [*_BEFORE, *_AFTER],
    "actual_data_last": [*_BEFORE, *_AFTER, _ACTUAL_DATA],
}
SCHEMAS: Mapping[Shape, Any] = {
    shape: parse_schema({"type": "record", "name": "metric_data", "namespace": "argo.avro", "fields": fields})
    for shape, fields in _FIELDS.items()
}
"""The schemas by the names that the job's option has for them."""

UNREADABLE = (EOFError, IndexError, KeyError, MemoryError, OverflowError, StopIteration, TypeError, ValueError)
"""What the Avro reader raises at bytes that are not a datum of the schema."""

_TIME = re.compile(r"(?:^|\s)'?time'?=([0-9.]+)(ms|s)?(?:;|\s|$)")
_PER_UNIT = {"ms": 0.001, "s": 1.0, None: 1.0}


def parse_as(shape: Shape, latest: float = math.inf) -> Callable[[bytes, Mapping[str, str]], Iterator[dict[str, Any]]]:
    """Make the parser of messages in one of the shapes, for results up to `latest`, in seconds since 1970.

    It yields one result: `date` (`2024-03-05`, of the result), `timestamp`, `service`, `hostname`, `metric`, `status`,
    `monitoring_host`, `summary`, `message`, and `response_time` in seconds or None. It raises `Broken` for a payload
    that is not exactly one datum, and for a result that cannot be placed in time or among the statuses.
    """

    def parse(data: bytes, attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        yield _result(datum(data, shape), attributes, latest)

    return parse


def datum(data: bytes, shape: Shape) -> dict[str, Any]:
    """Decode exactly one datum; raises `Broken` for less, more or something else."""
    stream = io.BytesIO(data)
    try:
        record = schemaless_reader(stream, SCHEMAS[shape], None)
    except UNREADABLE:
        raise Broken(f"not a datum of the schema {shape}") from None
    if stream.tell() != len(data):
        raise Broken(f"{len(data) - stream.tell()} bytes after the datum of the schema {shape}")
    return dict(record)  # type: ignore[arg-type]  # fastavro types any datum; of this schema it is a record


def _result(record: Mapping[str, Any], attributes: Mapping[str, str], latest: float) -> dict[str, Any]:
    for name in _WORDS:
        if not record[name]:
            raise Broken(f"{name} is empty")
    if record["status"] not in STATUSES:
        raise Broken(f"status {record['status'][:20]!r} is none of {', '.join(STATUSES)}")
    timestamp = _timestamp(record["timestamp"], latest)
    _check_day(timestamp, attributes.get("partition_date", ""))
    return {
        **{name: record[name] for name in ("service", "hostname", "metric", "status")},
        "date": timestamp.date().isoformat(),
        "timestamp": timestamp,
        "monitoring_host": record["monitoring_host"] or "",
        "summary": record["summary"] or "",
        "message": record["message"] or "",
        "response_time": response_time(record.get("actual_data") or ""),
    }


def _timestamp(text: str, latest: float) -> datetime:
    try:
        seconds = moment(text)
    except ValueError as error:
        raise Broken(f"timestamp {text[:30]!r}: {error}") from error
    if not 0 <= seconds <= latest:
        raise Broken(f"timestamp {text} lies {'before 1970' if seconds < 0 else 'in the future'}")
    return datetime.fromtimestamp(seconds, UTC)


def _check_day(timestamp: datetime, partition_date: str) -> None:
    """Refuse a clock gone wild: the publisher has written the day of the result beside it, give or take midnight."""
    try:
        day = date.fromisoformat(partition_date)
    except ValueError:
        return
    if abs((timestamp.date() - day).days) > 1:
        raise Broken(f"timestamp {timestamp:%Y-%m-%d} is not of the partition_date {partition_date}")


def response_time(performance: str) -> float | None:
    """Read how long a check took, in seconds, out of performance data such as `time=2.227776s;;;0.000000 size=6B`."""
    found = _TIME.search(performance)
    if found is None:
        return None
    try:
        return float(found[1]) * _PER_UNIT[found[2]]
    except ValueError:
        return None
