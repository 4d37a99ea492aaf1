"""What the tests of availability share: results as messages, a stream of them from files, and a run of the job."""

import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastavro import schemaless_writer
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.columns import CONTENT
from ams.pipeline.jobs.availability.inputs import Options
from ams.pipeline.jobs.availability.job import run
from ams.pipeline.jobs.availability.parse import RESULT_SCHEMAS, Shape
from demo.pipeline.samples import Sample
from tests.pipeline.jobs.recorded import RecordedRun

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
    schemaless_writer(stream, RESULT_SCHEMAS[shape], dict(fields))
    return stream.getvalue()


def messages(spark: SparkSession, samples: Iterable[bytes | Sample], first: int = 0) -> DataFrame:
    """Make messages out of results or samples, with consecutive offsets."""
    at = datetime(2024, 3, 8, tzinfo=UTC)
    whole = (each if isinstance(each, Sample) else Sample("metric_data", each) for each in samples)
    rows = [
        ("demo", each.topic, offset, str(offset), at, dict(each.attributes), each.data)
        for offset, each in enumerate(whole, first)
    ]
    return spark.createDataFrame(rows, CONTENT)


def feed(batch: DataFrame, folder: Path) -> None:
    """Put messages where the stream finds them."""
    batch.coalesce(1).write.mode("append").parquet(str(folder))


def catch_up(spark: SparkSession, work: Path, options: Options) -> None:
    """Run the job over the messages in the folder `recorded` of its own until it has caught up."""
    run(RecordedRun(spark, work, {}), options)


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows, sorted."""
    return sorted(tuple(row) for row in frame.select(*columns).collect())
