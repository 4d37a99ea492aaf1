"""The job `federation`: messages, secrets kept out, and results compared with a plain reading."""

import json
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.federation import FederationOptions, run
from ams.pipeline.jobs.federation_messages import NOT_TAKEN, TAKEN, parse, redact_payload
from demo.pipeline.samples import Mishaps, Sample
from demo.pipeline.samples.federation import ANSWERS, KEYCLOAK, messages
from tests.pipeline.delta import by_duckdb
from tests.pipeline.jobs.inputs_page import Input, check_reason, check_row, rows
from tests.pipeline.jobs.recorded import Message, read_quarantine, recorded_run, rows_of, store_samples

CONFIGURATION = {
    "id": 7, "deployment_type": "create", "tenant": "egi", "protocol": "oidc", "integration_environment": "demo",
    "external_id": 12, "service_name": "Seven", "client_id": "client-7", "client_secret": "secret-words",
    "token_endpoint_auth_method": "client_secret_basic", "access_token_validity_seconds": 3600,
}  # fmt: skip
ANSWER = {"id": "7", "state": "error", "status_code": 0, "deployer_name": "east", "error_description": "x" * 900}


def read_record(value: Any) -> dict[str, Any]:
    [record] = parse(json.dumps(value).encode(), {})
    return record


def test_a_configuration_is_kept_without_its_secret() -> None:
    record = read_record(CONFIGURATION)
    assert (record["id"], record["client"], record["external_id"]) == (7, "client-7", "12")
    assert "secret-words" not in repr(record)


def test_a_new_secret_alone_is_no_new_configuration_but_a_new_lifetime_is_one() -> None:
    digests = [
        read_record({**CONFIGURATION, **change})["digest"]
        for change in ({}, {"client_secret": "other"}, {"access_token_validity_seconds": 60})
    ]

    assert digests[0] == digests[1] != digests[2]


def test_an_answer_is_cut_to_a_readable_length() -> None:
    record = read_record(ANSWER)
    assert (record["id"], record["state"], record["status_code"], len(record["error"])) == (7, "error", 0, 500)


EXAMPLES = {"configuration": CONFIGURATION, "answer": ANSWER}
INPUTS = [Input(*cells) for cells in rows("federation", "Fields")]


@pytest.mark.parametrize("row", INPUTS, ids=" ".join)
def test_what_a_producer_says_becomes_what_the_reference_shows(row: Input) -> None:
    plain = {name: value for name, value in EXAMPLES[row.form].items() if (row.key, name) != ("entity_id", "client_id")}
    is_known = row.key in TAKEN[row.form] | NOT_TAKEN[row.form]
    check_row(row, read_record, {**plain, row.key: row.example}, plain, is_known=is_known)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_field_that_is_known_has_a_row_and_no_other(kind: str) -> None:
    in_reference = {row.key for row in INPUTS if row.form == kind and "counted as" not in row.result}
    assert in_reference == TAKEN[kind] | NOT_TAKEN[kind]


def test_all_that_the_samples_say_is_known() -> None:
    for sample in messages(11, date(2024, 3, 5), services=10, mishaps=Mishaps(broken=0.0)):
        [record] = parse(sample.data, {})
        assert record["not_taken"] == []


@pytest.mark.parametrize(("value", "reason"), [
    ({"id": 7}, "neither a configuration nor an answer"),
    ({**CONFIGURATION, "id": None}, "id is missing"),
    ({**CONFIGURATION, "deployment_type": "explode"}, "deployment_type is none of create, edit, delete: 'explode'"),
    ({**CONFIGURATION, "protocol": ""}, "protocol is missing"),
    ({**ANSWER, "state": "fine"}, "state is none of deployed, error: 'fine'"),
])  # fmt: skip
def test_what_cannot_be_read_says_why(value: Any, reason: str) -> None:
    check_reason(read_record, value, reason)


def test_a_deletion_needs_no_protocol() -> None:
    assert read_record({"id": 7, "deployment_type": "delete"})["deployment_type"] == "delete"


def test_secrets_are_masked_at_any_depth_and_nothing_else_is_touched() -> None:
    told = {"a": [{"Client_Secret": "s", "jwks": {"keys": [1]}, "password": None}], "access_token_seconds": 5}

    assert json.loads(redact_payload(json.dumps(told).encode())) == {
        "a": [{"Client_Secret": "***", "jwks": "***", "password": None}], "access_token_seconds": 5,
    }  # fmt: skip
    assert redact_payload(b'{ "id" :  1 }') == b'{ "id" :  1 }'


@given(st.integers(min_value=0, max_value=400), st.text("abcdef0123", min_size=12))
def test_a_secret_is_not_kept_wherever_its_message_was_cut(length: int, secret: str) -> None:
    whole = json.dumps({**CONFIGURATION, "client_secret": f"#{secret}"}).encode()
    assert f"#{secret[:3]}".encode() not in redact_payload(whole[:length])
    assert f"#{secret[:3]}".encode() not in redact_payload(json.dumps(whole.decode()).encode())


@pytest.mark.parametrize("data", [
    b'{"client_secret": "REAL", "client_secret": ""}', b'{"client\\u005fsecret": "REAL", "client_secret": null}',
    b'{"id": 7, "jwks": {"keys": [{"d": "REAL"}]}, ', b'{"registration_access_token": "REAL"',
    b'{"client_secret": "REAL", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
    *('{"client_secret": "REAL"}'.encode(encoding) for encoding in ("utf-16", "utf-16-be", "utf-32")),
])  # fmt: skip
def test_a_secret_is_not_kept_of_a_message_of_an_odd_form_or_encoding(data: bytes) -> None:
    assert b"REAL" not in redact_payload(data).replace(b"\0", b"")


@pytest.mark.parametrize("field", ["x", "id", "external_id"])
def test_what_is_nested_too_deeply_is_broken(field: str) -> None:
    deep = b"[" * 900 + b"]" * 900
    with pytest.raises(Broken):
        parse(b'{"deployment_type": "create", "protocol": "oidc", "id": 7, "%s": %s}' % (field.encode(), deep), {})


MISHAPS = Mishaps(late=0.1, doubled=0.3, broken=0.1)
STATE = "id, version, deployment_type, state, wanted_since, state_since, seconds, deployer, status_code, error"


@pytest.mark.long
def test_the_state_of_deployments_follows_from_what_was_said_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    told = store_samples(messages(11, date(2024, 3, 5), services=30, mishaps=MISHAPS), every=timedelta(seconds=61))
    shuffled = list(told)
    Random(1).shuffle(shuffled)
    one = recorded_run(spark, tmp_path / "one", told)
    two = recorded_run(spark, tmp_path / "two", shuffled[:70], [*shuffled[70:], *told[:20]])

    run(one, FederationOptions())
    run(two, FederationOptions())

    expected = versions_of(told)
    assert rows_of(one, "versions", STATE) == expected
    last = {row[0]: row for row in expected}
    assert rows_of(one, "deployments", STATE) == list(last.values())
    assert {"pending", "deployed", "error", "deleted"} <= {row[3] for row in expected}
    for result in ("versions", "deployments"):
        assert rows_of(one, result) == rows_of(two, result)
    assert len(read_quarantine(one)) == sum(parse_plainly(message["data"]) is None for message in told) > 3
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
        configures("edit", colour="red"),
        answers("error", "east", 400, "bad redirect"),
        answers("error", "east", 400, "bad redirect"),
        configures("delete", colour="red", shape=1),
    ]
    job = recorded_run(spark, tmp_path, store_samples(told, every=timedelta(seconds=10)))

    run(job, FederationOptions(configurations=(KEYCLOAK,), answers=(ANSWERS,)))

    assert rows_of(job, "versions", "version, deployment_type, state, seconds, deployer, error") == [
        (0, None, "unknown", None, "east", None), (1, "create", "deployed", 40, "west", None),
        (2, "edit", "error", 10, "east", "bad redirect"), (3, "delete", "pending", None, None, None),
    ]  # fmt: skip
    columns = "registry, id, service_name, version, state, deployed_version"
    assert rows_of(job, "deployments", columns) == [("prod", 7, "Seven", 3, "pending", 1)]
    others = 'SELECT topic, kind, name, times, "offset" FROM rows ORDER BY name'
    assert by_duckdb(tmp_path / "tables" / "not_taken", others) == [
        (KEYCLOAK, "configuration", "colour", 2, 2), (KEYCLOAK, "configuration", "shape", 1, 3),
    ]  # fmt: skip
    assert_nothing_holds(tmp_path, b"secret-")


def assert_nothing_holds(folder: Path, word: bytes) -> None:
    """Search all files of a run for secrets, except those of its input."""
    files = [file for file in folder.rglob("*") if file.is_file() and "recorded" not in file.parts]
    assert len(files) > 5
    for file in files:
        assert word not in read_file(file)


def read_file(file: Path) -> bytes:
    if file.suffix != ".parquet":
        return file.read_bytes()
    import pyarrow.parquet as pq

    return repr(pq.ParquetFile(file).read().to_pylist()).encode()


def versions_of(told: list[Message]) -> list[tuple[Any, ...]]:
    """Compute the versions of all services by processing the messages as a deployer would."""
    services: dict[int, dict[int, dict[str, Any]]] = {}
    for message in sorted(told, key=lambda each: (each["publish_time"], each["topic"] == ANSWERS)):
        record = parse_plainly(message["data"])
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


def parse_plainly(data: bytes) -> dict[str, Any] | None:
    """Parse a message the short way; None for a broken one of this day."""
    try:
        told = json.loads(data)
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told["id"], int):
        return None
    known = told.get("deployment_type") in ("create", "edit", "delete") or told.get("state") in ("deployed", "error")
    return told if known else None
