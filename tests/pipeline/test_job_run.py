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
from pyspark.sql import functions as F

from ams.client import Message
from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import DataLoss, Failed, WrongTable
from ams.pipeline.plans import read_plan
from ams.pipeline.run import Run, Stopped
from pyspark_ams.jobs import Json, last_published
from tests.pipeline.conftest import Runs
from tests.pipeline.garden import Garden, make_messages
from tests.support.waiting import wait_until

COUNTRIES = {"A": "NL", "B": "FR"}


def count_countries(run: Run) -> None:
    """Count jobs by country, the last message of each job."""
    parse = Json("site string, job bigint, wall double, tags array<string>", required=["site", "job"])
    rows = run.table("rows", parse.schema)

    def keep(messages: DataFrame) -> None:
        kind = F.coalesce(F.col("attributes")["type"], F.lit(""))
        run.append(rows, run.parsed(messages.where(kind != "test"), parse))

    def count() -> None:
        jobs = last_published(rows.read(), "site", "job")
        country = F.coalesce(*(F.when(F.col("site") == site, name) for site, name in COUNTRIES.items()))
        tags = F.sum(F.size("tags")).alias("tags")
        counted = jobs.groupBy(country.alias("country")).agg(
            F.count("*").alias("jobs"), F.sum("wall").alias("wall"), tags
        )
        run.replace("countries", counted)

    run.stream(run.topic("walls", maxOffsetsPerTrigger="6"), keep, count)


def copy_table(run: Run) -> None:
    """Keep a topic in a table."""
    table = run.table("copy", MESSAGES)
    run.stream(run.topic("plants"), lambda messages: run.append(table, messages))


def wall_messages(*rows: Any, **attributes: str) -> list[Message]:
    return [Message(json.dumps(row).encode() if not isinstance(row, bytes) else row, attributes) for row in rows]


def wall(site: str, job: int, wall: float, *tags: str) -> dict[str, Any]:
    return {"site": site, "job": job, "wall": wall, "tags": list(tags)}


def test_doubled_and_late_messages_change_nothing_and_broken_ones_are_set_aside(runs: Runs) -> None:
    first = wall_messages(
        wall("A", 1, 5, "x"), wall("B", 1, 7), wall("A", 2, 10), b"broken", {"site": "A"}, wall("C", 1, 1)
    )
    runs.garden.topic("walls", first, wall_messages(wall("A", 9, 99), type="test"))

    begun = runs.do(count_countries)
    first_counts = begun.counts()
    runs.garden.publish("walls", [*first, *wall_messages(wall("A", 1, 6, "x", "y"))])
    again = runs.do(count_countries)

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
    def keep(run: Run) -> None:
        parse = Json("site string")
        table = run.table("sites", parse.schema, ("site",))
        run.stream(run.topic("walls"), lambda messages: run.append(table, run.parsed(messages, parse)))

    runs.garden.topic("walls", wall_messages(wall("A\0B", 1, 5), wall("../C=/", 2, 7)))
    runs.do(keep)
    assert {row.site for row in runs.rows("tables/sites").collect()} == {"A\ufffdB", "../C=/"}


@pytest.mark.long
def test_rows_are_published_once_in_order_also_twice_to_one_topic(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", [*wall_messages(wall("A", 1, 5)), Message(b'{"site": "B", "job": 2}', ordering_key="bed 4")])
    garden.topic("made")
    garden.subscription("of-made", "made")

    def publish(run: Run) -> None:
        parse = Json("site string, job bigint")

        def handle(messages: DataFrame) -> None:
            rows = run.parsed(messages, parse)
            data = F.to_json(F.struct("site", "job")).alias("data")
            attributes = F.create_map(F.lit("site"), F.col("site")).alias("attributes")
            run.publish(rows.select(data, attributes, F.lower("site").alias("ordering_key"), "source"), "made")
            run.publish(messages, "made")

        run.stream(run.topic("walls"), handle)

    runs.do(publish)
    shutil.rmtree(runs.work / "checkpoint" / "commits")  # as after a kill: the batch comes again
    runs.do(publish)

    pulled = garden.client.project(garden.name).subscription("of-made").pull(10, wait=False)
    assert [(json.loads(each.data).get("wall", 0), each.attributes, each.ordering_key) for each in pulled] == [
        (0, {"site": "A"}, "a"), (0, {"site": "B"}, "b"), (5, {}, ""), (0, {}, "bed 4"),
    ]  # fmt: skip


@pytest.mark.long
def test_a_run_that_is_told_to_stop_ends_behind_its_batch_and_the_next_goes_on(runs: Runs) -> None:
    runs.garden.topic("plants", make_messages(5))

    def keep(run: Run, stop: bool) -> None:
        table = run.table("all", MESSAGES)

        def handle(messages: DataFrame) -> None:
            run.append(table, messages)
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
def test_a_mistake_in_a_batch_of_a_file_is_told_with_its_line(runs: Runs, tmp_path: Path) -> None:
    runs.garden.topic("plants", make_messages(1))
    file = tmp_path / "plants.py"
    file.write_text(PLANTS.replace("run.append(table, messages.mapInArrow(unchanged, MESSAGES))", "[].pop()"))

    with pytest.raises(Failed, match=r"plants\.py:8: IndexError: pop from empty list"):
        runs.do(read_plan(str(file)).run)


@pytest.mark.long
def test_a_table_that_is_gone_is_not_begun_anew(runs: Runs) -> None:
    runs.garden.topic("plants", make_messages(2))
    runs.do(copy_table)
    shutil.rmtree(runs.work / "tables")
    runs.garden.publish("plants", make_messages(1))

    with pytest.raises(WrongTable, match="tables/copy is gone, and the checkpoint is behind the messages"):
        runs.do(copy_table)


@pytest.mark.long
def test_lost_messages_end_a_run_unless_it_is_told_to_skip_them(runs: Runs, garden: Garden) -> None:
    garden.topic("walls", make_messages(3))
    offsets: list[int] = []

    def keep(messages: DataFrame) -> None:
        offsets.extend(row.offset for row in messages.select("offset").collect())

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
PLANTS = '''\
from pyspark_ams.jobs import MESSAGES, Run, job


@job
def plants(run: Run) -> None:
    """Keep plants, by a function of this file that runs in tasks."""
    table = run.table("plants", MESSAGES)
    run.stream(run.topic("plants"), lambda messages: run.append(table, messages.mapInArrow(unchanged, MESSAGES)))


def unchanged(batches):
    yield from batches
'''


@contextlib.contextmanager
def run_command(garden: Garden, folder: Path, *flags: str, group: bool = False) -> Iterator["subprocess.Popen[str]"]:
    (folder / "plants.py").write_text(PLANTS)

    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.py", "--work", "w", *flags]
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
