"""The jobs `alarms`, `cloud-info` and `federation`, killed at random moments, against their oracles.

`python -m tests.faults.pipeline.egi [--kills 5] [--seed 0] [JOB ...]` starts a service of its own, publishes a made-up
day in disorder, and runs each job through kills; what it leaves must be what plain reading of the messages tells.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ams.client import Client, Message, wire
from ams.client.wire.projects import create_project
from demo.pipeline.samples import Sample, alarms, cloud, federation
from demo.pipeline.samples.mishaps import Mishaps
from tests.faults.pipeline.kills import run_through_kills
from tests.faults.pipeline.on_cluster import Kills
from tests.pipeline.delta import by_duckdb
from tests.pipeline.jobs.alarms import test_job as alarms_oracle
from tests.pipeline.jobs.cloud import test_job as cloud_oracle
from tests.pipeline.jobs.federation import test_job as federation_oracle
from tests.pipeline.jobs.recorded import rows_of
from tests.support.parts import scratch_database
from tests.support.service import LiveService, live_service

DAY = date(2024, 3, 5)
MISHAPS = Mishaps(late=0.3, doubled=0.3, broken=0.05)
BATCH = 150
"""Messages a batch: few, so that there are many batches to be killed in."""
MORE_OF_A_BATCH = 4
"""Batches are few where nothing is killed in them."""

SPREAD = 6.0
"""Seconds within which it is killed: of its start, or of the work on a batch."""

Read = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A job, what is published for it, and whether what it left is right."""

    job: str
    samples: Callable[[int], Iterator[Sample]]
    options: dict[str, Any]
    check: Callable[[Path, str, Read], None]
    """Takes the work folder, the database, and the messages as the service has them."""


def main() -> int:
    """Run what the arguments say; return 1 when what a job left is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("jobs", nargs="*", default=list(CASES), metavar="JOB")
    told = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory() as folder, live_service(Path(folder) / "data") as service:
        for name in told.jobs:
            with scratch_database() as database:
                kills, wrong = run_case(CASES[name], service, Path(folder) / name, database, told.kills, told.seed)
            print(f"{name}: {kills} kills, {wrong or 'nothing lost, nothing doubled'}", flush=True)
            broken += bool(wrong)
    return 1 if broken else 0


def run_case(
    case: Case,
    service: LiveService,
    folder: Path,
    database: str,
    kills: int,
    seed: int,
    more: Kills | None = None,
) -> tuple[int, str]:
    """Run one job through kills; return how often it was killed at work, and what is wrong with what it left."""
    folder.mkdir()
    messages = _published(service, folder.name, list(case.samples(seed)))
    source = {"endpoint": service.base_url, "token": service.token, "project": folder.name}
    work = folder / "work"
    (folder / "told.json").write_text(
        json.dumps(
            {
                "job": case.job,
                "work": str(work),
                "source": source,
                "options": {**case.options, "batch_messages": BATCH * (1 if kills else MORE_OF_A_BATCH)},
                "settings": dict(more.settings) if more else {"spark.sql.shuffle.partitions": "1"},
            }
        )
    )
    killed = run_through_kills(
        [sys.executable, "-m", "tests.faults.pipeline.driver", str(folder / "told.json")],
        kills=kills,
        working=lambda: is_at_work(work / "checkpoint"),
        log=folder / "log",
        spread=SPREAD,
        seed=seed,
        environment={"AMS_PIPELINE_DATABASE": database},
        others=more.each if more else (),
    )
    try:
        case.check(work, database, messages)
    except AssertionError as error:
        return killed.kills, str(error)[:2000] or repr(error)
    return killed.kills, ""


def is_at_work(checkpoint: Path) -> bool:
    """Whether a batch has begun that has not ended; a run that is started again begins with it."""
    numbers = [{int(file.name) for file in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits")]
    return numbers[0] > numbers[1]


def _published(service: LiveService, project: str, samples: list[Sample]) -> Read:
    """Publish samples in their order; return them as the service keeps them."""
    with Client(service.base_url, service.token) as client:
        client.call(create_project(project))
        for topic in sorted({sample.topic for sample in samples}):
            client.project(project).topic(topic).create()
        for sample in samples:
            client.project(project).topic(sample.topic).publish([Message(sample.data, dict(sample.attributes))])
        return [
            {
                "topic": topic,
                "offset": each.offset,
                "publish_time": datetime.fromisoformat(each.publish_time),
                "data": each.payload(),
            }
            for topic in sorted({sample.topic for sample in samples})
            for each in client.call(wire.read_topic(project, topic))
        ]


def _check_alarms(work: Path, database: str, messages: Read) -> None:
    expected = alarms_oracle.Expected.of(messages)
    found = alarms_oracle.rows_of(database)
    assert found.alarms == expected.alarms
    assert found.history == expected.history
    assert found.changes == expected.changes
    _check_quarantine(work, messages, lambda data: alarms_oracle.plainly(data) is None)


def _check_clouds(work: Path, database: str, messages: Read) -> None:
    run: Any = SimpleNamespace(work=work)
    newest = cloud_oracle.latest_of(messages)
    found = {row[:3]: row[3] for row in cloud_oracle.sites(run)}
    assert found == {place: images for place, (images, _) in newest.items()}
    assert {site["site"] for site in cloud_oracle.catalogue_of(run)["sites"]} == {site for _, site, _ in newest}
    _check_quarantine(work, messages, cloud_oracle.is_spoilt)


def _check_federation(work: Path, database: str, messages: Read) -> None:
    run: Any = SimpleNamespace(work=work)
    assert rows_of(run, "versions", federation_oracle.STATE) == federation_oracle.versions_of(messages)
    _check_quarantine(work, messages, lambda data: federation_oracle.plainly(data) is None, as_it_was=False)


def _check_quarantine(
    work: Path, messages: Read, is_broken: Callable[[bytes], bool], *, as_it_was: bool = True
) -> None:
    """Each message that cannot be read is there once, as it was unless the job hides secrets."""
    broken = sorted((each["topic"], each["offset"], each["data"]) for each in messages if is_broken(each["data"]))
    found = by_duckdb(work / "quarantine", 'SELECT topic, "offset", data FROM rows ORDER BY ALL')
    places = [row[:2] for row in found]
    assert places == [row[:2] for row in broken], f"the quarantine holds {places}"
    assert not as_it_was or found == broken, "a message in the quarantine is not as it was"


CASES = {
    "alarms": Case(
        "ams.pipeline.jobs.alarms.job:JOB",
        lambda seed: alarms.messages(seed, DAY, sites=4, outages=40, mishaps=MISHAPS),
        {"topics": list(alarms.TOPICS)},
        _check_alarms,
    ),
    "cloud-info": Case(
        "ams.pipeline.jobs.cloud.job:JOB",
        lambda seed: cloud.messages(seed, DAY, sites=8, hours=20, mishaps=MISHAPS),
        {"now": (datetime.now(UTC) + timedelta(hours=13)).isoformat()},
        _check_clouds,
    ),
    "federation": Case(
        "ams.pipeline.jobs.federation.job:JOB",
        lambda seed: federation.messages(seed, DAY, services=150, mishaps=MISHAPS),
        {},
        _check_federation,
    ),
}


if __name__ == "__main__":
    sys.exit(main())
