"""The job `federation` over a made-up day, against a plain reading of the messages one by one."""

import json
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ams.pipeline.jobs.federation.job import Options, run
from demo.pipeline.samples import Sample
from demo.pipeline.samples.federation import ANSWERS, KEYCLOAK, messages
from demo.pipeline.samples.mishaps import Mishaps
from tests.pipeline.jobs.recorded import Message, published, quarantined, recorded_run, rows_of

MISHAPS = Mishaps(late=0.1, doubled=0.3, broken=0.1)
STATE = "id, version, deployment_type, state, wanted_since, state_since, seconds, deployer, status_code, error"


@pytest.mark.long
def test_the_state_of_deployments_follows_from_what_was_said_in_whatever_order_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = published(messages(11, date(2024, 3, 5), services=30, mishaps=MISHAPS), every=timedelta(seconds=61))
    shuffled = list(told)
    Random(1).shuffle(shuffled)
    one = recorded_run(spark, tmp_path / "one", told)
    two = recorded_run(spark, tmp_path / "two", shuffled[:70], [*shuffled[70:], *told[:20]])

    run(one, Options())
    run(two, Options())

    expected = versions_of(told)
    assert rows_of(one, "versions", STATE) == expected
    last = {row[0]: row for row in expected}
    assert rows_of(one, "deployments", STATE) == list(last.values())
    assert {"pending", "deployed", "error", "deleted"} <= {row[3] for row in expected}
    for result in ("versions", "deployments"):
        assert rows_of(one, result) == rows_of(two, result)
    assert len(quarantined(one)) == sum(plainly(message["data"]) is None for message in told) > 3
    assert_nothing_holds(tmp_path, b"secret-")


@pytest.mark.long
def test_a_service_told_of_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    wanted = {"id": 7, "protocol": "oidc", "tenant": "egi", "service_name": "Seven", "client_secret": "secret-1"}

    def configures(kind: str, **more: Any) -> Sample:
        return Sample(KEYCLOAK, json.dumps({**wanted, "deployment_type": kind, **more}).encode())

    def answers(state: str, deployer: str, code: int, error: str | None = None) -> Sample:
        told = {"id": 7, "state": state, "deployer_name": deployer, "status_code": code, "error_description": error}
        return Sample(ANSWERS, json.dumps(told).encode())

    told = [
        answers("deployed", "east", 200),  # to a configuration that is kept no longer
        configures("create"),
        answers("deployed", "east", 200),
        answers("error", "west", 503, "no answer"),
        configures("create", client_secret="secret-2"),  # sent again: no new version, whatever its secret
        answers("deployed", "west", 200),
        answers("deployed", "west", 200),
        configures("edit"),
        answers("error", "east", 400, "bad redirect"),
        answers("error", "east", 400, "bad redirect"),
        configures("delete"),
    ]
    job = recorded_run(spark, tmp_path, published(told, every=timedelta(seconds=10)))

    run(job, Options(configurations=(KEYCLOAK,), answers=(ANSWERS,)))

    assert rows_of(job, "versions", "version, deployment_type, state, seconds, deployer, error") == [
        (0, None, "unknown", None, "east", None),
        (1, "create", "deployed", 40, "west", None),
        (2, "edit", "error", 10, "east", "bad redirect"),
        (3, "delete", "pending", None, None, None),
    ]
    columns = "registry, id, service_name, version, state, deployed_version"
    assert rows_of(job, "deployments", columns) == [("prod", 7, "Seven", 3, "pending", 1)]
    assert_nothing_holds(tmp_path, b"secret-")


def assert_nothing_holds(folder: Path, word: bytes) -> None:
    """Look through all files that a run made, but those the messages came from."""
    files = [file for file in folder.rglob("*") if file.is_file() and "recorded" not in file.parts]
    assert len(files) > 5
    for file in files:
        assert word not in readable(file)


def readable(file: Path) -> bytes:
    if file.suffix != ".parquet":
        return file.read_bytes()
    import pyarrow.parquet as pq

    return repr(pq.ParquetFile(file).read().to_pylist()).encode()


def versions_of(told: list[Message]) -> list[tuple[Any, ...]]:
    """Tell the versions of all services, by going through the messages as a deployer would."""
    services: dict[int, dict[int, dict[str, Any]]] = {}
    order = sorted(told, key=lambda each: (each["publish_time"], each["topic"] == ANSWERS))
    for message in order:
        record = plainly(message["data"])
        if record is not None:
            _take(services.setdefault(record["id"], {}), record, message["publish_time"])
    rows = (_row(number, version, each) for number, found in services.items() for version, each in found.items())
    return sorted(rows, key=lambda row: row[:2])


def _take(versions: dict[int, dict[str, Any]], record: dict[str, Any], at: Any) -> None:
    last = max(versions, default=0)
    if "deployment_type" in record:
        said = {name: value for name, value in record.items() if name != "client_secret"}
        if last == 0 or versions[last]["said"] != said:
            versions[last + 1] = {"said": said, "since": at, "answer": None}
        return
    version = versions.setdefault(last, {"said": {"deployment_type": None}, "since": None, "answer": None})
    answer = (record["state"], record["deployer_name"], record["status_code"], record.get("error_description"))
    if version["answer"] != answer:
        version |= {"answer": answer, "answered": at}


def _row(number: int, place: int, version: dict[str, Any]) -> tuple[Any, ...]:
    kind, since = version["said"]["deployment_type"], version["since"]
    if version["answer"] is None:
        return (number, place, kind, "pending", since, since, None, None, None, None)
    state, *told = version["answer"]
    if since is None:
        return (number, place, kind, "unknown", None, version["answered"], None, *told)
    state = "deleted" if (state, kind) == ("deployed", "delete") else state
    seconds = int(version["answered"].timestamp()) - int(since.timestamp())
    return (number, place, kind, state, since, version["answered"], seconds, *told)


def plainly(data: bytes) -> dict[str, Any] | None:
    """Read a message the short way; None for a broken one of this day."""
    try:
        told = json.loads(data)
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told["id"], int):
        return None
    known = told.get("deployment_type") in ("create", "edit", "delete") or told.get("state") in ("deployed", "error")
    return told if known else None
