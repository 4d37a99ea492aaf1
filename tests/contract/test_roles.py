from collections.abc import Callable

import pytest

from tests.access.table import LINES, Line
from tests.contract.rows import MEMBERS, PROJECT, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC, TOPICS, Ask, member, user
from tests.contract.runner import Runner

USER, A_MEMBER = "/users/$P-x", MEMBERS + "/$P-x"

PATHS = {
    "users:byToken": ("GET", "/users:byToken/x"),
    "users:byUUID": ("GET", "/users:byUUID/x"),
    "users:list": ("GET", "/users"),
    "users:show": ("GET", USER),
    "users:refreshToken": ("POST", USER + ":refreshToken"),
    "users:create": ("POST", USER),
    "users:update": ("PUT", USER),
    "users:delete": ("DELETE", USER),
    "projects:list": ("GET", "/projects"),
    "projects:addUser": ("POST", A_MEMBER + ":add"),
    "projects:removeUser": ("POST", A_MEMBER + ":remove"),
    "projects:showUser": ("GET", A_MEMBER),
    "projects:createUser": ("POST", A_MEMBER),
    "projects:updateUser": ("PUT", A_MEMBER),
    "projects:listUsers": ("GET", MEMBERS),
    "projects:show": ("GET", PROJECT),
    "projects:create": ("POST", PROJECT + "-new"),
    "projects:update": ("PUT", PROJECT),
    "projects:delete": ("DELETE", PROJECT),
    "subscriptions:list": ("GET", SUBSCRIPTIONS),
    "subscriptions:listByTopic": ("GET", TOPIC + "/subscriptions"),
    "subscriptions:offsets": ("GET", SUBSCRIPTION + ":offsets"),
    "subscriptions:timeToOffset": ("GET", SUBSCRIPTION + ":timeToOffset"),
    "subscriptions:acl": ("GET", SUBSCRIPTION + ":acl"),
    "subscriptions:show": ("GET", SUBSCRIPTION),
    "subscriptions:create": ("PUT", SUBSCRIPTION),
    "subscriptions:delete": ("DELETE", SUBSCRIPTION),
    "subscriptions:pull": ("POST", SUBSCRIPTION + ":pull"),
    "subscriptions:acknowledge": ("POST", SUBSCRIPTION + ":acknowledge"),
    "subscriptions:modifyAckDeadline": ("POST", SUBSCRIPTION + ":modifyAckDeadline"),
    "subscriptions:modifyOffset": ("POST", SUBSCRIPTION + ":modifyOffset"),
    "subscriptions:modifyAcl": ("POST", SUBSCRIPTION + ":modifyAcl"),
    "topics:list": ("GET", TOPICS),
    "topics:acl": ("GET", TOPIC + ":acl"),
    "topics:show": ("GET", TOPIC),
    "topics:create": ("PUT", TOPIC),
    "topics:delete": ("DELETE", TOPIC),
    "topics:publish": ("POST", TOPIC + ":publish"),
    "topics:modifyAcl": ("POST", TOPIC + ":modifyAcl"),
}
"""Method and path of the actions this service has, typed in from the contract's table (3.4)."""

IN_PROJECTS = ["project_admin", "publisher", "consumer"]
SERVICE_WIDE = ["service_admin", "admin_viewer", "metrics_viewer", "push_worker", "argo_api_authn", "register_admin"]


def shown(line: Line) -> str:
    return f"3.4 {line.number} {line.action}"


@pytest.mark.parametrize("line", [line for line in LINES if line.action in PATHS], ids=shown)
def test_an_action_is_for_its_roles_and_no_others(line: Line, runner: Callable[[str], Runner]) -> None:
    everybody = runner("usual")
    everybody.ask(Ask("POST", "/projects/$P", {}))
    for role in IN_PROJECTS:
        everybody.ask(member(role, role))
    for role in SERVICE_WIDE:
        everybody.ask(user(role, role))

    def answer(by: str) -> int:
        return everybody.ask(Ask(*PATHS[line.action], by=by)).status_code

    outside = [] if line.in_project else IN_PROJECTS
    refused = [role for role in SERVICE_WIDE + IN_PROJECTS if role not in line.roles and role not in outside]
    assert {role: answer(role) for role in refused} == dict.fromkeys(refused, 403)
    assert {role: answer(role) for role in outside} == dict.fromkeys(outside, 401)
    assert [role for role in line.roles if role not in outside and answer(role) in (401, 403)] == []
