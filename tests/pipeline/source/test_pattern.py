"""Topics found by their names, also such as are made later."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.errors import WrongOption
from ams.pipeline.source.options import reading
from tests.pipeline.garden import Garden, numbered


def test_topics_come_and_go(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def note(batch: DataFrame, _batch_id: int) -> None:
        seen.extend((row.topic, row.offset) for row in batch.orderBy("topic", "offset").collect())

    def run() -> None:
        stream = spark.readStream.format("ams").options(
            **garden.options, topicPattern="pl*,stone?", startingOffsets="earliest"
        )
        writer = stream.load().writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

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


def test_a_pattern_says_what_it_means() -> None:
    options = {"endpoint": "https://ams.example", "token": "t", "project": "meadow"}

    assert reading({**options, "topicPattern": "a*, b"}, {}).patterns == ("a*", "b")
    with pytest.raises(WrongOption, match="option topicPattern: 'a,,b' has an empty pattern"):
        reading({**options, "topicPattern": "a,,b"}, {})
    with pytest.raises(WrongOption, match="option topicPattern: give a subscription, topics, or a pattern, only one"):
        reading({**options, "topicPattern": "a", "topic": "b"}, {})
    with pytest.raises(WrongOption, match="option project: is needed for topicPattern"):
        reading({"endpoint": "https://ams.example", "token": "t", "topicPattern": "a"}, {})
