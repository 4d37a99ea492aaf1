"""What the tests of availability share: results as messages, a stream of them from files, and a run of the job."""

import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastavro import schemaless_writer
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.columns import MESSAGES
from ams.pipeline.jobs.availability.job import follow
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.results import SCHEMAS, Shape
from ams.pipeline.running import Run

WORKED = Path(__file__).with_name("worked")
PROFILES = {
    "metric_profile": str(WORKED / "metric_profile.json"),
    "aggregation_profile": str(WORKED / "aggregation_profile.json"),
    "topology": str(WORKED / "topology.json"),
    "groups": str(WORKED / "groups.json"),
    "downtimes": str(WORKED / "downtimes.json"),
    "report": "Critical",
}


def record(timestamp: str, service: str, hostname: str, metric: str, status: str, **others: Any) -> dict[str, Any]:
    """Make a result as probes publish it."""
    empty = dict.fromkeys(("monitoring_host", "actual_data", "summary", "message", "tags"))
    named = {"timestamp": timestamp, "service": service, "hostname": hostname, "metric": metric, "status": status}
    return {**empty, **named, **others}


def datum(fields: Mapping[str, Any], shape: Shape = "current") -> bytes:
    """Write a result as one Avro binary datum."""
    stream = io.BytesIO()
    schemaless_writer(stream, SCHEMAS[shape], dict(fields))
    return stream.getvalue()


def messages(spark: SparkSession, payloads: Iterable[bytes], first: int = 0) -> DataFrame:
    """Make messages out of payloads, with consecutive offsets."""
    at = datetime(2024, 3, 8, tzinfo=UTC)
    rows = [
        ("demo", "metric_data", offset, str(offset), at, {"type": "metric_data"}, data)
        for offset, data in enumerate(payloads, first)
    ]
    return spark.createDataFrame(rows, MESSAGES)


def feed(batch: DataFrame, folder: Path) -> None:
    """Put messages where the stream finds them."""
    batch.coalesce(1).write.mode("append").parquet(str(folder))


def catch_up(spark: SparkSession, work: Path, topic: Path, **options: Any) -> None:
    """Run the job over a folder of messages until it has caught up."""
    stream = spark.readStream.schema(MESSAGES).option("maxFilesPerTrigger", "1").parquet(str(topic))
    follow(Run(spark, work, {}), Options(**{**PROFILES, **options}), stream)


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows, sorted."""
    return sorted(tuple(row) for row in frame.select(*columns).collect())
