"""Runs on Spark, in this process, over a real service."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ams.client import Message, wire
from ams.client.errors import NotFound
from ams.pipeline.columns import MESSAGES
from ams.pipeline.definition.plans import read_plan
from ams.pipeline.errors import DataLoss, StaleCheckpoint, WrongTable
from ams.pipeline.running import Run, Stopped
from ams.pipeline.tables import rows_of
from tests.pipeline.garden import Garden, numbered

NewRun = Callable[[], Run]

PLAN = """\
source: {topic: walls, max_messages: 6}
steps:
  - filter: attributes['type'] IS NULL OR attributes['type'] <> 'test'
  - parse:
      format: json
      fields: {site: string, job: bigint, wall: double, tags: [string]}
      required: [site, job]
  - derive:
      long: wall >= 10
      kind: coalesce(attributes['type'], 'none')
  - join: {file: sites.csv, by: site, fields: {site: string, country: string}}
%s
"""
WHOLE = """\
  - deduplicate: {by: [site, job], keep: last}
  - aggregate: {by: [country], values: {jobs: count(*), wall: sum(wall), tags: sum(size(tags))}}
sink: {table: countries}
"""


@pytest.fixture
def new_run(spark: SparkSession, garden: Garden, tmp_path: Path) -> NewRun:
    """Begin a run in the test's folder, again and again; what it says is forgotten."""
    return lambda: Run(spark, tmp_path / "work", garden.options, say=lambda _: None)


def walls(*rows: Any, **attributes: str) -> list[Message]:
    return [Message(json.dumps(row).encode() if not isinstance(row, bytes) else row, attributes) for row in rows]


def wall(site: str, job: int, wall: float, *tags: str) -> dict[str, Any]:
    return {"site": site, "job": job, "wall": wall, "tags": list(tags)}


def definition(folder: Path, end: str) -> Callable[[Run], None]:
    (folder / "sites.csv").write_text("site,country\nA,NL\nB,FR\n")
    (folder / "walls.yaml").write_text(PLAN % end.rstrip())
    return read_plan(str(folder / "walls.yaml")).run


def test_doubled_and_late_messages_change_nothing_and_broken_ones_are_set_aside(
    spark: SparkSession, garden: Garden, new_run: NewRun, tmp_path: Path
) -> None:
    first = walls(wall("A", 1, 5, "x"), wall("B", 1, 7), wall("A", 2, 10), b"broken", {"site": "A"}, wall("C", 1, 1))
    garden.topic("walls", first, walls(wall("A", 9, 99), type="test"))
    run = definition(tmp_path, WHOLE)

    begun = new_run()
    run(begun)
    first_counts = begun.counts()
    garden.publish("walls", [*first, *walls(wall("A", 1, 6, "x", "y"))])
    again = new_run()
    run(again)

    found = {row["country"]: row.asDict() for row in rows_of(spark, tmp_path / "work/results/countries").collect()}
    assert found == {
        "NL": {"country": "NL", "jobs": 2, "wall": 16.0, "tags": 2},
        "FR": {"country": "FR", "jobs": 1, "wall": 7.0, "tags": 0},
        None: {"country": None, "jobs": 1, "wall": 1.0, "tags": 0},
    }
    assert (begun.progress.messages, first_counts) == (7, (4, 2))
    assert (again.progress.messages, again.counts()) == (7, (5, 2))
    broken = rows_of(spark, tmp_path / "work/quarantine").orderBy("offset").collect()
    assert [(row["offset"], row["data"], row["reason"].partition(":")[0]) for row in broken] == [
        (3, b"broken", "not JSON"),
        (4, b'{"site": "A"}', "field job is missing"),
        (10, b"broken", "not JSON"),
        (11, b'{"site": "A"}', "field job is missing"),
    ]


def test_a_text_that_no_folder_can_be_named_by_ends_no_run(
    spark: SparkSession, garden: Garden, new_run: NewRun, tmp_path: Path
) -> None:
    garden.topic("walls", walls(wall("A\0B", 1, 5), wall("../C=/", 2, 7)))

    definition(tmp_path, "sink: {table: sites, partition_by: site}\n")(new_run())

    found = rows_of(spark, tmp_path / "work/tables/sites").select("site").collect()
    assert {row.site for row in found} == {"A\ufffdB", "../C=/"}


def test_rows_are_published_as_messages(garden: Garden, new_run: NewRun, tmp_path: Path) -> None:
    garden.topic("walls", walls(wall("A", 1, 5), wall("B", 2, 70)))
    garden.topic("long")
    garden.subscription("reader", "long")
    sink = "  - filter: long\n  - select: {place: site, job: job}\nsink: {topic: long, attributes: {site: place}}\n"

    definition(tmp_path, sink)(new_run())

    [got] = garden.client.project(garden.name).subscription("reader").pull(10, wait=False)
    assert (json.loads(got.data), got.attributes) == ({"place": "B", "job": 2}, {"site": "B"})


def test_what_is_published_has_the_ordering_key_that_is_said(
    spark: SparkSession, garden: Garden, new_run: NewRun, tmp_path: Path
) -> None:
    garden.topic("walls", [*walls(wall("A", 1, 5)), Message(b'{"site": "B", "job": 2}', ordering_key="bed 4")])
    for name in ("made", "kept"):
        garden.topic(name)
        garden.subscription(f"of-{name}", name)
    copy = tmp_path / "copy.yaml"
    copy.write_text("source: {topic: walls}\nsink: {topic: kept, data: data, ordering_key: ordering_key}\n")

    definition(tmp_path, "sink: {topic: made, ordering_key: 'if(job == 1, lower(site), null)'}\n")(new_run())
    read_plan(str(copy)).run(Run(spark, tmp_path / "copy", garden.options, say=lambda _: None))

    pulls = [
        garden.client.project(garden.name).subscription(f"of-{name}").pull(10, wait=False) for name in ("made", "kept")
    ]
    assert [[each.ordering_key for each in got] for got in pulls] == [["a", ""], ["", "bed 4"]]


def test_items_of_a_list_become_rows_of_their_own_and_a_few_can_be_looked_at(
    spark: SparkSession, garden: Garden, new_run: NewRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    garden.topic("walls", walls(wall("A", 1, 5, "x", "y"), wall("B", 2, 7), wall("C", 3, 9, "z")))
    steps = "  - explode: {column: tags, as: tag}\n  - select: [tag, job]\n"

    definition(tmp_path, f"{steps}sink: {{table: tags}}\n")(new_run())
    definition(tmp_path, f"{steps}sink: {{console: 2}}\n")(
        Run(spark, tmp_path / "look", garden.options, say=lambda _: None)
    )

    rows = rows_of(spark, tmp_path / "work/tables/tags").orderBy("job", "tag").collect()
    assert [(row.tag, row.job, row.offset) for row in rows] == [("x", 1, 0), ("y", 1, 0), ("z", 3, 2)]
    assert "only showing top 2 rows" in capsys.readouterr().out


def test_a_batch_that_was_left_too_long_ago_is_not_published(garden: Garden, new_run: NewRun, tmp_path: Path) -> None:
    garden.topic("plants", numbered(2))
    garden.topic("out")
    garden.subscription("reader", "out")
    file = tmp_path / "copy.yaml"
    file.write_text("source: {topic: plants}\nsink: {topic: out, data: data, key_window: 2000}\n")
    read_plan(str(file)).run(new_run())
    entry = tmp_path / "work/checkpoint/offsets/0"
    version, told, *rest = entry.read_text().split("\n")
    told = json.dumps(json.loads(told) | {"batchTimestampMs": 0})
    entry.write_text("\n".join([version, told, *rest]))
    for each in ("offsets/.0.crc", "commits/0", "commits/.0.crc"):
        (tmp_path / "work/checkpoint" / each).unlink()

    with pytest.raises(StaleCheckpoint, match=r"batch 0 of .*keyWindow is 0:33:20"):
        read_plan(str(file)).run(new_run())
    assert garden.client.project(garden.name).subscription("reader").offsets().max == 2


def test_a_run_that_is_told_to_stop_ends_behind_its_batch_and_the_next_goes_on(garden: Garden, new_run: NewRun) -> None:
    garden.topic("plants", numbered(5))

    def keep(run: Run, stop: bool) -> None:
        table = run.table("all", MESSAGES)

        def handle(batch: DataFrame, number: int) -> None:
            run.append(table, batch, number)
            if stop:
                run.stopping.set()

        run.stream(run.topic("plants", maxOffsetsPerTrigger="2"), handle)

    stopped = new_run()
    with pytest.raises(Stopped):
        keep(stopped, stop=True)
    first = stopped.counts()[0]
    rest = new_run()
    keep(rest, stop=False)

    assert (first, rest.counts()[0]) == (2, 3)
    rows = rest.table("all", MESSAGES).read().orderBy("offset").collect()
    assert [bytes(row["data"]) for row in rows] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_table_that_is_gone_is_not_begun_anew(garden: Garden, new_run: NewRun, tmp_path: Path) -> None:
    garden.topic("plants", numbered(2))
    file = tmp_path / "copy.yaml"
    file.write_text("source: {topic: plants}\nsink: {table: copy}\n")
    read_plan(str(file)).run(new_run())
    shutil.rmtree(tmp_path / "work/tables")
    garden.publish("plants", numbered(1))

    with pytest.raises(WrongTable, match="tables/copy is gone, and the checkpoint is behind the messages"):
        read_plan(str(file)).run(new_run())


def failing(error: Exception) -> Callable[[DataFrame, int], None]:
    def handle(batch: DataFrame, number: int) -> None:
        raise error

    return handle


def test_what_ends_a_run_is_its_root_cause(garden: Garden, new_run: NewRun) -> None:
    garden.topic("plants", numbered(1))
    run = new_run()

    with pytest.raises(NotFound, match="Topic"):
        run.topic("nowhere")
    with pytest.raises(WrongTable, match="other columns"):
        run.stream(run.topic("plants"), failing(WrongTable("other columns")))
    with pytest.raises(ZeroDivisionError):
        run.stream(run.topic("plants"), failing(ZeroDivisionError("a fault")))


def test_the_topics_of_the_project_are_known(garden: Garden, new_run: NewRun) -> None:
    garden.topic("plants")
    garden.topic("animals")

    assert sorted(new_run().topics()) == ["animals", "plants"]


def test_lost_messages_end_a_run_unless_it_is_told_to_skip_them(garden: Garden, new_run: NewRun) -> None:
    garden.topic("walls", numbered(3))
    offsets: list[int] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        offsets.extend(row.offset for row in batch.select("offset").collect())

    run = new_run()
    run.stream(run.topic("walls"), keep)
    garden.publish("walls", numbered(4))
    garden.client.call(wire.modify_topic_retention(garden.name, "walls", 60))
    garden.served.clock.advance(120_000)
    garden.publish("walls", numbered(2))

    with pytest.raises(DataLoss, match="are kept no longer; .* --skip-lost"):
        new_run().stream(new_run().topic("walls"), keep)
    told = new_run()
    told.skip_lost = True
    told.stream(told.topic("walls"), keep)

    assert offsets == [0, 1, 2, 7, 8]
