"""Every job on a cluster of Spark, and what is told there when the run is ended."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ams.client import wire
from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from cluster.spark import SparkCluster
from tests.faults.pipeline import campaign, egi
from tests.faults.pipeline.driver import FAILED
from tests.faults.pipeline.driving import Read, batch_of, command_of, publish, write_told
from tests.faults.pipeline.on_cluster import on_cluster
from tests.pipeline.cluster_runs import NOTHING, SECONDS, command, environment
from tests.pipeline.delta import by_duckdb
from tests.pipeline.garden import Garden, numbered
from tests.support.parts import scratch_database
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.long]

MANY = 20_000
OFFSETS = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
COMPARED = {name: case(3) for name, case in sorted(campaign.CASES.items()) if name != "ams-archive"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with live_service(tmp_path_factory.mktemp("live") / "data") as running:
        yield running


class Ran(NamedTuple):
    """All jobs, after one driver ran them on this machine, and another one on a cluster."""

    places: dict[str, tuple[campaign.Place, campaign.Place]]
    messages: dict[str, Read]
    folder: Path
    database: str


def failure_in(work: Path) -> str:
    file = work / FAILED
    return file.read_text() if file.exists() else ""


@pytest.fixture(scope="module")
def ran(live: LiveService, spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    calm = on_cluster(spark_cluster, seed=0)
    folder = tmp_path_factory.mktemp("jobs")
    here, there = [], []
    places, messages = {}, {}
    for name, case in COMPARED.items():
        places[name] = campaign.places(case, live, folder / name)
        told = [campaign.told_of(case, place, batch_of(case.batch, 0)) for place in places[name]]
        here.append(write_told(told[0], live, folder / name, None))
        there.append(write_told(told[1], live, folder / name, calm))
    for name, each in egi.CASES.items():
        (folder / name).mkdir()
        messages[name] = publish(live, name, each.samples(3))
        there.append(write_told(egi.told_of(each, folder / name, 0), live, folder / name, calm))
    with scratch_database() as database:
        environment = {"AMS_PIPELINE_DATABASE": database}
        for log, files in (("here", here), ("there", there)):
            _drive_all(files, folder / log, environment)
        yield Ran(places, messages, folder, database)


def _drive_all(files: list[Path], log: Path, environment: dict[str, str]) -> None:
    with log.open("w") as output:
        subprocess.run(
            command_of(*files), stdout=output, stderr=output, env=os.environ | environment, timeout=600, check=False
        )


@pytest.mark.parametrize("name", COMPARED)
def test_a_job_makes_on_a_cluster_what_it_makes_here(name: str, ran: Ran) -> None:
    calm, on_the_cluster = ran.places[name]

    assert [failure_in(place.work) for place in ran.places[name]] == ["", ""]
    assert campaign.differences(COMPARED[name], calm, on_the_cluster) == []


@pytest.mark.parametrize("name", egi.CASES)
def test_a_job_makes_on_a_cluster_what_its_oracle_says(name: str, ran: Ran) -> None:
    assert failure_in(ran.folder / name / "work") == ""
    assert egi.wrong_of(egi.CASES[name], ran.folder / name, ran.database, ran.messages[name]) == ""


def test_jobs_on_archives_run_on_a_cluster(spark_cluster: SparkCluster, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", numbered(MANY))
    path = str(tmp_path / "archive")
    month = datetime.fromtimestamp(garden.served.clock.wall() / 1000, UTC).strftime("%Y-%m")
    schema = tmp_path / "number.json"
    schema.write_text('{"type": "number", "minimum": 7}')
    jobs: Mapping[str, Mapping[str, Any]] = {
        "archive:JOB": {"path": path},
        "archive:CHECK": {"archive": path},
        "metrics:JOB": {"archive": path, "month": month},
        "replay:JOB": {"archive": path, "topic": f"{garden.name}/plants", "to": "again", "create_topics": True},
        "schema_check:JOB": {"archive": path, "file": str(schema)},
    }
    settings = on_cluster(spark_cluster, seed=0).settings
    files = [garden.tell(tmp_path / job, job, options, settings) for job, options in jobs.items()]

    _drive_all(files, tmp_path / "log", {})

    failures = {job: failure for job in jobs if (failure := failure_in(tmp_path / job))}
    assert list(failures) == ["schema_check:JOB"], failures
    assert f"7 of {MANY} messages would be refused" in failures["schema_check:JOB"]
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(MANY, MANY, 0, MANY - 1)]
    assert by_duckdb(tmp_path / "metrics:JOB" / "results" / "usage", "SELECT sum(messages) FROM rows") == [(MANY,)]
    again = garden.client.call(wire.read_topic(garden.name, "again", most=MANY))
    assert [each.payload() for each in again] == [b"%d" % number for number in range(MANY)]


def test_sigterm_to_all_its_processes_ends_a_run_in_one_line_and_it_goes_on(
    spark_cluster: SparkCluster, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("plants", numbered(MANY))
    path, work = tmp_path / "archive", tmp_path / "work"
    job = ("archive", "--work", str(work), "--set", f"path={path}")
    words = command(spark_cluster, *job, "--set", "batch_messages=500")

    with subprocess.Popen(
        words, env=environment(garden), cwd="/", stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ended:
        wait_until(lambda: (read_standing(work) or NOTHING).messages > 0, process=ended)
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

    words = command(spark_cluster, *job)
    subprocess.run(words, env=environment(garden), cwd="/", capture_output=True, timeout=SECONDS, check=True)
    assert by_duckdb(path, f"SELECT {OFFSETS} FROM rows") == [(MANY, MANY, 0, MANY - 1)]
