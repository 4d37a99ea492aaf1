"""Kills the driver of every job at random moments, and compares its tables with those of an undisturbed run.

`python -m tests.faults.pipeline.campaign [--kills 5] [--seed 0] [--cluster] [JOB ...]`, or
`make faults-pipeline N=5 JOB=archive CLUSTER=--cluster`, starts a service of its own and publishes a made-up day in
disorder. It runs each job undisturbed into one folder and through kills into another, and compares the rows of both,
including quarantined ones. The jobs of `egi` are compared with oracles instead.
With `--cluster` the killed runs use a cluster of Spark with speculation, and each kill also takes an executor and a
worker; but `ams-archive`, which is `ams archive`, never needs Spark.
"""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ams.client import Client, wire
from demo.pipeline.samples import Sample, accounting, alarms, monitoring
from tests.faults.pipeline import egi
from tests.faults.pipeline.driving import DAY, MISHAPS, batch_of, drive, publish
from tests.faults.pipeline.kills import commit_appears, run_through_kills
from tests.faults.pipeline.on_cluster import Kills, run_killed_cluster
from tests.pipeline.delta import by_duckdb
from tests.support.parts import scratch_database
from tests.support.service import LiveService, live_service

WITHOUT_SPARK, SPREAD_WITHOUT_SPARK = "ams archive", 0.3

Rows = list[str]
Left = Mapping[str, Rows]
"""Results of a run: by table or topic, its rows, sorted, or in the topic's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    service: LiveService
    folder: Path  # its name is the project's, too
    name: str  # `calm` or `killed`; names of topics that a job makes end with it

    @property
    def work(self) -> Path:
        return self.folder / self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, its input messages, and its batch size."""

    job: str  # `module:JOB`
    samples: Iterable[Sample]
    options: Callable[[Place], Mapping[str, Any]]
    batch: int
    left: Callable[[Place], Left]


def main() -> int:
    """Run the cases in the arguments; return 1 when a killed run has other results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("jobs", nargs="*", default=[*CASES, *egi.CASES], metavar="JOB")
    told = parser.parse_args()
    broken = 0
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(live_service(Path(place) / "data"))
        more = stack.enter_context(run_killed_cluster(Path(place) / "cluster", told.seed)) if told.cluster else None
        for name in told.jobs:
            began = time.monotonic()
            folder = Path(place) / name
            if name in egi.CASES:
                with scratch_database() as database:
                    kills, wrong = egi.run_case(egi.CASES[name], service, folder, database, told.kills, told.seed, more)
                different = [wrong] if wrong else []
            else:
                kills, different = run_case(CASES[name](told.seed), service, folder, told.kills, told.seed, more)
            verdict = f"DIFFERENT in {', '.join(different)}" if different else "the same"
            print(f"{name}: {kills} kills, {verdict}, {time.monotonic() - began:.0f} s", flush=True)
            broken += bool(different)
    return 1 if broken else 0


def run_case(
    case: Case, service: LiveService, folder: Path, kills: int, seed: int, more: Kills | None = None
) -> tuple[int, list[str]]:
    """Run a job calmly and through kills; return how often it was killed at work, and the tables that differ.

    The calm run is always local, that through kills on the cluster of `more`, if any.
    """
    calm, killed = places(case, service, folder)
    _run_case(case, calm, 0, seed, batch_of(case.batch, kills), None)
    return _run_case(case, killed, kills, seed, batch_of(case.batch, kills), more), differences(case, calm, killed)


def places(case: Case, service: LiveService, folder: Path) -> tuple[Place, Place]:
    """Publish a job's input; return the places of its calm run and of its killed one."""
    folder.mkdir()
    publish(service, folder.name, case.samples, together=100)
    calm, killed = (Place(service=service, folder=folder, name=name) for name in ("calm", "killed"))
    calm.work.mkdir()
    killed.work.mkdir()
    return calm, killed


def differences(case: Case, calm: Place, killed: Place) -> list[str]:
    left = [case.left(place) for place in (calm, killed)]
    assert any(left[0].values()), "the job left nothing at all"
    return sorted(name for name in {*left[0], *left[1]} if left[0].get(name) != left[1].get(name))


def told_of(case: Case, place: Place, batch: int) -> dict[str, Any]:
    """Return the arguments of a job for `driver`."""
    options = {**case.options(place), "batch_messages": batch}
    return {"job": case.job, "work": str(place.work), "options": options}


def _run_case(case: Case, place: Place, kills: int, seed: int, batch: int, more: Kills | None) -> int:
    if case.job == WITHOUT_SPARK:
        return _run_without_spark(place, kills, seed, batch)
    return drive(told_of(case, place, batch), place.service, place.folder, kills=kills, seed=seed, more=more)


def _run_without_spark(place: Place, kills: int, seed: int, batch: int) -> int:
    """Run `ams archive`; its batches are short, and so are the times to a kill."""
    path = place.work / "archive"
    known = {"ENDPOINT": place.service.base_url, "TOKEN": place.service.token, "PROJECT": place.folder.name}
    return run_through_kills(
        [sys.executable, "-m", "ams.cli.main", "archive", str(path), "--batch-messages", str(batch)], kills=kills,
        working=commit_appears(path), log=place.work / "log", spread=SPREAD_WITHOUT_SPARK, seed=seed,
        environment={f"AMS_{name}": value for name, value in known.items()},
    ).kills  # fmt: skip


def folders(place: Place) -> Left:
    found = {each for kind in ("tables", "results") for each in (place.work / kind).glob("*") if each.is_dir()}
    rows = {each.name: _rows(each) for each in sorted({*found, place.work / "quarantine"})}
    return {name: each for name, each in rows.items() if each}


def read_archive(place: Place) -> Left:
    return {"archive": _rows(place.work / "archive")}


def topics(place: Place) -> Left:
    with Client(place.service.base_url, place.service.token) as client:
        names = [each.name.rpartition("/")[2] for each in client.call(wire.list_topics(place.folder.name)).topics]
        return {
            name.removesuffix(place.name): [
                f"{sorted(each.attributes.items())} {each.payload()!r}"
                for each in client.call(wire.read_topic(place.folder.name, name, most=100_000))
            ] for name in names if name.endswith(place.name)
        }  # fmt: skip


def _rows(table: Path) -> Rows:
    return sorted(map(repr, by_duckdb(table, "SELECT * FROM rows"))) if (table / "_delta_log").exists() else []


def _archive(seed: int) -> Case:
    return Case(
        job="ams.pipeline.jobs.archive:JOB", samples=alarms.messages(seed, DAY, sites=4, outages=60, mishaps=MISHAPS),
        options=lambda place: {"path": str(place.work / "archive")}, batch=150, left=read_archive,
    )  # fmt: skip


def _archive_without_spark(seed: int) -> Case:
    return dataclasses.replace(_archive(seed), job=WITHOUT_SPARK, batch=5)


def _accounting(seed: int) -> Case:
    return Case(
        job="ams.pipeline.jobs.accounting.job:JOB",
        samples=accounting.messages(seed, DAY, days=3, jobs=400, machines=20, mishaps=MISHAPS), options=lambda _: {},
        batch=20, left=folders,
    )  # fmt: skip


def _availability(seed: int) -> Case:
    return Case(
        job="ams.pipeline.jobs.availability.job:JOB", samples=monitoring.messages(seed, DAY, sites=2),
        options=lambda place: monitoring.files(seed, DAY, place.folder / "world", sites=2), batch=800, left=folders,
    )  # fmt: skip


def _republish(seed: int) -> Case:
    return Case(
        job="ams.pipeline.jobs.republish:JOB", samples=monitoring.messages(seed, DAY, sites=2),
        options=lambda place: {
            "topics": ["metric_data"], "create_topics": True, "default": ["OTHER_" + place.name],
            "rules": [{"attribute": "partition_date", "to": ["DAY_{partition_date}_" + place.name]}],
        },
        batch=500, left=topics,
    )  # fmt: skip


def _expectations(seed: int) -> Case:
    """Return a job with expectations; rows that fail them are quarantined, some because of others in their batch."""
    return Case(
        job="tests.faults.pipeline.expecting:reports",
        samples=alarms.messages(seed, DAY, sites=4, outages=120, mishaps=MISHAPS), options=lambda _: {}, batch=40,
        left=folders,
    )  # fmt: skip


CASES: Mapping[str, Callable[[int], Case]] = {
    "archive": _archive, "ams-archive": _archive_without_spark, "accounting": _accounting,
    "availability": _availability, "republish": _republish, "expectations": _expectations,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
