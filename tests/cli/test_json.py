"""`-o json` prints what the API sends, empty lists too."""

import json
import ssl
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Ams
from tests.support.service import LiveService

LISTS = {
    "projects list": "/projects",
    "users list": "/users?details=true",
    "users list --member-of {project}": "/users?project={project}&details=true",
    "members list": "/projects/{project}/members?details=true",
    "topics list": "/projects/{project}/topics",
    "subs list": "/projects/{project}/subscriptions",
    "schemas list": "/projects/{project}/schemas",
    "registrations list --status declined": "/registrations?status=declined",
    "issuers list": "/issuers",
    "audit --actor none": "/audit?actor=none",
    "token list --user {project}-u": "/users/{project}-u/tokens",
    "bindings list --user {project}-u": "/users/{project}-u/bindings",
    "metrics project": "/projects/{project}:metrics",
    "metrics va --only {project}": "/metrics/va_metrics?projects={project}",
    "metrics usage --only {project}": "/users/usageReport?projects={project}",
}
IN_USE = {
    "projects show {project}": "/projects/{project}",
    "users show {project}-m": "/users/{project}-m",
    "members show {project}-m": "/projects/{project}/members/{project}-m",
    "members list": "/projects/{project}/members?details=true",
    "topics list": "/projects/{project}/topics",
    "topics show t": "/projects/{project}/topics/t",
    "topics acl t": "/projects/{project}/topics/t:acl",
    "acl show topics/t": "/projects/{project}/topics/t:acl",
    "topics offsets t": "/projects/{project}/topics/t:offsets",
    "metrics topic t": "/projects/{project}/topics/t:metrics",
    "subs list": "/projects/{project}/subscriptions",
    "subs show s": "/projects/{project}/subscriptions/s",
    "subs show pushed": "/projects/{project}/subscriptions/pushed",
    "schemas list": "/projects/{project}/schemas",
    "schemas show reading": "/projects/{project}/schemas/reading",
    "token list --user {project}-m": "/users/{project}-m/tokens",
    "token show laptop --user {project}-m": "/users/{project}-m/tokens/laptop",
    "bindings list --user {project}-m": "/users/{project}-m/bindings",
    "subs acl s": "/projects/{project}/subscriptions/s:acl",
    "subs offsets s": "/projects/{project}/subscriptions/s:offsets",
    "subs push-status pushed": "/projects/{project}/subscriptions/pushed:pushStatus",
    "metrics subscription s": "/projects/{project}/subscriptions/s:metrics",
}


@pytest.fixture
def user(ams: Ams, project: str) -> None:
    assert ams("users", "create", f"{project}-u").returncode == 0


@pytest.fixture
def in_use(ams: Ams, project: str) -> None:
    """One of each thing: a member without roles but with a token and a binding, and a subscription with an endpoint."""
    ran = ams("schemas", "create", "reading", "--file", "-", stdin='{"type": "object"}')
    assert ran.returncode == 0, ran.stderr
    for command in (
        f"members create {project}-m",
        f"token create laptop --user {project}-m",
        f"bindings create checkin --user {project}-m --issuer https://i.example --subject {project}",
        "topics create t",
        "subs create s --topic t",
        "subs create pushed --topic t",
        "subs push-config pushed --url https://receiver.example/in",
    ):
        ran = ams(*command.split())
        assert ran.returncode == 0, ran.stderr


def answered(service: LiveService, path: str) -> Any:
    trusted = ssl.create_default_context(cafile=service.ca)
    answer = httpx.get(
        f"{service.base_url}/v1{path}", headers={"x-api-key": service.token}, verify=trusted, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def without_tokens(document: Any) -> Any:
    """Tokens are printed only when they are asked for."""
    if isinstance(document, list):
        return [without_tokens(each) for each in document]
    if isinstance(document, dict):
        return {name: without_tokens(value) for name, value in document.items() if name != "token"}
    return document


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize("command", LISTS)
def test_a_list_in_an_empty_project_is_what_the_api_sends(
    command: str, ams: Ams, project: str, service: LiveService
) -> None:
    ran = ams(*command.format(project=project).split(), "-o", "json")

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == without_tokens(answered(service, LISTS[command].format(project=project)))


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("command", IN_USE)
def test_what_is_shown_is_what_the_api_sends(command: str, ams: Ams, project: str, service: LiveService) -> None:
    for _ in range(5):  # metrics have a time, which may have gone on between the two
        ran = ams(*command.format(project=project).split(), "-o", "json")
        assert ran.returncode == 0, ran.stderr
        shown = json.loads(ran.stdout)
        sent = without_tokens(answered(service, IN_USE[command].format(project=project)))
        if shown == sent:
            break

    assert shown == sent


@pytest.mark.usefixtures("in_use")
def test_a_pull_of_nothing_and_dead_letters_of_nobody_are_empty_lists(ams: Ams, project: str) -> None:
    assert ams("pull", "s", "--no-wait", "-o", "json").stdout == '{\n  "receivedMessages": []\n}\n'
    assert ams("dead", "list", "s", "--from", "t", "-o", "json").stdout == "[]\n"
    assert ams("topics", "read", "t", "-o", "json").stdout == ""
