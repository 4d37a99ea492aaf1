"""Runs on Spark over a real service, in this process and in child processes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from ams.client import Message
from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import DataLoss, WrongTable
from ams.pipeline.job_run import Run, Stopped
from tests.pipeline.conftest import Runs
from tests.pipeline.garden import Garden, make_messages
from tests.support.waiting import wait_until

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
COUNTRIES_STEPS = """\
  - deduplicate: {by: [site, job], keep: last}
  - aggregate: {by: [country], values: {jobs: count(*), wall: sum(wall), tags: sum(size(tags))}}
sink: {table: countries}
"""


def wall_messages(*rows: Any, **attributes: str) -> list[Message]:
    return [Message(json.dumps(row).encode() if not isinstance(row, bytes) else row, attributes) for row in rows]


def wall(site: str, job: int, wall: float, *tags: str) -> dict[str, Any]:
    return {"site": site, "job": job, "wall": wall, "tags": list(tags)}


def definition(end: str) -> str:
    return PLAN % end.rstrip()


@pytest.fixture
def runs(runs: Runs) -> Runs:
    """Runs in a folder with the file that `PLAN` joins."""
    (runs.folder / "sites.csv").write_text("site,country\nA,NL\nB,FR\n")
    return runs


def test_doubled_and_late_messages_change_nothing_and_broken_ones_are_set_aside(runs: Runs) -> None:
    first = wall_messages(
        wall("A", 1, 5, "x"), wall("B", 1, 7), wall("A", 2, 10), b"broken", {"site": "A"}, wall("C", 1, 1)
    )
    runs.garden.topic("walls", first, wall_messages(wall("A", 9, 99), type="test"))

    begun = runs.do(definition(COUNTRIES_STEPS))
    first_counts = begun.counts()
    runs.garden.publish("walls", [*first, *wall_messages(wall("A", 1, 6, "x", "y"))])
    again = runs.do(definition(COUNTRIES_STEPS))

    assert {row["country"]: row.asDict() for row in runs.rows("results/countries").collect()} == {
        "NL": {"country": "NL", "jobs": 2, "wall": 16.0, "tags": 2},
        "FR": {"country": "FR", "jobs": 1, "wall": 7.0, "tags": 0},
        None: {"country": None, "jobs": 1, "wall": 1.0, "tags": 0},
    }
    assert (begun.progress.messages, first_counts) == (7, (4, 2))
    assert (again.progress.messages, again.counts()) == (7, (5, 2))
    broken = runs.rows("quarantine").orderBy("offset").collect()
    assert [(row["offset"], row["data"], row["reason"].partition(":")[0]) for row in broken] == [
        (3, b"broken", "not JSON"), (4, b'{"site": "A"}', "field job is missing"), (10, b"broken", "not JSON"),
        (11, b'{"site": "A"}', "field job is missing"),
    ]  # fmt: skip


@pytest.mark.long
def test_a_text_that_no_folder_can_be_named_by_ends_no_run(runs: Runs) -> None:
    runs.garden.topic("walls", wall_messages(wall("A\0B", 1, 5), wall("../C=/", 2, 7)))
    runs.do(definition("sink: {table: sites, partition_by: site}"))
    assert {row.site for row in runs.rows("tables/sites").collect()} == {"A\ufffdB", "../C=/"}


@pytest.mark.long
def test_rows_are_published_as_messages_with_the_ordering_key_that_is_said(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", [*wall_messages(wall("A", 1, 5)), Message(b'{"site": "B", "job": 2}', ordering_key="bed 4")])
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
def test_items_of_a_list_become_rows_and_a_few_can_be_looked_at(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs.garden.topic("walls", wall_messages(wall("A", 1, 5, "x", "y"), wall("B", 2, 7), wall("C", 3, 9, "z")))
    steps = "  - explode: {column: tags, as: tag}\n  - select: [tag, job]\n"

    runs.do(definition(f"{steps}sink: {{table: tags}}"))
    runs.do(definition(f"{steps}sink: {{console: 2}}"), runs.begin("look"))

    rows = runs.rows("tables/tags").orderBy("job", "tag").collect()
    assert [(row.tag, row.job, row.offset) for row in rows] == [("x", 1, 0), ("y", 1, 0), ("z", 3, 2)]
    assert "only showing top 2 rows" in capsys.readouterr().out


@pytest.mark.long
def test_a_run_that_is_told_to_stop_ends_behind_its_batch_and_the_next_goes_on(runs: Runs) -> None:
    runs.garden.topic("plants", make_messages(5))

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
    runs.garden.topic("plants", make_messages(2))
    copy = "source: {topic: plants}\nsink: {table: copy}\n"
    runs.do(copy)
    shutil.rmtree(runs.work / "tables")
    runs.garden.publish("plants", make_messages(1))

    with pytest.raises(WrongTable, match="tables/copy is gone, and the checkpoint is behind the messages"):
        runs.do(copy)


@pytest.mark.long
def test_lost_messages_end_a_run_unless_it_is_told_to_skip_them(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", make_messages(3))
    offsets: list[int] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        offsets.extend(row.offset for row in batch.select("offset").collect())

    run = runs.begin()
    run.stream(run.topic("walls"), keep)
    garden.publish("walls", make_messages(4))
    garden.forget("walls")
    garden.publish("walls", make_messages(2))

    with pytest.raises(DataLoss, match="are kept no longer; .* --skip-lost"):
        runs.begin().stream(runs.begin().topic("walls"), keep)
    told = runs.begin()
    told.skip_lost = True
    told.stream(told.topic("walls"), keep)

    assert offsets == [0, 1, 2, 7, 8]


SECONDS = 240  # a start of Spark, on a busy machine
DEFINITION = """\
source: {topic: plants}
steps: [{derive: {text: cast(data as string)}}]
sink: {table: plants}
"""


@contextlib.contextmanager
def run_command(garden: Garden, folder: Path, *flags: str, group: bool = False) -> Iterator["subprocess.Popen[str]"]:
    (folder / "plants.yaml").write_text(DEFINITION)

    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.yaml", "--work", "w", *flags]
    with subprocess.Popen(
        command, cwd=folder, env=garden.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=group,
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            run.kill()


@pytest.mark.spark
@pytest.mark.long
def test_a_spark_that_does_not_start_is_told_in_one_line(garden: Garden, tmp_path: Path) -> None:
    with run_command(garden, tmp_path, "--memory", "much") as run:
        _, err = run.communicate(timeout=SECONDS)
    assert (run.returncode, err) == (1, f"ams: Spark did not start; {tmp_path}/w/spark.log says why\n")
    assert "much" in (tmp_path / "w" / "spark.log").read_text()


@pytest.mark.spark
@pytest.mark.long
def test_sigterm_for_the_whole_process_group_is_an_interruption_and_no_fault(garden: Garden, tmp_path: Path) -> None:
    """As `timeout` and systemd send it: Java gets it too, here during its start."""
    with run_command(garden, tmp_path, "--every", "1s", group=True) as run:
        wait_until((tmp_path / "w" / SPARK_LOG).exists, SECONDS, process=run)
        os.killpg(run.pid, signal.SIGTERM)
        out, err = run.communicate(timeout=SECONDS)

    assert (run.returncode, out) == (130, "")
    assert err == (
        "ams: plants was ended together with its Spark: what is done stays done, the next run goes on behind it\n"
    )


@pytest.mark.spark
@pytest.mark.long
def test_sigterm_ends_a_run_that_goes_on_with_one_line_and_the_token_is_nowhere(garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", make_messages(3))
    with run_command(garden, tmp_path, "--every", "1s") as run:
        wait_until(lambda: read_standing(tmp_path / "w"), SECONDS, process=run)
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=SECONDS)

    assert run.returncode == 0, err
    assert out.startswith("plants: messages 3 records 3 broken 0 batches 1 seconds ")
    assert err.splitlines()[-1] == "SIGTERM: ending after the batch at work; once more ends at once"
    assert len(err.splitlines()) < 5
    kept = [file.read_bytes() for file in (tmp_path / "w").rglob("*") if file.is_file()]
    assert kept
    assert garden.served.token.encode() not in b"".join([*kept, out.encode(), err.encode()])
