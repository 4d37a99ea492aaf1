"""Helpers for tests of availability: results as messages, a stream of them from files, and a run of the job."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastavro import schemaless_writer
from pyspark.sql import DataFrame

from ams.pipeline.jobs.availability.parse import RESULT_SCHEMAS, Shape

WORKED = Path(__file__).with_name("worked")
PROFILES = {
    "metric_profile": str(WORKED / "metric_profile.json"),
    "aggregation_profile": str(WORKED / "aggregation_profile.json"), "topology": str(WORKED / "topology.json"),
    "groups": str(WORKED / "groups.json"), "downtimes": str(WORKED / "downtimes.json"), "report": "Critical",
}  # fmt: skip


def record(timestamp: str, service: str, hostname: str, metric: str, status: str, **others: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("monitoring_host", "actual_data", "summary", "message", "tags"))
    named = {"timestamp": timestamp, "service": service, "hostname": hostname, "metric": metric, "status": status}
    return {**empty, **named, **others}


def datum(fields: Mapping[str, Any], shape: Shape = "current") -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, RESULT_SCHEMAS[shape], dict(fields))
    return stream.getvalue()


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())
