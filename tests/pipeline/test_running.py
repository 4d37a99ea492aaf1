"""Runs on Spark, in this process, over a real service."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

from ams.client import Message
from ams.client.errors import NotFound
from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import DataLoss, StaleCheckpoint, WrongTable
from ams.pipeline.running import Run, Stopped
from tests.pipeline.conftest import Runs
from tests.pipeline.garden import Garden, numbered

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


def walls(*rows: Any, **attributes: str) -> list[Message]:
    return [Message(json.dumps(row).encode() if not isinstance(row, bytes) else row, attributes) for row in rows]


def wall(site: str, job: int, wall: float, *tags: str) -> dict[str, Any]:
    return {"site": site, "job": job, "wall": wall, "tags": list(tags)}


def definition(end: str) -> str:
    """Return the steps of `PLAN` and this end."""
    return PLAN % end.rstrip()


@pytest.fixture
def runs(runs: Runs) -> Runs:
    """Runs in a folder with the file that `PLAN` joins."""
    (runs.folder / "sites.csv").write_text("site,country\nA,NL\nB,FR\n")
    return runs


def test_doubled_and_late_messages_change_nothing_and_broken_ones_are_set_aside(runs: Runs) -> None:
    first = walls(wall("A", 1, 5, "x"), wall("B", 1, 7), wall("A", 2, 10), b"broken", {"site": "A"}, wall("C", 1, 1))
    runs.garden.topic("walls", first, walls(wall("A", 9, 99), type="test"))

    begun = runs.do(definition(WHOLE))
    first_counts = begun.counts()
    runs.garden.publish("walls", [*first, *walls(wall("A", 1, 6, "x", "y"))])
    again = runs.do(definition(WHOLE))

    found = {row["country"]: row.asDict() for row in runs.rows("results/countries").collect()}
    assert found == {
        "NL": {"country": "NL", "jobs": 2, "wall": 16.0, "tags": 2},
        "FR": {"country": "FR", "jobs": 1, "wall": 7.0, "tags": 0},
        None: {"country": None, "jobs": 1, "wall": 1.0, "tags": 0},
    }
    assert (begun.progress.messages, first_counts) == (7, (4, 2))
    assert (again.progress.messages, again.counts()) == (7, (5, 2))
    broken = runs.rows("quarantine").orderBy("offset").collect()
    assert [(row["offset"], row["data"], row["reason"].partition(":")[0]) for row in broken] == [
        (3, b"broken", "not JSON"),
        (4, b'{"site": "A"}', "field job is missing"),
        (10, b"broken", "not JSON"),
        (11, b'{"site": "A"}', "field job is missing"),
    ]


@pytest.mark.long
def test_a_text_that_no_folder_can_be_named_by_ends_no_run(runs: Runs) -> None:
    runs.garden.topic("walls", walls(wall("A\0B", 1, 5), wall("../C=/", 2, 7)))

    runs.do(definition("sink: {table: sites, partition_by: site}"))

    assert {row.site for row in runs.rows("tables/sites").collect()} == {"A\ufffdB", "../C=/"}


@pytest.mark.long
def test_rows_are_published_as_messages_with_the_ordering_key_that_is_said(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", [*walls(wall("A", 1, 5)), Message(b'{"site": "B", "job": 2}', ordering_key="bed 4")])
    for name in ("made", "kept"):
        garden.topic(name)
        garden.subscription(f"of-{name}", name)
    sink = "sink: {topic: made, attributes: {site: place}, ordering_key: 'if(job == 1, lower(place), null)'}\n"
    copy = "source: {topic: walls}\nsink: {topic: kept, data: data, ordering_key: ordering_key}\n"

    runs.do(definition(f"  - select: {{place: site, job: job}}\n{sink}"))
    runs.do(copy, runs.begin("copy"))

    made, kept = (
        garden.client.project(garden.name).subscription(f"of-{name}").pull(10, wait=False) for name in ("made", "kept")
    )
    assert [(json.loads(each.data), each.attributes, each.ordering_key) for each in made] == [
        ({"place": "A", "job": 1}, {"site": "A"}, "a"),
        ({"place": "B", "job": 2}, {"site": "B"}, ""),
    ]
    assert [each.ordering_key for each in kept] == ["", "bed 4"]


@pytest.mark.long
def test_items_of_a_list_become_rows_of_their_own_and_a_few_can_be_looked_at(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.garden.topic("walls", walls(wall("A", 1, 5, "x", "y"), wall("B", 2, 7), wall("C", 3, 9, "z")))
    steps = "  - explode: {column: tags, as: tag}\n  - select: [tag, job]\n"

    runs.do(definition(f"{steps}sink: {{table: tags}}"))
    runs.do(definition(f"{steps}sink: {{console: 2}}"), runs.begin("look"))

    rows = runs.rows("tables/tags").orderBy("job", "tag").collect()
    assert [(row.tag, row.job, row.offset) for row in rows] == [("x", 1, 0), ("y", 1, 0), ("z", 3, 2)]
    assert "only showing top 2 rows" in capsys.readouterr().out


@pytest.mark.long
def test_a_batch_that_was_left_too_long_ago_is_not_published(runs: Runs, garden: Garden) -> None:
    garden.topic("plants", numbered(2))
    garden.topic("out")
    garden.subscription("reader", "out")
    copy = "source: {topic: plants}\nsink: {topic: out, data: data, key_window: 2000}\n"
    runs.do(copy)
    entry = runs.work / "checkpoint/offsets/0"
    version, told, *rest = entry.read_text().split("\n")
    told = json.dumps(json.loads(told) | {"batchTimestampMs": 0})
    entry.write_text("\n".join([version, told, *rest]))
    for each in ("offsets/.0.crc", "commits/0", "commits/.0.crc"):
        (runs.work / "checkpoint" / each).unlink()

    with pytest.raises(StaleCheckpoint, match=r"batch 0 of .*keyWindow is 0:33:20"):
        runs.do(copy)
    assert garden.client.project(garden.name).subscription("reader").offsets().max == 2


@pytest.mark.long
def test_a_run_that_is_told_to_stop_ends_behind_its_batch_and_the_next_goes_on(runs: Runs) -> None:
    runs.garden.topic("plants", numbered(5))

    def keep(run: Run, stop: bool) -> None:
        table = run.table("all", MESSAGES)

        def handle(batch: DataFrame, number: int) -> None:
            run.append(table, batch, number)
            if stop:
                run.stopping.set()

        run.stream(run.topic("plants", maxOffsetsPerTrigger="2"), handle)

    stopped, rest = runs.begin(), runs.begin()
    with pytest.raises(Stopped):
        keep(stopped, stop=True)
    keep(rest, stop=False)

    assert (stopped.counts()[0], rest.counts()[0]) == (2, 3)
    rows = rest.table("all", MESSAGES).read().orderBy("offset").collect()
    assert [bytes(row["data"]) for row in rows] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.long
def test_a_table_that_is_gone_is_not_begun_anew(runs: Runs) -> None:
    runs.garden.topic("plants", numbered(2))
    copy = "source: {topic: plants}\nsink: {table: copy}\n"
    runs.do(copy)
    shutil.rmtree(runs.work / "tables")
    runs.garden.publish("plants", numbered(1))

    with pytest.raises(WrongTable, match="tables/copy is gone, and the checkpoint is behind the messages"):
        runs.do(copy)


def failing(error: Exception) -> Callable[[DataFrame, int], None]:
    def handle(batch: DataFrame, number: int) -> None:
        raise error

    return handle


@pytest.mark.long
def test_what_ends_a_run_is_its_root_cause(runs: Runs) -> None:
    runs.garden.topic("plants", numbered(1))
    run = runs.begin()

    with pytest.raises(NotFound, match="Topic"):
        run.topic("nowhere")
    with pytest.raises(WrongTable, match="other columns"):
        run.stream(run.topic("plants"), failing(WrongTable("other columns")))
    with pytest.raises(ZeroDivisionError):
        run.stream(run.topic("plants"), failing(ZeroDivisionError("a fault")))


@pytest.mark.long
def test_the_topics_of_the_project_are_known(runs: Runs) -> None:
    runs.garden.topic("plants")
    runs.garden.topic("animals")

    assert sorted(runs.begin().topics()) == ["animals", "plants"]


@pytest.mark.long
def test_lost_messages_end_a_run_unless_it_is_told_to_skip_them(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", numbered(3))
    offsets: list[int] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        offsets.extend(row.offset for row in batch.select("offset").collect())

    run = runs.begin()
    run.stream(run.topic("walls"), keep)
    garden.publish("walls", numbered(4))
    garden.forget("walls")
    garden.publish("walls", numbered(2))

    with pytest.raises(DataLoss, match="are kept no longer; .* --skip-lost"):
        runs.begin().stream(runs.begin().topic("walls"), keep)
    told = runs.begin()
    told.skip_lost = True
    told.stream(told.topic("walls"), keep)

    assert offsets == [0, 1, 2, 7, 8]
