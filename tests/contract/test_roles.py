"""Every role on the contract's 64 actions and our own, in its own and a foreign project, on and off access lists.

The expected answers come only from the contract's table (`tests.access.table`) and sections 3.3 and 3.5.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.access.table import ACCESS_LISTS, LINES, OWN_LINES, SHORT, Line
from tests.contract.actions import OPEN, PATHS
from tests.contract.rows import NO_BODY, Request
from tests.contract.runner import Runner

IN_PROJECTS = ("project_admin", "publisher", "consumer")
AS_PULLED = ("subscriptions:seek", "subscriptions:doctor", "subscriptions:pushStatus", "topics:read", "topics:offsets",
             "topics:timeToOffset")  # fmt: skip
LISTED_ROLE = ACCESS_LISTS | dict.fromkeys(AS_PULLED, "consumer")
"""Actions that an access list guards, and the role it binds; our own are guarded like pulling."""
BODIES: dict[str, object] = {
    "subscriptions:acknowledge": {"ackIds": ["projects/$P/subscriptions/S:0"]},
    "subscriptions:modifyOffset": {"offset": 0}, "subscriptions:seek": {"offset": 0},
    "subscriptions:modifyAckDeadline": {"ackDeadlineSeconds": 10},
}  # fmt: skip
"""Bodies that are validated before the access list is checked."""
INSTEAD = {
    "subscriptions:timeToOffset": "/projects/$P/subscriptions/S:timeToOffset?time=2024-01-02T03:04:05.678Z",
    "topics:read": "/projects/$P/topics/T:read?subscription=S",
    "topics:offsets": "/projects/$P/topics/T:offsets?subscription=S",
    "topics:timeToOffset": "/projects/$P/topics/T:timeToOffset?subscription=S&time=2024-01-02T03:04:05.678Z",
    "users:delete": "/users/none",
    **{f"{kind}:delete": f"/projects/$P/{kind}/none" for kind in ("topics", "subscriptions")},
    **{f"{kind}:{verb}": f"/projects/$P/{kind}/none:{verb}" for kind in ("topics", "subscriptions")
       for verb in ("modifyAcl", "changeAcl")},
}  # fmt: skip
"""Other paths: actions that would delete what the test needs get a name that does not exist."""


class Holder(NamedTuple):
    """A user with one role: in one project, or service-wide; on the access lists of its project, or not."""

    role: str
    is_service_wide: bool
    is_listed: bool

    @property
    def name(self) -> str:
        return f"{self.role}-{'wide' if self.is_service_wide else 'here'}-{'in' if self.is_listed else 'out'}"


HOLDERS = [
    Holder(role, wide, listed) for role in SHORT.values() for wide in (True, False) for listed in (True, False)
    if wide or role in IN_PROJECTS
]  # fmt: skip


ADMITTED = [line for line in (*LINES, *OWN_LINES) if not line.is_open]


def expected_refusal(line: Line, holder: Holder, *, is_foreign: bool) -> int | None:
    """Return the refusal that a step must get; None when it is allowed."""
    counts = holder.is_service_wide or (line.in_project and not is_foreign)
    if not counts:
        return 401
    if holder.role not in line.roles:
        return 403
    bound = LISTED_ROLE.get(line.action) == holder.role
    return 403 if bound and (is_foreign or not holder.is_listed) else None


def step(action: str, by: str, *, is_foreign: bool = False) -> Request:
    method, path = PATHS[action]
    path = INSTEAD.get(action, path)
    return Request(method, path.replace("$P", "$P-foreign", 1) if is_foreign else path, BODIES.get(action, NO_BODY), by)


@pytest.fixture(scope="module")
def walker(runner: Callable[[str], Runner]) -> Runner:
    """Two projects with a topic and subscription each, and users of all roles."""
    walker = runner("usual")
    create_holders(walker)
    return walker


def create_holders(walker: Runner) -> None:
    for project in ("$P", "$P-foreign"):
        walker.run_step(Request("POST", f"/projects/{project}", {}))
        walker.run_step(Request("PUT", f"/projects/{project}/topics/T"))
        walker.run_step(
            Request("PUT", f"/projects/{project}/subscriptions/S", {"topic": f"projects/{project}/topics/T"})
        )
    for holder in HOLDERS:
        wide, here = ([holder.role], []) if holder.is_service_wide else ([], [holder.role])
        body = {"service_roles": wide, "projects": [{"project": "$P", "roles": here}]}
        walker.run_step(Request("POST", f"/users/$P-{holder.name}", body, remember=holder.name))
    listed = {"authorized_users": [f"$P-{holder.name}" for holder in HOLDERS if holder.is_listed]}
    for resource in ("topics/T", "subscriptions/S"):
        walker.run_step(Request("POST", f"/projects/$P/{resource}:modifyAcl", listed))


@pytest.mark.parametrize("line", ADMITTED, ids=lambda line: f"3.4 {line.number} {line.action}")
def test_an_action_is_for_its_roles_and_no_others(line: Line, walker: Runner) -> None:
    wrong = {}
    for holder in HOLDERS:
        for is_foreign in (False, True) if line.in_project else (False,):
            if line.action == "projects:delete" and expected_refusal(line, holder, is_foreign=is_foreign) is None:
                continue  # walked below, where projects may go
            status = walker.ask(step(line.action, holder.name, is_foreign=is_foreign)).status_code
            wanted = expected_refusal(line, holder, is_foreign=is_foreign)
            if status != wanted if wanted else status in (401, 403):
                wrong[holder.name, "foreign" if is_foreign else "own"] = (status, wanted)

    assert wrong == {}


@pytest.mark.parametrize("role", ["service_admin", "project_admin"])
def test_a_project_is_deleted_by_its_administrators(role: str, runner: Callable[[str], Runner]) -> None:
    walker = runner("usual")
    walker.run_step(Request("POST", "/projects/$P", {}))
    body = {"service_roles": [role]} if role == "service_admin" else {"projects": [{"project": "$P", "roles": [role]}]}
    walker.run_step(Request("POST", "/users/$P-x", body, remember="x"))

    assert walker.ask(Request("DELETE", "/projects/$P", by="x")).status_code == 200
    assert walker.ask(Request("GET", "/projects/$P")).status_code == 404


@pytest.mark.parametrize("action", OPEN)
def test_the_open_routes_look_at_the_token_themselves(action: str, walker: Runner) -> None:
    method, path = OPEN[action]
    for_users = action in ("users:profile", "users:usageReport")

    assert {walker.ask(Request(method, path, by=holder.name)).status_code for holder in HOLDERS} == {200}
    assert walker.ask(Request(method, path, by="nobody")).status_code == (401 if for_users else 200)
    assert walker.ask(Request(method, path, by="stranger")).status_code == (401 if for_users else 200)
    assert walker.ask(Request(method, path, by="service")).status_code == (401 if for_users else 200)


def test_details_of_the_status_are_for_two_roles(walker: Runner) -> None:
    answers = {
        holder: walker.ask(Request("GET", "/status?details=true", by=holder.name)).status_code for holder in HOLDERS
    }
    assert {holder.role for holder, status in answers.items() if status == 200} == {"service_admin", "admin_viewer"}
    assert set(answers.values()) == {200, 403}


def test_the_service_token_may_do_everything(walker: Runner) -> None:
    answers = {each: walker.ask(step(each, "service")).status_code for each in PATHS if each != "projects:delete"}
    assert not {401, 403} & set(answers.values()), answers


def test_the_walk_is_complete() -> None:
    assert {line.action for line in (*LINES, *OWN_LINES)} == set(PATHS) | set(OPEN)
    assert len(HOLDERS) == 2 * (len(SHORT) + len(IN_PROJECTS))
