"""Status events published to a topic of a real service: each once, also when the job is killed after sending."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType

from ams.pipeline.jobs.availability.columns import EVENTS, OUTBOX
from ams.pipeline.jobs.availability.telling import Outbox
from ams.pipeline.tables import Table
from tests.pipeline.garden import Garden

pytestmark = pytest.mark.long


def events(spark: SparkSession, *times: str) -> DataFrame:
    same = {each.name: ["OK"] if isinstance(each.dataType, ArrayType) else "same" for each in EVENTS}
    rows = [{**same, "ts_monitored": f"2024-03-05T{time}Z", "date": "2024-03-05"} for time in times]
    return spark.createDataFrame([tuple(row[name] for name in EVENTS.names) for row in rows], EVENTS)


def test_an_event_is_published_once(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    topic = garden.topic("events")
    table = Table(spark, str(tmp_path / "outbox"), OUTBOX)
    outbox = Outbox(table, {**garden.options, "topic": topic}, "made-up", tmp_path / "published.json")

    outbox.put(events(spark, "10:00:00", "09:00:00"))
    assert outbox.send() == 1
    outbox.put(events(spark, "10:00:00", "11:00:00"))
    assert outbox.send() == 1
    outbox.marker.unlink()  # as if it had been killed before it could write down what it sent
    assert outbox.send() == 2
    outbox.put(events(spark, "09:00:00"))
    assert outbox.send() == 0
    messages = spark.read.format("ams").options(**garden.options, topic=topic).load()

    found = [json.loads(row["data"]) for row in messages.orderBy("offset").collect()]
    assert [each["ts_monitored"][11:19] for each in found] == ["09:00:00", "10:00:00", "11:00:00"]
    assert found[0].keys() == {*EVENTS.names, "ts_processed"}
    assert found[0]["date"] == "20240305"
