import re
from pathlib import Path

from ams.access.permissions import OPEN, PERMISSIONS
from tests.contract.actions import PATHS
from tests.support.description import TABLE

HOT = {"topics:publish", "subscriptions:pull", "subscriptions:acknowledge"}


def test_every_row_has_an_action_of_the_table_of_permissions_or_is_open() -> None:
    assert {row.action for row in TABLE} - set(PERMISSIONS) == {None}
    assert {row.path for row in TABLE if row.action is None} == {
        "/status",
        "/version",
        "/users/profile",
        "/users/usageReport",
        "/.well-known/openid-configuration",
        "/.well-known/jwks.json",
    }
    assert [row.action for row in TABLE if PERMISSIONS.get(row.action or "") == OPEN] == []


def test_every_action_has_the_method_and_path_of_the_contract() -> None:
    variables = {
        "registrations/0": "registrations/{uuid}",
        "$P-x": "{user}",
        "tokens/x": "tokens/{token}",
        "bindings/x": "bindings/{binding}",
        "snapshots/x": "snapshots/{snapshot}",
        "issuers/x": "issuers/{issuer}",
        "$P-new": "{project}",
        "$P": "{project}",
        "/T": "/{topic}",
        "/S": "/{subscription}",
        "/X": "/{schema}",
    }

    def template(path: str) -> str:
        for name, variable in variables.items():
            path = path.replace(name, variable)
        return re.sub(r"(byToken|byUUID)/x", lambda found: f"{found[1]}/{{{found[1][2:].lower()}}}", path)

    assert {row.action: (row.method, row.path) for row in TABLE if row.action} == {
        action: (method, template(path)) for action, (method, path) in PATHS.items() if action not in HOT
    }


def test_a_verb_is_tried_before_the_plain_resource() -> None:
    for place, row in enumerate(TABLE):
        later = [other.path for other in TABLE[place + 1 :] if other.method == row.method]
        assert not any(re.fullmatch(re.escape(row.path) + r"(:\w+)", path) for path in later), row.path


def test_every_route_has_its_row_in_the_reference() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text()
    shown = {
        "registrations/0": "registrations/R",
        "$P-new": "P",
        "$P-x": "U",
        "$P": "P",
        "snapshots/x": "snapshots/N",
        "byToken/x": "byToken/TOKEN",
        "byUUID/x": "byUUID/UUID",
        "tokens/x": "tokens/N",
        "bindings/x": "bindings/B",
        "issuers/x": "issuers/I",
    }

    def documented(path: str) -> str:
        for name, written in shown.items():
            path = path.replace(name, written)
        return path

    routes = [*PATHS.values(), *((row.method, row.path) for row in TABLE if row.action is None)]
    assert [route for route in routes if f"| {route[0]} | `{documented(route[1])}` |" not in reference] == []
