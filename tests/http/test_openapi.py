"""The description of the API, and the service held to it by requests made of it."""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ams.access.permissions import OPEN, PERMISSIONS
from ams.wire.projects import Project
from tests.support.description import FILE, description
from tests.support.served import SERVICE_TOKEN, Served, served

API = json.loads(description())
OPERATIONS = [operation for path in API["paths"].values() for operation in path.values()]
OPEN_OPERATIONS = {
    "GET /status", "GET /version", "GET /users/profile", "GET /users/usageReport",
    "GET /.well-known/openid-configuration", "GET /.well-known/jwks.json",
}  # fmt: skip
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "6"))
"""Requests made for each operation; `make fuzz` makes many."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

requests = schemathesis.openapi.from_dict(API)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("described") / "ams-data") as service:
        yield service


def test_the_description_in_the_docs_is_that_of_the_code() -> None:
    assert FILE.read_bytes() == description(), "run `make openapi`"


def test_the_service_tells_its_description_to_everybody(service: Served) -> None:
    answer = httpx.get(service.run.base_url + "/openapi.json", trust_env=False)

    assert (answer.status_code, answer.json()) == (200, API)


def test_every_action_is_described_and_nothing_else() -> None:
    described = {operation["operationId"] for operation in OPERATIONS}

    assert described == {action for action, roles in PERMISSIONS.items() if roles != OPEN} | OPEN_OPERATIONS


def test_every_operation_says_what_it_is_for() -> None:
    assert [operation["operationId"] for operation in OPERATIONS if len(operation["summary"]) < 10] == []


def test_what_is_always_sent_is_required_though_the_client_does_without() -> None:
    schemas = API["components"]["schemas"]

    assert msgspec.json.decode(b"{}", type=Project) == Project()
    assert schemas["Project"]["required"] == ["name", "created_on", "modified_on"]
    assert "default" not in schemas["Project"]["properties"]["name"]


def test_an_answer_says_nothing_of_null_and_a_request_does() -> None:
    schemas = API["components"]["schemas"]

    assert schemas["PushReport"]["properties"]["backlog"] == {"type": "integer"}
    assert {"type": "null"} in schemas["Seek"]["properties"]["offset"]["anyOf"]


def test_every_body_has_a_name_of_its_own_a_meaning_and_a_valid_schema() -> None:
    for name, schema in API["components"]["schemas"].items():
        assert name.isalnum(), name
        assert schema.get("description", "").endswith("."), name
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@requests.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_the_service_answers_as_described(case: Case, service: Served) -> None:
    headers: dict[str, Any] = {**case.headers, "x-api-key": SERVICE_TOKEN}
    case.call_and_validate(base_url=service.run.base_url, headers=headers, checks=CHECKS)
