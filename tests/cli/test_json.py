"""`-o json` prints what the API sends, empty lists too."""

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Ams, admins_environment
from tests.support.service import LiveService

USED, EMPTY = "/projects/{used}", "/projects/{empty}"
SHOWN = {
    "projects list": "/projects",
    "projects show {used}": USED,
    "users list": "/users?details=true",
    "users list --member-of {empty}": "/users?project={empty}&details=true",
    "users show {used}-m": "/users/{used}-m",
    "members list": f"{USED}/members?details=true",
    "members list -p {empty}": f"{EMPTY}/members?details=true",
    "members show {used}-m": f"{USED}/members/{{used}}-m",
    "topics list": f"{USED}/topics",
    "topics list -p {empty}": f"{EMPTY}/topics",
    "topics show t": f"{USED}/topics/t",
    "topics acl t": f"{USED}/topics/t:acl",
    "acl show topics/t": f"{USED}/topics/t:acl",
    "topics offsets t": f"{USED}/topics/t:offsets",
    "subs list": f"{USED}/subscriptions",
    "subs list -p {empty}": f"{EMPTY}/subscriptions",
    "subs show s": f"{USED}/subscriptions/s",
    "subs show pushed": f"{USED}/subscriptions/pushed",
    "subs acl s": f"{USED}/subscriptions/s:acl",
    "subs offsets s": f"{USED}/subscriptions/s:offsets",
    "subs push-status pushed": f"{USED}/subscriptions/pushed:pushStatus",
    "schemas list": f"{USED}/schemas",
    "schemas list -p {empty}": f"{EMPTY}/schemas",
    "schemas show reading": f"{USED}/schemas/reading",
    "registrations list --status declined": "/registrations?status=declined",
    "issuers list": "/issuers",
    "audit --actor none": "/audit?actor=none",
    "token list --user {used}-m": "/users/{used}-m/tokens",
    "token list --user {used}-u": "/users/{used}-u/tokens",
    "token show laptop --user {used}-m": "/users/{used}-m/tokens/laptop",
    "bindings list --user {used}-m": "/users/{used}-m/bindings",
    "bindings list --user {used}-u": "/users/{used}-u/bindings",
    "metrics project": f"{USED}:metrics",
    "metrics project -p {empty}": f"{EMPTY}:metrics",
    "metrics topic t": f"{USED}/topics/t:metrics",
    "metrics subscription s": f"{USED}/subscriptions/s:metrics",
    "metrics va --only {empty}": "/metrics/va_metrics?projects={empty}",
    "metrics usage --only {empty}": "/users/usageReport?projects={empty}",
}
MADE = """projects create {used}
projects create {empty}
users create {used}-u
schemas create reading --file -
members create {used}-m
token create laptop --user {used}-m
bindings create checkin --user {used}-m --issuer https://i.example --subject {used}
topics create t
subs create s --topic t
subs create pushed --topic t
subs push-config pushed --url https://receiver.example/in"""


def named(folder: Path, text: str) -> str:
    return text.format(used=folder.name, empty=f"{folder.name}-empty")


@pytest.fixture(scope="module")
def prepared(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    """A project with one of each thing, and one with nothing; a user with a token and a binding, and one without."""
    folder = tmp_path_factory.mktemp("json")
    ams = Ams(admins_environment(service, folder), folder)
    for command in named(folder, MADE).splitlines():
        ran = ams(*command.split(), stdin='{"type": "object"}')
        assert ran.returncode == 0, ran.stderr
    return ams


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


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_shown_is_what_the_api_sends(command: str, prepared: Ams, service: LiveService) -> None:
    words, path = (named(prepared.folder, text) for text in (command, SHOWN[command]))
    for _ in range(5):  # metrics have a time, which may have gone on between the two
        shown = prepared.json(*words.split())
        sent = without_tokens(answered(service, path))
        if shown == sent:
            break

    assert shown == sent


def test_a_pull_of_nothing_and_dead_letters_of_nobody_are_empty_lists(prepared: Ams) -> None:
    assert prepared("pull", "s", "--no-wait", "-o", "json").stdout == '{\n  "receivedMessages": []\n}\n'
    assert prepared("dead", "list", "s", "--from", "t", "-o", "json").stdout == "[]\n"
    assert prepared("topics", "read", "t", "-o", "json").stdout == ""
