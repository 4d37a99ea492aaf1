"""The pages of the reference, held to the table of permissions, to the overview, and to the rows of the contract."""

import re
from pathlib import Path

import pytest

from ams.access.permissions import PERMISSIONS
from ams.http.errors import STATUS
from ams.http.fast import OPERATIONS
from tests.support.description import TABLE

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
OVERVIEW = (REFERENCE / "http.md").read_text()

BELONGS = {
    "topics": r"/projects/P/topics",
    "subscriptions": r"/projects/P/subscriptions",
    "members": r"/projects/P/members",
    "projects": r"/projects(/P(:\w+)?)?$",
    "users": r"/users",
    "registrations": r"/registrations",
    "access-lists": r".*:(acl|modifyAcl)$",
}
"""Which routes a page speaks of."""
PAGES = sorted(BELONGS)

OVERVIEW_ROWS = {
    (method, path): roles
    for method, path, roles in re.findall(r"^\| ([A-Z]+) \| `(\S+)` \|.*\| (.+?) \|$", OVERVIEW, re.MULTILINE)
}
"""Roles by method and path, as the overview shows them."""
ROUTE = re.compile(r"^### `(\w+) (\S+)`\n\nRoles: (.+)$", re.MULTILINE)
ERROR = re.compile(r"^\| (\d{3}) `(\w+)` \| `(.+?)` \|", re.MULTILINE)
SHORT = dict(re.findall(r"\b([A-Z]{2}) ([a-z_]+)\b", OVERVIEW.split("### ")[0].replace("\n", " ")))
"""Short forms of roles, as the overview explains them."""


def text(page: str) -> str:
    return (REFERENCE / f"{page}.md").read_text()


def names_of(roles: str) -> set[str]:
    """Return the names of roles that the overview writes short; `*` speaks of access lists."""
    return {SHORT.get(role, role) for role in roles.replace("*", "").replace(",", "").split()}


def documented(path: str) -> str:
    """Return a path as the reference writes it."""
    letters = {"{project}": "P", "{topic}": "T", "{subscription}": "S", "{schema}": "X", "{user}": "U"}
    letters |= {"registrations/{uuid}": "registrations/R", "{uuid}": "UUID", "{token}": "TOKEN"}
    for variable, letter in letters.items():
        path = path.replace(variable, letter)
    return path


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_every_route_of_its_resource(page: str) -> None:
    own = [f"{method} {path}" for method, path in OVERVIEW_ROWS if re.match(BELONGS[page], path)]

    assert own
    assert [route for route in own if f"`{route}`" not in text(page)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_roles_of_a_page_are_those_of_the_overview(page: str) -> None:
    shown = {(method, path): set(roles.split(", ")) for method, path, roles in ROUTE.findall(text(page))}

    assert shown
    assert shown == {route: names_of(OVERVIEW_ROWS[route]) for route in shown}


def test_the_roles_of_the_overview_are_those_of_the_table_of_permissions() -> None:
    shown = {
        each.action: names_of(OVERVIEW_ROWS[each.method, documented(each.path)])
        for each in (*OPERATIONS, *(row.operation for row in TABLE))
        if each.action
    }

    assert shown == {action: PERMISSIONS[action] for action in shown}


@pytest.mark.parametrize("page", PAGES)
def test_a_row_of_the_contract_asks_for_every_error_of_a_page(page: str) -> None:
    asked = "".join(path.read_text() for path in sorted((ROOT / "tests" / "contract").glob("*.py")))
    codes = {(str(status.code), status.word) for status in STATUS.values()}
    errors = ERROR.findall(text(page))

    assert errors
    assert [error for error in errors if (error[0], error[1]) not in codes] == []
    assert [message for _, _, message in errors if not re.search(pattern(message), asked)] == []


def pattern(message: str) -> str:
    """Return what finds a text in which capital letters stand for names."""
    return re.sub(r"\b[A-Z](,\\ [A-Z])*\b(?!\w)", ".+", re.escape(message))
