"""Archived messages published again."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.pipeline.jobs.archive.table import archive_table, dated
from ams.pipeline.jobs.replay.job import Options, run
from ams.pipeline.jobs.replay.progress import keep, read_progress
from ams.pipeline.running import Run
from ams.tables.errors import WrongTable
from tests.pipeline.garden import Garden, numbered


def test_a_range_is_published_again_once_in_order_and_marked(
    spark: SparkSession, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("plants", numbered(3), [Message(b"3", {"site": "HILL"}, "bed 4")], numbered(4, 4))
    messages = spark.read.format("ams").options(**garden.options, topic="plants").load()
    archive_table(spark, str(tmp_path / "archive")).append(dated(messages.repartition(2)), 0, "query")
    third = garden.client.call(wire.read_topic(garden.name, "plants", start=3, most=1))[0].publish_time
    told: dict[str, Any] = {"archive": str(tmp_path / "archive"), "topic": f"{garden.name}/plants", "to": "again"}
    options = Options(**told, start=third, to_offset=7, slice=3, create_topics=True)
    replay = Run(spark, tmp_path / "work", garden.options)

    run(replay, options)

    again = garden.client.call(wire.read_topic(garden.name, "again"))
    assert [each.payload() for each in again] == [b"3", b"4", b"5", b"6"]
    assert [each.ordering_key for each in again] == ["bed 4", "", "", ""]
    assert again[0].attributes == {
        "site": "HILL",
        "ams-replayed-from": f"{garden.name}/plants",
        "ams-replayed-offset": "3",
        "ams-replayed-time": third.replace("Z", ".000Z"),
    }

    # Killed after all was published and before that was written down: nothing comes a second time.
    progress = read_progress(tmp_path / "work", _replay(tmp_path / "work"))
    assert progress is not None
    assert progress.done
    keep(tmp_path / "work", progress.behind(progress.start))
    run(replay, options)
    assert len(garden.client.call(wire.read_topic(garden.name, "again"))) == 4


def test_without_an_archive_nothing_is_replayed(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    options = Options(archive=str(tmp_path / "none"), topic="a/b", to="again")

    with pytest.raises(WrongTable):
        run(Run(spark, tmp_path / "work", garden.options), options)


def _replay(work: Path) -> str:
    return str(json.loads((work / "replay.json").read_text())["replay"])
