"""Topics read by Spark."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from ams.client import Message
from ams.pipeline.columns import MESSAGES
from ams.pipeline.source.readers import plain
from tests.pipeline.garden import Garden, numbered


def test_a_topic_is_a_table_of_its_messages(spark: SparkSession, garden: Garden) -> None:
    odd = Message(bytes(range(256)), {"naïve": "☃", "": "", "ams:x": "y"}, 'bed "4"')
    garden.topic("plants", [odd, Message(attributes={"n": "1"}), *numbered(1)])

    found = spark.read.format("ams").options(**garden.options, topic="plants", minPartitions="2").load()

    assert found.schema == MESSAGES
    rows = found.orderBy("offset").collect()
    assert [row.offset for row in rows] == [0, 1, 2]
    assert [row.message_id for row in rows] == ["0", "1", "2"]
    assert [row.ordering_key for row in rows] == ['bed "4"', None, None]
    assert {(row.project, row.topic) for row in rows} == {(garden.name, "plants")}
    assert [(bytes(row.data), row.attributes) for row in rows] == [
        (odd.data, dict(odd.attributes)),
        (b"", {"n": "1"}),
        (b"0", {}),
    ]


@pytest.mark.long
def test_a_batch_is_of_the_messages_between_two_times(spark: SparkSession, garden: Garden) -> None:
    garden.topic("plants", numbered(40), numbered(40, 40), numbered(40, 80))
    times = [datetime.fromtimestamp(garden.served.clock.now / 1000 - ago, UTC).isoformat() for ago in (2, 1)]

    reader = spark.read.format("ams").options(**garden.options, topic="plants")
    found = reader.options(startingTimestamp=times[0], endingTimestamp=times[1]).load()

    assert sorted(row.offset for row in found.collect()) == [*range(40, 80)]
    assert reader.options(startingTimestamp=times[1], endingTimestamp=times[0]).load().count() == 0


@pytest.mark.long
def test_what_is_wrong_is_said_when_a_topic_is_loaded_or_planned(spark: SparkSession, garden: Garden) -> None:
    reader = spark.read.format("ams").options(**garden.options)
    with pytest.raises(AnalysisException, match="WrongOption: option startingoffset: .*startingOffsets is meant"):
        reader.option("startingOffset", "earliest").option("topic", "plants").load()
    with pytest.raises(AnalysisException, match="NotFound: Topic doesn't exist") as caught:
        spark.read.format("ams").options(**garden.options, topic="plants").load().count()
    assert garden.served.token not in str(caught.value)
    for option, end in (("endingOffsets", "3"), ("endingTimestamp", "1")):
        stream = spark.readStream.format("ams").options(**garden.options, topic="plants", **{option: end}).load()
        with pytest.raises(PySparkException, match=f"option {option}: is for a batch"):
            stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def follow(
    spark: SparkSession, garden: Garden, folder: Path, note: Callable[[DataFrame, int], None], **options: str
) -> dict[str, Any]:
    """Run a query until it has caught up; return what it told of its source in the end."""
    stream = spark.readStream.format("ams").options(**garden.options, **options).load()
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    told = query.lastProgress
    return dict(told["sources"][0]) if told else {}


@pytest.mark.long
@pytest.mark.parametrize("start", [{"startingTimestamp": "0"}, {"startingOffsets": "latest"}])
def test_a_stream_that_notes_where_it_begins_goes_on_from_there(
    spark: SparkSession, garden: Garden, tmp_path: Path, start: dict[str, str]
) -> None:
    garden.topic("plants", numbered(3))
    seen: list[list[int]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        seen.append([row.offset for row in batch.orderBy("offset").collect()])
        if batch_id == 0:
            garden.publish("plants", numbered(2, 3))

    stream = spark.readStream.format("ams").options(**garden.options, topic="plants", **start).load()
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    until = time.monotonic() + 60
    while sum(map(len, seen)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    query.stop()

    assert seen[0] == []
    assert [offset for each in seen for offset in each] == ([3, 4] if "startingOffsets" in start else [0, 1, 2, 3, 4])


def test_a_stream_goes_on_where_its_checkpoint_is_and_the_cursor_follows(
    spark: SparkSession, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("plants")
    garden.subscription("spark", "plants")
    garden.publish("plants", numbered(25))
    seen: list[tuple[int, int, int]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        seen.append((batch_id, batch.count(), garden.cursor("spark")))

    progress = follow(spark, garden, tmp_path, note, subscription="spark", maxOffsetsPerTrigger="10")
    assert seen == [(0, 10, 0), (1, 10, 10), (2, 5, 20)]
    assert garden.cursor("spark") == 25
    here = f"{garden.name}/plants"
    assert plain(json.loads(progress["endOffset"])) == json.loads(progress["latestOffset"]) == {here: 25}

    garden.publish("plants", numbered(3, 25))
    follow(spark, garden, tmp_path, note, subscription="spark", maxOffsetsPerTrigger="10")
    assert seen[3:] == [(3, 3, 25)]
    assert garden.cursor("spark") == 28


@pytest.mark.long
def test_topics_that_are_found_by_a_pattern_come_and_go(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.extend((row.topic, row.offset) for row in batch.orderBy("topic", "offset").collect())

    def run() -> None:
        follow(spark, garden, tmp_path, note, topicPattern="pl*,stone?", startingOffsets="earliest")

    run()
    garden.topic("plants", numbered(2))
    garden.topic("stones", numbered(1))
    garden.topic("animals", numbered(1))
    run()
    assert seen == [("plants", 0), ("plants", 1), ("stones", 0)]

    garden.client.project(garden.name).topic("stones").delete()
    garden.topic("plums", numbered(1))
    garden.publish("plants", numbered(1))
    run()
    assert seen[3:] == [("plants", 2), ("plums", 0)]
