"""The table of the job `metrics`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ams.pipeline.columns import MESSAGES
from ams.pipeline.jobs.archive.table import archive_table, dated
from ams.pipeline.jobs.usage.job import Options, run
from ams.pipeline.running import Run
from tests.pipeline.jobs.recorded import recorded_run, rows_of

pytestmark = pytest.mark.spark


def report(job: Run, archive: Path, month: str) -> list[tuple[object, ...]]:
    run(job, Options(month=month, archive=str(archive)))
    return rows_of(job, "usage", "month, topic, date::VARCHAR, messages, bytes")


def test_the_table_has_each_month_as_it_was_reported_last(spark: SparkSession, tmp_path: Path) -> None:
    archive, job = tmp_path / "archive", recorded_run(spark, tmp_path / "work")
    keep(spark, archive, 0, datetime(2024, 2, 29, 12, tzinfo=UTC))
    keep(spark, archive, 1, datetime(2024, 3, 5, 12, tzinfo=UTC))
    february = ("2024-02", "plants", "2024-02-29", 1, 3)

    assert report(job, archive, "2024-02") == [february]
    assert report(job, archive, "2024-03") == [february, ("2024-03", "plants", "2024-03-05", 1, 3)]
    keep(spark, archive, 2, datetime(2024, 3, 5, 13, tzinfo=UTC))
    assert report(job, archive, "2024-03") == [february, ("2024-03", "plants", "2024-03-05", 2, 6)]
    assert report(job, archive, "2024-04") == [february, ("2024-03", "plants", "2024-03-05", 2, 6)]


def keep(spark: SparkSession, archive: Path, number: int, time: datetime) -> None:
    """Archive a message of three bytes."""
    row: dict[str, object] = {
        **dict.fromkeys(MESSAGES.names),
        "project": "garden",
        "topic": "plants",
        "offset": number,
        "message_id": str(number),
        "publish_time": time,
        "attributes": {},
        "data": b"dry",
    }
    archive_table(spark, str(archive)).append(dated(spark.createDataFrame([row], MESSAGES)), number, "query")
