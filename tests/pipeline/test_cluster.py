"""Jobs on a cluster of Spark whose executors share only the run's folder with the driver."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ams.client import Message, wire
from ams.pipeline.checkpoint import SPARK_LOG, RunPosition, read_standing
from local_cluster.spark import SparkCluster
from tests.faults.pipeline import campaign, egi
from tests.faults.pipeline.driver import FAILURE_FILE
from tests.faults.pipeline.driving import Read, batch_of, command_of, publish, write_told
from tests.faults.pipeline.kills import batch_begins, run_through_kills
from tests.faults.pipeline.on_cluster import QUICK_JAVA, on_cluster, run_killed_cluster
from tests.pipeline.delta import by_duckdb
from tests.pipeline.garden import Garden, make_messages
from tests.support.parts import new_database
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECONDS = 240
FIRST_STANDING = RunPosition(batch=-1, time="", messages=0)  # where a run stands before its first batch
COPY = '''\
from pyspark_ams.jobs import MESSAGES, Run, job


@job
def copy(run: Run) -> None:
    """Copy plants, by a function of this file that executors have no copy of."""

    def handle(messages):
        run.publish(messages.mapInArrow(unchanged, MESSAGES), "copy")

    run.stream(run.topic("plants", maxOffsetsPerTrigger="40"), handle)


def unchanged(batches):
    yield from batches
'''


def test_a_run_works_until_the_master_removes_it(spark_cluster: SparkCluster, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", make_messages(100))
    garden.topic("copy")
    (tmp_path / "plants.py").write_text(COPY)
    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.py", "--every", "500ms", "--work", "w"]
    command += ["--master", spark_cluster.url, "--memory", "512m"]
    for each in ("memory=512m", "cores=1", f"extraJavaOptions={QUICK_JAVA}"):
        command += ["--conf", f"spark.executor.{each}"]
    # Executors know neither our sources nor our Python.
    environment = garden.environment("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")

    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: (read_standing(tmp_path / "w") or FIRST_STANDING).messages == 100, SECONDS, process=run)
        copied = garden.client.call(wire.read_topic(garden.name, "copy", most=1000))
        [application] = spark_cluster.applications()
        spark_cluster.remove(application.id)
        _, told = run.communicate(timeout=SECONDS)

    assert [each.payload() for each in copied] == [b"%d" % number for number in range(100)]
    assert run.returncode == 130, told + (tmp_path / "w" / SPARK_LOG).read_text()[-3000:]
    last = told.splitlines()[-1]
    assert last.startswith("ams: copy was ended by Spark's master: Master removed our application: KILLED;"), told
    assert "Traceback" not in told
    assert "\tat " not in told


MESSAGE_COUNT = 20_000
OFFSETS = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
COMPARED_CASES = {name: case(3) for name, case in sorted(campaign.CASES.items()) if name != "ams-archive"}


@pytest.fixture(scope="module")
def live_ams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with live_service(tmp_path_factory.mktemp("live") / "data") as running:
        yield running


class ClusterRuns(NamedTuple):
    """All jobs, run by one driver on this machine, and by another one on a cluster."""

    places: dict[str, tuple[campaign.Place, campaign.Place]]
    messages: dict[str, Read]
    folder: Path
    database: str


def failure_in(work: Path) -> str:
    file = work / FAILURE_FILE
    return file.read_text() if file.exists() else ""


@pytest.fixture(scope="module")
def runs(live_ams: LiveService, spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> ClusterRuns:
    calm = on_cluster(spark_cluster, seed=0)
    folder = tmp_path_factory.mktemp("jobs")
    here, there = [], []
    places, messages = {}, {}
    for name, case in COMPARED_CASES.items():
        places[name] = campaign.places(case, live_ams, folder / name)
        told = [campaign.told_of(case, place, batch_of(case.batch, 0)) for place in places[name]]
        here.append(write_told(told[0], live_ams, folder / name, None))
        there.append(write_told(told[1], live_ams, folder / name, calm))
    for name, each in egi.CASES.items():
        (folder / name).mkdir()
        messages[name] = publish(live_ams, name, each.samples(3))
        there.append(write_told(egi.told_of(each, folder / name, 0), live_ams, folder / name, calm))
    database = new_database()  # dropped at the end of the run: a later test of this file may not use PostgreSQL
    for log, files in (("here", here), ("there", there)):
        _drive_all(files, folder / log, {"AMS_PIPELINE_DATABASE": database})
    return ClusterRuns(places, messages, folder, database)


def _drive_all(files: list[Path], log: Path, environment: dict[str, str]) -> None:
    with log.open("w") as output:
        subprocess.run(
            command_of(*files), stdout=output, stderr=output, env=os.environ | environment, timeout=600, check=False
        )


@pytest.mark.postgres
@pytest.mark.parametrize("name", COMPARED_CASES)
def test_a_job_makes_on_a_cluster_what_it_makes_here(name: str, runs: ClusterRuns) -> None:
    calm, on_the_cluster = runs.places[name]
    assert [failure_in(place.work) for place in runs.places[name]] == ["", ""]
    assert campaign.differences(COMPARED_CASES[name], calm, on_the_cluster) == []


@pytest.mark.postgres
@pytest.mark.parametrize("name", egi.CASES)
def test_a_job_makes_on_a_cluster_what_its_oracle_says(name: str, runs: ClusterRuns) -> None:
    assert failure_in(runs.folder / name / "work") == ""
    assert egi.wrong_of(egi.CASES[name], runs.folder / name, runs.database, runs.messages[name]) == ""


def test_jobs_on_archives_run_on_a_cluster(spark_cluster: SparkCluster, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", make_messages(MESSAGE_COUNT))
    path = str(tmp_path / "archive")
    month = datetime.fromtimestamp(garden.served.clock.wall() / 1000, UTC).strftime("%Y-%m")
    schema = tmp_path / "number.json"
    schema.write_text('{"type": "number", "minimum": 7}')
    jobs: Mapping[str, Mapping[str, Any]] = {
        "archive:JOB": {"path": path}, "archive:CHECK": {"archive": path},
        "metrics:JOB": {"archive": path, "month": month},
        "replay:JOB": {"archive": path, "topic": f"{garden.name}/plants", "to": "again", "create_topics": True},
        "schema_check:JOB": {"archive": path, "file": str(schema)},
    }  # fmt: skip
    settings = on_cluster(spark_cluster, seed=0).settings
    files = [garden.tell(tmp_path / job, job, options, settings) for job, options in jobs.items()]

    _drive_all(files, tmp_path / "log", {})

    failures = {job: failure for job in jobs if (failure := failure_in(tmp_path / job))}
    assert list(failures) == ["schema_check:JOB"], failures
    assert f"7 of {MESSAGE_COUNT} messages would be refused" in failures["schema_check:JOB"]
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(MESSAGE_COUNT, MESSAGE_COUNT, 0, MESSAGE_COUNT - 1)]
    assert by_duckdb(tmp_path / "metrics:JOB" / "results" / "usage", "SELECT sum(messages) FROM rows") == [
        (MESSAGE_COUNT,)
    ]
    again = garden.client.call(wire.read_topic(garden.name, "again", most=MESSAGE_COUNT))
    assert [each.payload() for each in again] == [b"%d" % number for number in range(MESSAGE_COUNT)]


COUNT, SITES = 1200, 3


def test_one_kill_of_each_loses_and_doubles_nothing(garden: Garden, tmp_path: Path) -> None:
    garden.topic("in", [Message(b"%d" % number, {"site": str(number % SITES)}) for number in range(COUNT)])
    options = {
        "topics": ["in"], "rules": [{"attribute": "site", "to": ["SITE_{site}"]}], "create_topics": True,
        "batch_messages": COUNT // 3,
    }  # fmt: skip
    work = tmp_path / "work"

    with run_killed_cluster(tmp_path / "cluster", seed=1, workers=2) as kills:
        killed = run_through_kills(
            command_of(garden.tell(work, "republish:JOB", options, kills.settings)), kills=1,
            working=batch_begins(work / "checkpoint"), log=tmp_path / "log", spread=0.5, others=kills.each,
        )  # fmt: skip

    assert (killed.kills, kills.workers) == (1, 1)
    assert any("has ended" in line for line in kills.said)
    for site in range(SITES):
        messages = garden.client.call(wire.read_topic(garden.name, f"SITE_{site}", most=COUNT))
        assert [int(each.payload()) for each in messages] == list(range(site, COUNT, SITES))


def test_an_archive_on_a_cluster_is_under_kills_what_it_is_here(tmp_path: Path) -> None:
    # The remaining jobs: make faults-pipeline CLUSTER=--cluster
    with live_service(tmp_path / "data") as service, run_killed_cluster(tmp_path / "cluster", seed=2) as kills:
        _, different = campaign.run_case(campaign.CASES["archive"](2), service, tmp_path / "archive", 1, 2, kills)
    assert different == []
    assert kills.executors
