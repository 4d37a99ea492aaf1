import re
from pathlib import Path

from ams.access.permissions import OPEN, PERMISSIONS
from tests.contract.actions import OPEN as OPEN_PATHS
from tests.contract.actions import PATHS
from tests.support.description import TABLE

HOT = {"topics:publish", "subscriptions:pull", "subscriptions:acknowledge"}


def test_every_row_has_an_action_of_the_table_of_permissions_or_is_open() -> None:
    assert {row.action for row in TABLE} - set(PERMISSIONS) == {None}
    assert {row.path for row in TABLE if row.action is None} == {
        *(path for _, path in OPEN_PATHS.values()), "/.well-known/openid-configuration", "/.well-known/jwks.json"
    }  # fmt: skip
    assert [row.action for row in TABLE if PERMISSIONS.get(row.action or "") == OPEN] == []


def test_every_action_has_the_method_and_path_of_the_contract() -> None:
    variables = {
        "registrations/0": "registrations/{uuid}", "$P-x": "{user}", "$P-new": "{project}", "$P": "{project}",
        "/T": "/{topic}", "/S": "/{subscription}", "/X": "/{schema}",
        "byToken/x": "byToken/{token}", "byUUID/x": "byUUID/{uuid}",
        **{f"{kind}s/x": f"{kind}s/{{{kind}}}" for kind in ("token", "binding", "snapshot", "issuer")},
    }  # fmt: skip

    assert {row.action: (row.method, row.path) for row in TABLE if row.action} == {
        action: (method, written(path, variables)) for action, (method, path) in PATHS.items() if action not in HOT
    }


def written(path: str, names: dict[str, str]) -> str:
    """Return the path of an action with other names for what it names."""
    for name, other in names.items():
        path = path.replace(name, other)
    return path


UNVERSIONED = {
    # what is made is not there before
    "topics:create", "subscriptions:create", "schemas:create", "snapshots:create", "users:create", "projects:create",
    "projects:createUser", "projects:addUser", "issuers:create", "tokens:create", "bindings:create",
    # messages, positions and leases have their own order
    "subscriptions:seek", "subscriptions:modifyOffset", "subscriptions:nack", "subscriptions:extendLeases",
    "subscriptions:deadLetter",
    # they change nothing that is shown, or ask only
    "subscriptions:rotatePushSecret", "users:refreshToken",
    "projects:refreshUserToken", "schemas:validateMessage", "schemas:dryRun",
    # nothing but deleting changes them, and a decision is made once
    "snapshots:delete", "tokens:revoke", "bindings:delete", "registrations:delete", "registrations:newUser",
    "registrations:acceptNewUser", "registrations:declineNewUser",
    # of the service itself
    "push:lease", "push:wait",
}  # fmt: skip


def test_every_change_of_what_is_read_and_written_whole_may_be_meant_for_a_version() -> None:
    """Each kind that can be changed has a GET with an ETag; a new change is versioned, or named with its reason."""
    changes = {row.action: row for row in TABLE if row.method != "GET"}
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
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text()
    shown = {
        "registrations/0": "registrations/R", "$P-new": "P", "$P-x": "U", "$P": "P", "snapshots/x": "snapshots/N",
        "byToken/x": "byToken/TOKEN", "byUUID/x": "byUUID/UUID", "tokens/x": "tokens/N", "bindings/x": "bindings/B",
        "issuers/x": "issuers/I",
    }  # fmt: skip

    routes = [*PATHS.values(), *((row.method, row.path) for row in TABLE if row.action is None)]
    assert [each for each in routes if f"| {each[0]} | `{written(each[1], shown)}` |" not in reference] == []
