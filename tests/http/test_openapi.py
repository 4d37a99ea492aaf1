"""The description of the API."""

import json

import httpx
import jsonschema_rs
import msgspec

from ams.access.permissions import OPEN, PERMISSIONS
from ams.wire.projects import Project
from tests.support.description import FILE, TABLE, description
from tests.support.served import Served

API = json.loads(description())
OPERATIONS = [operation for path in API["paths"].values() for operation in path.values()]
OPEN_OPERATIONS = {f"{row.method} {row.path}" for row in TABLE if row.action is None}


def test_the_description_in_the_docs_is_that_of_the_code() -> None:
    assert FILE.read_bytes() == description(), "run `make openapi`"


def test_the_service_tells_its_description_to_everybody(service: Served) -> None:
    answer = httpx.get(service.run.base_url + "/openapi.json", trust_env=False)

    assert (answer.status_code, answer.json()) == (200, API)


def test_every_action_is_described_with_what_it_is_for_and_nothing_else() -> None:
    described = {operation["operationId"] for operation in OPERATIONS if len(operation["summary"]) >= 10}

    assert described == {action for action, roles in PERMISSIONS.items() if roles != OPEN} | OPEN_OPERATIONS
    assert len(described) == len(OPERATIONS)


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
