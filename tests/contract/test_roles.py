from collections.abc import Callable

import pytest

from tests.access.table import LINES, OWN_LINES, Line
from tests.contract.actions import PATHS
from tests.contract.rows import BOTH, SUBSCRIPTION, Ask, listed, member, user
from tests.contract.runner import Runner

IN_PROJECTS = ["project_admin", "publisher", "consumer"]
SERVICE_WIDE = ["service_admin", "admin_viewer", "metrics_viewer", "push_worker", "argo_api_authn", "register_admin"]
LISTED_FIRST = {"topics:metrics", "subscriptions:metrics"}
"""For what does not exist, these answer 403 to whom an access list could name (14.2, 14.3): asked without lists."""


QUERIES = {"topics:offsets": "?subscription=S", "topics:read": "?subscription=S"}


def shown(line: Line) -> str:
    return f"3.4 {line.number} {line.action}"


@pytest.mark.parametrize("line", [line for line in (*LINES, *OWN_LINES) if line.action in PATHS], ids=shown)
def test_an_action_is_for_its_roles_and_no_others(line: Line, runner: Callable[[str], Runner]) -> None:
    everybody = runner("without access lists" if line.action in LISTED_FIRST else "usual")
    everybody.ask(Ask("POST", "/projects/$P", {}))
    for role in IN_PROJECTS:
        everybody.ask(member(role, role))
    for role in SERVICE_WIDE:
        everybody.ask(user(role, role))
    if line in OWN_LINES:  # a consumer may read a topic through a subscription to it only
        for made in (*BOTH, listed(SUBSCRIPTION, "consumer")):
            everybody.ask(made)

    def answer(by: str) -> int:
        method, path = PATHS[line.action]
        return everybody.ask(Ask(method, path + QUERIES.get(line.action, ""), by=by)).status_code

    outside = [] if line.in_project else IN_PROJECTS
    refused = [role for role in SERVICE_WIDE + IN_PROJECTS if role not in line.roles and role not in outside]
    assert {role: answer(role) for role in refused} == dict.fromkeys(refused, 403)
    assert {role: answer(role) for role in outside} == dict.fromkeys(outside, 401)
    assert [role for role in line.roles if role not in outside and answer(role) in (401, 403)] == []
