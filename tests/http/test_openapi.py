"""The routes, and the description of the API that is made from them."""

import json
import re

import httpx
import jsonschema_rs

from ams.access.permissions import OPEN, PERMISSIONS
from tests.access.table import SHOWN_ROUTES
from tests.contract.actions import OPEN as OPEN_PATHS
from tests.contract.actions import PATHS
from tests.support.description import FILE, TABLE, description
from tests.support.served import InProcessService
from tests.support.waiting import PATIENCE_SECONDS

API = json.loads(description())
OPERATIONS = [operation for path in API["paths"].values() for operation in path.values()]
OPEN_OPERATIONS = {f"{row.method} {row.path}" for row in TABLE if row.is_open}


def test_the_description_in_the_docs_is_that_of_the_code() -> None:
    assert FILE.read_bytes() == description(), "run `make openapi`"


def test_the_service_tells_its_description_to_everybody(service: InProcessService) -> None:
    answer = httpx.get(service.run.base_url + "/openapi.json", trust_env=False, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, answer.json()) == (200, API)


def test_every_action_is_described_with_what_it_is_for_and_nothing_else() -> None:
    described = {operation["operationId"] for operation in OPERATIONS if len(operation["summary"]) >= 10}
    assert described == {action for action, roles in PERMISSIONS.items() if roles != OPEN} | OPEN_OPERATIONS
    assert len(described) == len(OPERATIONS)


def test_every_body_has_a_name_of_its_own_a_meaning_and_a_valid_schema() -> None:
    for name, schema in API["components"]["schemas"].items():
        assert name.isalnum(), name
        assert schema.get("description", "").endswith("."), name
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


# Routes


def test_the_open_actions_are_those_of_the_contract_and_where_receivers_look_for_keys() -> None:
    assert {row.path for row in TABLE if row.is_open} == {
        *(path for _, path in OPEN_PATHS.values()), "/.well-known/openid-configuration", "/.well-known/jwks.json"
    }  # fmt: skip


def fill_path(path: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        path = path.replace(name, other)
    return path


UNVERSIONED = {
    # a new resource has no version
    "topics:create", "subscriptions:create", "schemas:create", "snapshots:create", "users:create", "projects:create",
    "projects:createUser", "projects:addUser", "issuers:create", "tokens:create", "bindings:create",
    # messages, positions and leases have their own order
    "subscriptions:seek", "subscriptions:modifyOffset", "subscriptions:nack", "subscriptions:extendLeases",
    "subscriptions:deadLetter",
    # they change nothing visible, or only read
    "subscriptions:rotatePushSecret", "users:refreshToken",
    "projects:refreshUserToken", "schemas:validateMessage", "schemas:dryRun",
    # only a deletion changes them, and a decision is made once
    "snapshots:delete", "tokens:revoke", "bindings:delete", "registrations:delete", "registrations:newUser",
    "registrations:acceptNewUser", "registrations:declineNewUser",
    # of the service itself
    "push:lease", "push:wait",
}  # fmt: skip


def test_every_change_of_what_is_read_and_written_whole_may_be_meant_for_a_version() -> None:
    """Each kind that can be changed has a GET with an ETag; a new change is versioned, or listed with its reason."""
    changes = {row.name: row for row in TABLE if row.method != "GET"}
    read = {row.path for row in TABLE if row.method == "GET" and row.versioned}

    assert {action for action, row in changes.items() if not row.versioned} == UNVERSIONED
    for row in (row for row in changes.values() if row.versioned):
        resource, _, verb = row.path.rpartition(":") if ":" in row.path else (row.path, "", "")
        assert (resource + ":acl" if verb in ("modifyAcl", "changeAcl") else resource) in read, row


def test_a_verb_is_tried_before_the_plain_resource() -> None:
    for place, row in enumerate(TABLE):
        later = [other.path for other in TABLE[place + 1 :] if other.method == row.method]
        assert not any(re.fullmatch(re.escape(row.path) + r"(:\w+)", path) for path in later), row.path


def test_every_route_has_its_row_in_the_reference() -> None:
    documented = {(method, path) for routes in SHOWN_ROUTES.values() for method, path, _ in routes}
    shown = {
        "registrations/0": "registrations/R", "$P-new": "P", "$P-x": "U", "$P": "P", "snapshots/x": "snapshots/N",
        "byToken/x": "byToken/TOKEN", "byUUID/x": "byUUID/UUID", "tokens/x": "tokens/N", "bindings/x": "bindings/B",
        "issuers/x": "issuers/I",
    }  # fmt: skip

    routes = [*PATHS.values(), *((row.method, row.path) for row in TABLE if row.is_open)]
    assert [each for each in routes if (each[0], fill_path(each[1], shown)) not in documented] == []
