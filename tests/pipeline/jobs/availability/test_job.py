"""The job on a real service: from its topic to its tables, and to a topic of events."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from ams.client import Message
from ams.pipeline.jobs.availability.job import JOB
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.running import Run
from tests.pipeline.garden import Garden
from tests.pipeline.jobs.availability.support import PROFILES
from tests.pipeline.jobs.availability.test_worked import DAY, expected_figures, figures, results


def test_the_job_computes_what_the_topic_holds_and_tells_each_event_once(
    spark: SparkSession, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("metric_data")
    garden.topic("status_events")
    said: list[str] = []
    options = Options(**PROFILES, events_topic="status_events")

    for payloads in ([], results(), []):
        if payloads:
            garden.publish("metric_data", [Message(payload) for payload in payloads])
        JOB.run(Run(spark, tmp_path, garden.options, say=said.append), options)

    told = spark.read.format("ams").options(**garden.options, topic="status_events").load()
    events = spark.read.parquet(str(tmp_path / "results" / "events"))
    keys = ("type", "endpoint_group", "service", "hostname", "metric", "ts_monitored", "status", "repeat")
    published = [json.loads(row["data"]) for row in told.orderBy("offset").collect()]
    assert set(expected_figures(f"Figures of {DAY}")) <= set(figures(spark, tmp_path))
    assert sorted(tuple(each[key] for key in keys) for each in published) == sorted(
        map(tuple, events.select(*keys).collect())
    )
    assert [each["ts_monitored"] for each in published] == sorted(each["ts_monitored"] for each in published)
    days = "2024-03-04, 2024-03-05, 2024-03-06, 2024-03-07"
    assert [text for text in said if "compute" in text] == [
        "nothing to compute",
        f"computed {days}",
        "nothing to compute",
    ]
    assert "<svg" in (tmp_path / "board.html").read_text()
