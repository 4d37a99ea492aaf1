"""Named tokens and weaker logins over HTTP: docs/reference/tokens.md."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.access.permissions import ROLES
from ams.core.clock import Milliseconds, resource_date
from tests.support.description import TABLE, description
from tests.support.program_keys import public_pem, sign_token
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service

PUBLISH = {"action": "topics:publish", "resource": "projects/P/topics/garden"}
MESSAGES = {"messages": [{"data": "aGk="}]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process_service(tmp_path_factory.mktemp("tokens") / "ams-data") as service:
        ask(service, "POST", "/projects/P", json={})
        for topic in ("garden", "lawn"):
            ask(service, "PUT", f"/projects/P/topics/{topic}")
        yield service


def call(service: InProcessService, method: str, path: str, token: str, json: object = None) -> httpx.Response:
    return service.call(method, path, json, headers={"x-api-key": "", "authorization": f"Bearer {token}"})


def ask(service: InProcessService, method: str, path: str, token: str = SERVICE_TOKEN, json: object = None) -> Any:
    answer = call(service, method, path, token, json)
    assert answer.status_code == 200, answer.text
    return answer.json() if answer.content else None


def message(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def make_user(service: InProcessService, name: str, *service_roles: str, role: str = "project_admin") -> dict[str, Any]:
    body = {"service_roles": service_roles, "projects": [{"project": "P", "roles": [role]}]}
    made: dict[str, Any] = ask(service, "POST", f"/users/{name}", json=body)
    return made


def test_what_a_key_signs_publishes_to_its_topic_until_it_is_revoked(service: InProcessService) -> None:
    own = make_user(service, "robin")["token"]
    wanted = {"public_key": public_pem("http"), "rights": [PUBLISH]}
    ask(service, "POST", "/users/robin/tokens/ci", own, json=wanted)
    token = sign_token(service.clock.now // 1000, "http")

    for _ in range(2):
        assert ask(service, "POST", "/projects/P/topics/garden:publish", token, json=MESSAGES)["messageIds"]
    other = call(service, "POST", "/projects/P/topics/lawn:publish", token, json=MESSAGES)
    assert message(other) == (403, "The token is not good for this")
    assert service.call("GET", "/users/profile", token=token).status_code == 401

    ask(service, "DELETE", "/users/robin/tokens/ci", own)
    refused = call(service, "POST", "/projects/P/topics/garden:publish", token, json=MESSAGES)
    assert message(refused) == (401, "The token's key is not known: it was revoked, or is of another service")
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


OPEN_PATHS = {each.whole_path for each in TABLE if each.is_open}
"""Its answer depends on the caller; for a token with rights it is tested below."""


def test_of_all_the_routes_there_are_a_reduced_token_opens_none_it_has_no_right_to(service: InProcessService) -> None:
    """Whatever its user's roles, and also for routes added later."""
    own = make_user(service, "ubik", *sorted(ROLES))["token"]
    elsewhere = {"action": "topics:publish", "resource": "projects/Q/topics/garden"}
    token = ask(service, "POST", "/users/ubik/tokens/ci", own, json={"rights": [elsewhere]})["token"]
    all_rights = {"rights": [{"action": "*", "resource": "*"}]}
    star = ask(service, "POST", "/users/ubik/tokens/star", own, json=all_rights)["token"]
    known = {"project": "P", "topic": "garden", "user": "ubik", "token": "ci"}
    described = json.loads(description())["paths"]
    routes = [(m.upper(), path) for path, methods in described.items() if path not in OPEN_PATHS for m in methods]
    of_logins = [each for each in routes if re.search("/tokens|/bindings|/issuers|:refreshToken", each[1])]
    asked = [(each, token) for each in routes] + [(each, star) for each in of_logins]

    assert len(routes) > 70
    assert len(of_logins) == 14
    for (method, path), shown in asked:
        where = re.sub(r"\{(\w+)\}", lambda name: known.get(name[1], "x"), path).removeprefix("/v1")
        answer = call(service, method, where, shown, json={})
        assert (path, *message(answer)) == (path, 403, "The token is not good for this")


def test_nobody_learns_a_stronger_token_from_a_weaker_one(service: InProcessService) -> None:
    """Tests every route that shows a user."""
    made = make_user(service, "root", "service_admin", "argo_api_authn")
    rights = {"rights": [{"action": "*", "resource": "*"}]}
    token = ask(service, "POST", "/users/root/tokens/ci", json=rights)["token"]
    registration = ask(service, "POST", "/registrations", token, json={"name": "rita"})

    profile = ask(service, "GET", "/users/profile", token)
    assert profile["service_roles"] == []
    assert [each["roles"] for each in profile["projects"]] == [[]]
    shown = [
        profile, ask(service, "GET", "/users/root", token),
        ask(service, "GET", f"/users:byToken/{made['token']}", token),
        ask(service, "GET", f"/users:byUUID/{made['uuid']}", token),
        *ask(service, "GET", "/users?details=true", token)["users"],
        *ask(service, "GET", "/projects/P/members?details=true", token)["users"],
        ask(service, "GET", "/projects/P/members/root", token), ask(service, "POST", "/users/fred", token, json={}),
        ask(service, "PUT", "/users/fred", token, json={"email": "fred@site.example"}),
        ask(service, "POST", "/projects/P/members/fred:add", token, json={"roles": ["publisher"]}),
        ask(service, "POST", "/projects/P/members/gina", token, json={}),
        ask(service, "PUT", "/projects/P/members/gina", token, json={"projects": [{"project": "P", "roles": []}]}),
        ask(service, "POST", f"/registrations/{registration['uuid']}:accept", token),
    ]  # fmt: skip

    assert [each["name"] for each in shown if "token" in each] == []
    assert {role for each in shown for role in each["service_roles"]} == set()
    refused = call(service, "POST", "/users/fred:refreshToken", token)
    assert message(refused) == (403, "The token is not good for this")
    assert call(service, "POST", "/users/evil", token, json={"service_roles": ["service_admin"]}).status_code == 400
    assert call(service, "PUT", "/users/root", token, json={"email": "x"}).status_code == 403
    assert call(service, "GET", "/status?details=true", token).status_code == 200  # `*` is good for that
    assert ask(service, "GET", "/users/usageReport", token)["va_metrics"]["projects_metrics"]["projects"]


def test_what_is_open_to_all_tells_a_reduced_token_nothing_more(service: InProcessService) -> None:
    make_user(service, "nora", "service_admin")
    token = ask(service, "POST", "/users/nora/tokens/ci", json={"rights": [PUBLISH]})["token"]

    assert "release" not in ask(service, "GET", "/version", token)
    assert call(service, "GET", "/status?details=true", token).status_code == 403
    report = ask(service, "GET", "/users/usageReport", token)
    assert report["va_metrics"]["projects_metrics"]["projects"] == []


def test_the_audit_log_says_by_which_token_and_why_one_was_refused(service: InProcessService) -> None:
    own = make_user(service, "zoe")["token"]
    token = ask(service, "POST", "/users/zoe/tokens/ci", own, json={"expires_in": 60})["token"]

    ask(service, "PUT", "/projects/P/topics/zoes", token)
    service.clock.advance(60_000)
    call(service, "DELETE", "/projects/P/topics/zoes", token)

    kept = (Path(service.run.service.folder.path) / "audit.jsonl").read_text()
    events = [json.loads(line) for line in kept.splitlines() if "zoe" in line]  # others may end with the minute
    assert [(each["action"], each["actor"], each["code"], each.get("reason")) for each in events[-3:]] == [
        ("tokens:create", "zoe", 200, None), ("topics:create", "zoe", 200, "by token ci"),
        ("login", "", 401, "The token has expired"),
    ]  # fmt: skip
    assert token not in kept


def test_a_token_shows_its_end_and_its_last_use(service: InProcessService) -> None:
    own = make_user(service, "liv")["token"]
    made = ask(service, "POST", "/users/liv/tokens/ci", own, json={"expires_in": 3600})
    profile = ask(service, "GET", "/users/profile", made["token"])
    assert (profile["name"], "token" in profile) == ("liv", False)
    assert made["expires_on"] == resource_date(Milliseconds(service.clock.wall() + 3_600_000))
    assert "last_used" not in ask(service, "GET", "/users/liv/tokens/ci", own)
    service.carry_out(service.run.service.token_uses.flush())

    assert ask(service, "GET", "/users/liv/tokens/ci", own)["last_used"] == resource_date(service.clock.wall())


@pytest.fixture(scope="module")
def hiding_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process_service(tmp_path_factory.mktemp("once") / "ams-data", show_tokens=False) as service:
        ask(service, "POST", "/projects/P", json={})
        yield service


def test_where_tokens_are_shown_once_only_what_makes_one_shows_it(hiding_service: InProcessService) -> None:
    authn, admin = (make_user(hiding_service, "authn", "argo_api_authn"),
                    make_user(hiding_service, "root", "service_admin"))  # fmt: skip
    member = ask(hiding_service, "POST", "/projects/P/members/mia", json={})
    registration = ask(hiding_service, "POST", "/registrations", json={"name": "rita"})
    rita = ask(hiding_service, "POST", f"/registrations/{registration['uuid']}:accept")
    fresh = ask(hiding_service, "POST", "/users/mia:refreshToken")
    uuid, token = member["uuid"], admin["token"]

    assert all(len(each["token"]) == 64 for each in (authn, admin, member, rita, fresh))
    again = [
        ask(hiding_service, "GET", "/users/profile", token), ask(hiding_service, "GET", "/users/mia", token),
        ask(hiding_service, "GET", f"/users:byToken/{token}", token),
        ask(hiding_service, "GET", f"/users:byUUID/{uuid}", token),
        ask(hiding_service, "GET", "/users/profile", authn["token"]),
        ask(hiding_service, "PUT", "/users/mia", token, json={"email": "mia@site.example"}),
        *ask(hiding_service, "GET", "/users", token)["users"],
        *ask(hiding_service, "GET", "/projects/P/members", token)["users"],
        ask(hiding_service, "GET", "/projects/P/members/mia", token), ask(hiding_service, "GET", "/users/mia"),
    ]  # fmt: skip
    assert [each["name"] for each in again if "token" in each] == []
    assert ask(hiding_service, "GET", f"/users:byUUID/{uuid}", authn["token"])["token"] == fresh["token"]
