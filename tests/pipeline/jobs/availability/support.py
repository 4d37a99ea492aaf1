"""Helpers for tests of availability: results as messages, a stream of them from files, and a run of the job."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastavro import schemaless_writer
from pyspark.sql import DataFrame

from ams.pipeline.jobs.availability.parse import RESULT_SCHEMAS, Shape

EXAMPLE_FOLDER = Path(__file__).with_name("worked")
PROFILES = {
    "metric_profile": str(EXAMPLE_FOLDER / "metric_profile.json"),
    "aggregation_profile": str(EXAMPLE_FOLDER / "aggregation_profile.json"),
    "topology": str(EXAMPLE_FOLDER / "topology.json"),
    "groups": str(EXAMPLE_FOLDER / "groups.json"), "downtimes": str(EXAMPLE_FOLDER / "downtimes.json"),
    "report": "Critical",
}  # fmt: skip


def record(timestamp: str, service: str, hostname: str, metric: str, status: str, **others: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("monitoring_host", "actual_data", "summary", "message", "tags"))
    named = {"timestamp": timestamp, "service": service, "hostname": hostname, "metric": metric, "status": status}
    return {**empty, **named, **others}


def encode_datum(fields: Mapping[str, Any], shape: Shape = "current") -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, RESULT_SCHEMAS[shape], dict(fields))
    return stream.getvalue()


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())
