"""The jobs `alarms`, `cloud-info` and `federation`, killed at random moments, compared with oracles.

A job's results must equal those of a plain reading of the messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from demo.pipeline.samples import Sample, alarms, cloud, federation
from tests.faults.pipeline.driving import DAY, MISHAPS, Read, batch_of, drive, publish
from tests.faults.pipeline.on_cluster import Kills
from tests.pipeline.delta import by_duckdb
from tests.pipeline.jobs import test_alarms as alarms_oracle
from tests.pipeline.jobs import test_cloud as cloud_oracle
from tests.pipeline.jobs import test_federation as federation_oracle
from tests.pipeline.jobs.recorded import rows_of
from tests.support.service import LiveService

BATCH = 150  # messages a batch: few, so that there are many batches to kill


@dataclass(frozen=True, slots=True)
class Case:
    job: str
    samples: Callable[[int], Iterator[Sample]]
    options: dict[str, Any]
    check: Callable[[Path, str, Read], None]
    """Checks results, given the work folder, the database, and the stored messages."""


def run_case(
    case: Case, service: LiveService, folder: Path, database: str, kills: int, seed: int, more: Kills | None = None
) -> tuple[int, str]:
    """Run one job through kills; return how often it was killed at work, and the errors in its results."""
    folder.mkdir()
    messages = publish(service, folder.name, case.samples(seed))
    killed = drive(
        told_of(case, folder, kills), service, folder,
        kills=kills, seed=seed, more=more, environment={"AMS_PIPELINE_DATABASE": database},
    )  # fmt: skip
    return killed, wrong_of(case, folder, database, messages)


def told_of(case: Case, folder: Path, kills: int) -> dict[str, Any]:
    """Return the arguments of a job for `driver`."""
    options = {**case.options, "batch_messages": batch_of(BATCH, kills)}
    return {"job": case.job, "work": str(folder / "work"), "options": options}


def wrong_of(case: Case, folder: Path, database: str, messages: Read) -> str:
    """Return the errors in a job's results."""
    try:
        case.check(folder / "work", database, messages)
    except AssertionError as error:
        return str(error)[:2000] or repr(error)
    return ""


def _check_alarms(work: Path, database: str, messages: Read) -> None:
    expected = alarms_oracle.ExpectedRows.of(messages)
    found = alarms_oracle.rows_of(database)
    assert (found.alarms, found.history) == (expected.alarms, expected.history)
    assert found.changes == expected.changes
    _check_quarantine(work, messages, lambda data: alarms_oracle.parse_plainly(data) is None)


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
    _check_quarantine(work, messages, lambda data: federation_oracle.parse_plainly(data) is None, as_it_was=False)


def _check_quarantine(work: Path, messages: Read, fails: Callable[[bytes], bool], *, as_it_was: bool = True) -> None:
    """Check that each unreadable message is quarantined once, unchanged unless the job hides secrets."""
    broken = sorted((each["topic"], each["offset"], each["data"]) for each in messages if fails(each["data"]))
    found = by_duckdb(work / "quarantine", 'SELECT topic, "offset", data FROM rows ORDER BY ALL')
    places = [row[:2] for row in found]
    assert places == [row[:2] for row in broken], f"the quarantine holds {places}"
    assert not as_it_was or found == broken, "a message in the quarantine is not as it was"


CASES = {
    "alarms": Case(
        "ams.pipeline.jobs.alarms:JOB", lambda seed: alarms.messages(seed, DAY, sites=4, outages=40, mishaps=MISHAPS),
        {"topics": list(alarms.TOPICS)}, _check_alarms,
    ),
    "cloud-info": Case(
        "ams.pipeline.jobs.cloud.job:JOB", lambda seed: cloud.messages(seed, DAY, sites=8, hours=20, mishaps=MISHAPS),
        {"now": (datetime.now(UTC) + timedelta(hours=13)).isoformat()}, _check_clouds,
    ),
    "federation": Case(
        "ams.pipeline.jobs.federation:JOB",
        lambda seed: federation.messages(seed, DAY, services=150, mishaps=MISHAPS), {}, _check_federation,
    ),
}  # fmt: skip
