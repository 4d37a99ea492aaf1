"""The role table of the HTTP contract (3.4), read from its page and not from the code, and that of our own actions.

SA service_admin, PA project_admin, PU publisher, CO consumer, PW push_worker, MV metrics_viewer, AA argo_api_authn,
RA register_admin, AV admin_viewer.
"""

import re
from pathlib import Path
from typing import NamedTuple

from ams.access import permissions
from ams.wire import actions

DOCS = Path(__file__).parents[2] / "docs"
SHORT = {
    "SA": "service_admin", "PA": "project_admin", "PU": "publisher", "CO": "consumer", "PW": "push_worker",
    "MV": "metrics_viewer", "AA": "argo_api_authn", "RA": "register_admin", "AV": "admin_viewer",
}  # fmt: skip
SELF = "itself"  # in a line: the user whom the path names, who needs no role


class Line(NamedTuple):
    number: int
    action: str
    in_project: bool
    roles: frozenset[str]
    is_open: bool
    of_oneself: bool = False


def _line(number: str, action: str, roles: list[str], *, in_project: bool) -> Line:
    is_open = roles[0] in ("open", "any")
    named = frozenset() if is_open else frozenset(SHORT.get(role, role) for role in roles if role != SELF)
    return Line(int(number), action, in_project, named, is_open, SELF in roles)


def _is_in_project(action: str, path: str) -> bool:
    return path.startswith(("/projects/{project}", "...")) and action != "projects:create"


_ROW = re.compile(r"^\| (\d+) \| (\w+:\w+) \| [A-Z]+ (\S+) \| (.+) \|$", re.MULTILINE)
LINES = [
    _line(number, action, roles.replace(";", " ").split(), in_project=_is_in_project(action, path))
    for number, action, path, roles in _ROW.findall((DOCS / "contract" / "api.md").read_text())
]

REFERENCE_PAGES = (
    "http", "topics", "subscriptions", "reading", "schemas", "projects", "members", "users", "tokens", "openid-connect",
    "audit",
)  # fmt: skip
"""Pages of the reference that have a table of routes; each route is in one of them."""
_ROUTE = re.compile(r"^\| ([A-Z]+) \| `(\S+)` \|.*\| (.+?) \|$", re.MULTILINE)
SHOWN_ROUTES = {page: _ROUTE.findall((DOCS / "reference" / f"{page}.md").read_text()) for page in REFERENCE_PAGES}
"""Method, path and roles of the routes of each page."""
ROUTE_ROLES = {
    (method, path): roles.replace("*", "").replace(",", "").split()
    for routes in SHOWN_ROUTES.values()
    for method, path, roles in routes
}
"""Short forms of roles by method and path, as the reference shows them; `*` there marks access lists."""
_LETTERS = {
    "{project}": "P", "{topic}": "T", "{subscription}": "S", "{schema}": "X", "{user}": "U", "{snapshot}": "N",
    "registrations/{uuid}": "registrations/R", "tokens/{token}": "tokens/N", "{binding}": "B", "{issuer}": "I",
    "{uuid}": "UUID", "{token}": "TOKEN",
}  # fmt: skip


def documented_path(path: str) -> str:
    for variable, letter in _LETTERS.items():
        path = path.replace(variable, letter)
    return path


def roles_of(method: str, path: str) -> set[str]:
    return {permissions.SELF if role == SELF else SHORT.get(role, role) for role in ROUTE_ROLES[method, path]}


ACTIONS = {name: each for name, each in actions.ACTIONS.items() if not each.is_open}
OWN = sorted(ACTIONS.keys() - {line.action for line in LINES})
OWN_LINES = [
    _line(
        str(number),
        each.name,
        ROUTE_ROLES[each.method, documented_path(each.path)],
        in_project="{project}" in each.path,
    )
    for number, each in enumerate(map(ACTIONS.__getitem__, OWN), 65)
]
"""Actions this service adds, with the roles that the pages of the reference have."""

# Contract 3.5 with A5 of 17.2: where the access list is asked, and for which role.
_OF_CONSUMERS = "pull metrics acknowledge offsets modifyOffset timeToOffset modifyAckDeadline"
ACCESS_LISTS = {"topics:publish": "publisher", "topics:metrics": "publisher"} | {
    f"subscriptions:{verb}": "consumer" for verb in _OF_CONSUMERS.split()
}
