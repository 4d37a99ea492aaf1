"""The job `replay`."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.pipeline.definition.plans import read_plan
from ams.pipeline.errors import ChangedDefinition, StaleCheckpoint, WrongOption
from ams.pipeline.jobs.archive import archive_table, dated
from ams.pipeline.jobs.replay import Options, Progress, keep, read_progress, refuse_stale, run
from ams.pipeline.running import Run
from ams.tables.errors import WrongTable
from tests.pipeline.garden import Garden, numbered

GIVEN = {"archive": "a", "topic": "GARDEN/plants", "to": "again"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "plants"}, "option topic: 'plants' is no PROJECT/TOPIC"),
        ({"topic": "a/b/c"}, "option topic: 'a/b/c' is no PROJECT/TOPIC"),
        ({"to": "a.b"}, "option to: 'a.b' is no name"),
        ({"name": ""}, "option name: '' is no name"),
        ({"start": "2024-03-05"}, "option start: '2024-03-05' is no time such as"),
        ({"start": "0001-01-01T00:00:00+14:00"}, "option start: '0001-01-01T00:00:00.14:00' is no time such as"),
        ({"stop": "soon"}, "option stop: 'soon' is no time"),
    ],
)
def test_what_cannot_be_replayed_is_told(options: dict[str, object], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        Options(**{**GIVEN, **options})
    with pytest.raises(WrongOption, match="option slice: Expected int >= 1"):
        read_plan("replay", [*(f"{name}={value}" for name, value in GIVEN.items()), "slice=0"])


def test_progress_is_kept_and_of_one_replay_only(tmp_path: Path) -> None:
    progress = Progress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=1.0)
    assert read_progress(tmp_path / "work", "r/1") is None

    keep(tmp_path / "work", progress)

    assert read_progress(tmp_path / "work", "r/1") == progress
    with pytest.raises(ChangedDefinition, match="of a replay with other options"):
        read_progress(tmp_path / "work", "r/2")


def test_a_replay_that_was_left_too_long_ago_is_refused() -> None:
    hour_ago = Progress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=time.time() - 3600)

    refuse_stale(hour_ago, 4000)
    refuse_stale(msgspec.structs.replace(hour_ago, next=9), 100)
    with pytest.raises(StaleCheckpoint, match="was left 1 hours ago within offsets 3 and following"):
        refuse_stale(hour_ago, 1800)


@pytest.mark.long
def test_a_range_is_published_again_in_order_and_marked(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
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


@pytest.mark.long
def test_without_an_archive_nothing_is_replayed(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    options = Options(archive=str(tmp_path / "none"), topic="a/b", to="again")

    with pytest.raises(WrongTable):
        run(Run(spark, tmp_path / "work", garden.options), options)


def _replay(work: Path) -> str:
    return str(json.loads((work / "replay.json").read_text())["replay"])
