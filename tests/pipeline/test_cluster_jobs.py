"""Every job on a cluster of Spark, and what is told there when messages or files are lost, or the run is ended."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ams.client import wire
from ams.pipeline.checkpoint import SPARK_LOG, Standing, read_standing
from cluster.spark import SparkCluster
from tests.faults.pipeline import campaign, egi
from tests.faults.pipeline.on_cluster import Kills, on_cluster
from tests.pipeline.cluster_runs import command, environment, eventually, run
from tests.pipeline.delta import by_duckdb, files_of
from tests.pipeline.garden import Garden, numbered
from tests.support.parts import scratch_database
from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.spark, pytest.mark.long]

MANY = 20_000
OFFSETS = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
NOTHING = Standing(batch=-1, time="", messages=0)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with live_service(tmp_path_factory.mktemp("live") / "data") as running:
        yield running


@pytest.fixture
def calm(spark_cluster: SparkCluster) -> Kills:
    """The cluster, on which nobody is killed."""
    return on_cluster(spark_cluster, seed=0)


@pytest.mark.parametrize("name", sorted(campaign.CASES.keys() - {"ams-archive"}))
def test_a_job_makes_on_a_cluster_what_it_makes_here(name: str, live: LiveService, calm: Kills, tmp_path: Path) -> None:
    _, different = campaign.run_case(campaign.CASES[name](3), live, tmp_path / name, 0, 3, calm)

    assert different == []


@pytest.mark.postgres
@pytest.mark.parametrize("name", egi.CASES)
def test_a_job_makes_on_a_cluster_what_its_oracle_says(
    name: str, live: LiveService, calm: Kills, tmp_path: Path
) -> None:
    with scratch_database() as database:
        _, wrong = egi.run_case(egi.CASES[name], live, tmp_path / name, database, 0, 3, calm)

    assert wrong == ""


def test_jobs_on_archives_run_on_a_cluster(spark_cluster: SparkCluster, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", numbered(MANY))
    path = tmp_path / "archive"
    month = datetime.fromtimestamp(garden.served.clock.wall() / 1000, UTC).strftime("%Y-%m")
    (tmp_path / "number.json").write_text('{"type": "number", "minimum": 7}')
    jobs = {
        "archive": {"path": path},
        "archive-check": {"archive": path},
        "metrics": {"archive": path, "month": month},
        "replay": {"archive": path, "topic": f"{garden.name}/plants", "to": "again", "create_topics": True},
        "schema-check": {"archive": path, "file": tmp_path / "number.json"},
    }

    told = {job: run(spark_cluster, garden, tmp_path / job, job, **options) for job, options in jobs.items()}

    assert [job for job, each in told.items() if each.code] == ["schema-check"], told
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(MANY, MANY, 0, MANY - 1)]
    assert told["archive-check"].messages == MANY
    assert told["metrics"].messages == MANY
    assert f"7 of {MANY} messages would be refused" in told["schema-check"].last
    again = garden.client.call(wire.read_topic(garden.name, "again", most=MANY))
    assert [each.payload() for each in again] == [b"%d" % number for number in range(MANY)]


def test_what_is_lost_is_told_in_numbers(spark_cluster: SparkCluster, garden: Garden, tmp_path: Path) -> None:
    path = tmp_path / "archive"

    def archive(*flags: str) -> tuple[int, str]:
        options = {"path": path, "topics": "[plants]", "merge": False}
        told = run(spark_cluster, garden, tmp_path / "work", "archive", *flags, **options)
        return told.code, told.errors

    def check() -> tuple[int, str]:
        told = run(spark_cluster, garden, tmp_path / "check", "archive-check", archive=path)
        return told.code, told.out + told.errors

    # Retention was faster than the archive: half of it is gone before it was read.
    garden.topic("plants", numbered(MANY))
    assert archive()[0] == 0
    garden.publish("plants", numbered(MANY, MANY))
    garden.client.call(wire.modify_topic_retention(garden.name, "plants", 60))
    garden.served.clock.advance(120_000)
    garden.publish("plants", numbered(MANY, 2 * MANY))
    code, said = archive()
    assert (code, f"messages {MANY} to {2 * MANY - 1} of topic" in said) == (1, True), said
    assert archive("--skip-lost")[0] == 0
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(2 * MANY, 2 * MANY, 0, 3 * MANY - 1)]
    code, said = check()
    assert (code != 0, f"offsets {MANY} to {2 * MANY - 1} are missing" in said) == (True, True), said

    # What retention took from the topic is published again from the archive.
    told = run(
        spark_cluster, garden, tmp_path / "replay", "replay",
        archive=path, topic=f"{garden.name}/plants", to="again", to_offset=MANY, create_topics=True,
    )  # fmt: skip
    assert told.code == 0, told.errors
    again = garden.client.call(wire.read_topic(garden.name, "again", most=MANY))
    assert [each.payload() for each in again] == [b"%d" % number for number in range(MANY)]

    # Another topic of the same name is not taken for the one that was archived.
    garden.client.project(garden.name).topic("plants").delete()
    garden.topic("plants", numbered(4 * MANY))
    code, said = archive()
    assert (code, "was deleted and made again" in said) == (1, True), said
    assert archive("--skip-lost")[0] == 0
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(6 * MANY, 4 * MANY, 0, 4 * MANY - 1)]

    # Files of which a byte changed, or that are cut or gone, are named, each of them.
    changed, cut, gone = (path / name for name in files_of(path)[:3])
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[:-1])
    gone.unlink()
    code, said = check()
    assert (code != 0, [each.name in said for each in (changed, cut, gone)]) == (True, [True] * 3), said


def test_sigterm_to_all_its_processes_ends_a_run_in_one_line_and_it_goes_on(
    spark_cluster: SparkCluster, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("plants", numbered(MANY))
    path, work = tmp_path / "archive", tmp_path / "work"
    words = command(
        spark_cluster, "archive", "--work", str(work), "--set", f"path={path}", "--set", "batch_messages=500"
    )

    with subprocess.Popen(
        words, env=environment(garden), cwd="/", stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ended:
        eventually(lambda: (read_standing(work) or NOTHING).messages > 0, ended)
        os.killpg(ended.pid, signal.SIGTERM)
        try:
            _, told = ended.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ended.pid, signal.SIGKILL)

    assert ended.returncode == 130, told + (work / SPARK_LOG).read_text()[-3000:]
    assert "Traceback" not in told
    assert "\tat " not in told
    assert len([line for line in told.splitlines() if line.startswith("ams: ")]) <= 1
    stored = by_duckdb(path, f"SELECT {OFFSETS} FROM rows")[0][0]
    assert 0 < stored < MANY

    assert run(spark_cluster, garden, work, "archive", path=path).code == 0
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(MANY, MANY, 0, MANY - 1)]
