"""No secret is written to logs or files, whatever a client sends and whatever fails (17.3, U8)."""

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

SERVICE_TOKEN = "service-token-0123456789"
TOKEN_KEY = "5a" * 32
WORKER_TOKEN = "worker-token-0123456789"
UNKNOWN_TOKEN = "f00d" * 16
PAYLOAD = b"the payload nobody else may read"
ATTRIBUTE = "the-attribute-nobody-else-may-read"
HEADER = "the-header-of-a-receiver"
ENCODED = base64.b64encode(PAYLOAD).decode()
MESSAGE = {"data": ENCODED, "attributes": {"k": ATTRIBUTE}}
PUBLISH = {"messages": [MESSAGE]}
IN_LOG = {ENCODED, ATTRIBUTE}  # what the log's segments hold, as is their purpose


class Day:
    """Requests with secrets; it keeps every secret that it saw."""

    def __init__(self, live: LiveService) -> None:
        self.live = live
        self.tokens = {live.token, SERVICE_TOKEN, WORKER_TOKEN, UNKNOWN_TOKEN}
        self.activations: set[str] = set()
        self.of_push: set[str] = set()
        self._others = {TOKEN_KEY, PAYLOAD.decode(), HEADER, *IN_LOG}
        self._client = httpx.Client(base_url=live.base_url + "/v1", trust_env=False, timeout=20)

    @property
    def others(self) -> set[str]:
        """Secrets other than tokens of users."""
        return self._others | self.activations | self.of_push

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"x-api-key": self.live.token if token is None else token} | more.pop("headers", {})
        answer = self._client.request(method, path, json=body, headers=headers, **more)
        if answer.status_code == 200 and answer.content:
            self._remember(answer.json())
        return answer

    def close(self) -> None:
        self._client.close()

    def _remember(self, made: dict[str, Any]) -> None:
        self.tokens |= {made["token"]} if "token" in made else set()
        self.activations |= {made["activation_token"]} if "activation_token" in made else set()
        push = made.get("pushConfig", {})
        self.of_push |= {push["verificationHash"], push["authorizationHeader"]["value"]} if push.get("type") else set()


@pytest.fixture
def day(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Day]:
    secrets = {"AMS_SERVICE_TOKEN": SERVICE_TOKEN, "AMS_TOKEN_KEY": TOKEN_KEY, "AMS_PUSH_WORKER_TOKEN": WORKER_TOKEN}
    flags = ["--push-enabled", "--log-level", "debug", "--log-format", request.param, "--max-body-bytes", "10000"]
    flags += ["--max-message-bytes", "1000", "--min-free-bytes", "0", "--reserve-bytes", "0"]
    with live_service(tmp_path / "data", *flags, environment=secrets) as live:
        day = Day(live)
        yield day
        day.close()


def go_well(day: Day) -> str:
    day.ask("POST", "/projects/P", {}, token=SERVICE_TOKEN)
    user = day.ask("POST", "/projects/P/members/u", {"projects": [{"project": "P", "roles": ["publisher"]}]}).json()
    day.ask("PUT", "/projects/P/topics/t")
    day.ask("PUT", "/projects/P/subscriptions/s", {"topic": "projects/P/topics/t"})
    day.ask("POST", "/projects/P/topics/t:modifyAcl", {"authorized_users": ["u"]})
    assert day.ask("POST", "/projects/P/topics/t:publish", PUBLISH, token=user["token"]).status_code == 200
    assert day.ask("POST", f"/projects/P/topics/t:publish?key={user['token']}", PUBLISH, token="").status_code == 200
    pulled = day.ask("POST", "/projects/P/subscriptions/s:pull", {"maxMessages": "9"}).json()
    assert len(pulled["receivedMessages"]) == 2
    assert day.ask("GET", f"/users:byToken/{user['token']}").json()["name"] == "u"
    assert day.ask("GET", f"/users/profile?key={user['token']}", token="").status_code == 200
    asked = day.ask("POST", "/registrations", {"name": "new"}, token=SERVICE_TOKEN).json()
    assert day.ask("GET", f"/registrations?activation_token={asked['activation_token']}").status_code == 200
    assert day.ask("POST", f"/registrations/{asked['uuid']}:accept").json()["token"]
    push = {"pushConfig": {"pushEndpoint": "https://127.0.0.1:1/in"}}
    assert day.ask("POST", "/projects/P/subscriptions/s:modifyPushConfig", push).status_code == 200
    assert day.ask("GET", "/projects/P/subscriptions/s").json()["pushConfig"]["verificationHash"] in day.of_push
    assert day.ask("POST", "/projects/P/subscriptions/s:verifyPushEndpoint").status_code == 401
    return str(day.ask("POST", "/users/u:refreshToken").json()["token"])


def go_wrong(day: Day, token: str) -> None:
    """Send requests that are refused, with secrets in every place a client may put them."""
    push = {"pushEndpoint": "https://r.example", "authorizationHeader": {"type": "autogen", "value": HEADER}}
    wanted = {"topic": "projects/P/topics/t", "pushConfig": push}
    refused = [
        day.ask("POST", "/projects/P/topics/t:publish", {"messages": [{"data": ENCODED, "attributes": ATTRIBUTE}]}),
        day.ask("POST", "/projects/P/topics/t:publish", PUBLISH, token=UNKNOWN_TOKEN),
        day.ask("POST", f"/projects/P/topics/t:publish?key={UNKNOWN_TOKEN}", PUBLISH, token=""),
        day.ask("POST", "/projects/P/topics/none:publish", PUBLISH),
        day.ask("POST", "/projects/P/topics/t:publish", {"messages": [MESSAGE] * 9 + [{"data": ENCODED * 40}]}),
        day.ask("POST", "/projects/P/topics/t:publish", {"messages": [MESSAGE] * 400}),
        day.ask("PUT", "/projects/P/topics/new", token=token), day.ask("PUT", "/projects/P/subscriptions/s", wanted),
        day.ask("POST", "/projects/P", {}), day.ask("GET", f"/users:byToken/{UNKNOWN_TOKEN}"),
        day.ask("GET", f"/USERS:BYTOKEN/{token}"), day.ask("GET", f"/users/{token}"),
        day.ask("GET", f"/users:byToken//{token}"),
        day.ask("GET", "/users", headers={"x-request-id": f"not one id {token}"}, token=UNKNOWN_TOKEN),
    ]  # fmt: skip
    assert {answer.status_code for answer in refused} == {301, 400, 401, 403, 404, 409, 413}


def break_down(day: Day, token: str) -> None:
    """Drop the registry's tables under the running service, and send more requests."""
    with sqlite3.connect(day.live.data / "registry.db") as database:
        for table in ("memberships", "topics", "subscriptions"):
            database.execute(f"ALTER TABLE {table} RENAME TO {table}_gone")
    database.close()
    failed = [
        day.ask("GET", f"/users:byToken/{token}", headers={"x-request-id": "probe-7"}),
        day.ask("GET", f"/users/profile?key={token}", token=""),
        day.ask("POST", "/projects/P/topics/other:publish", PUBLISH),
        day.ask("POST", "/users/another", {"projects": [{"project": "P", "roles": ["publisher"]}]}),
    ]
    assert [answer.status_code for answer in failed] == [500] * 4


@pytest.mark.parametrize("day", ["json", "console"], indirect=True)
def test_nothing_written_holds_a_secret(day: Day, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    token = go_well(day)
    go_wrong(day, token)
    break_down(day, token)
    assert day.live.stop() == 0

    assert day.live.process.stdout is not None
    said = day.live.process.stdout.read() + (tmp_path / "data.stderr").read_text()
    assert "changed" in said
    assert "request.failed" in said
    assert [secret for secret in day.tokens | day.others if secret in said] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if any(secret in str(path) for secret in day.tokens | day.others)] == []
    for path in files:
        assert found_in(path, day) == [], path
    if request.node.callspec.params["day"] == "json":
        check_lines([json.loads(line) for line in (tmp_path / "data.stderr").read_text().splitlines()])


def found_in(path: Path, day: Day) -> list[str]:
    """Return the secrets in a file that should not be there."""
    secrets = day.tokens | day.others
    if path.name == "admin.token":
        secrets -= {day.live.token}
    if path.parent.parent == day.live.data / "log":
        secrets -= IN_LOG
    if path.name.startswith("registry.db"):
        secrets -= day.activations | day.of_push  # they open nothing here
    content = path.read_bytes()
    return [secret for secret in secrets if secret.encode() in content]


def check_lines(said: list[dict[str, Any]]) -> None:
    """Check that every line of a request names it, and that every change names its author."""
    of_probe = {line["event"]: line for line in said if line.get("request") == "probe-7"}
    changes = [(line["by"], line["action"], line["resource"]) for line in said if line["event"] == "changed"]

    assert set(of_probe) == {"registry.failed", "request.failed", "request"}
    assert of_probe["request.failed"]["path"] == of_probe["request"]["path"] == "/v1/users:byToken/***"
    assert (of_probe["request"]["method"], of_probe["request"]["status"]) == ("GET", 500)
    assert changes[:2] == [
        ("(service token)", "projects:create", "/projects/P"),
        ("admin", "projects:createUser", "/projects/P/members/u"),
    ]
    assert all(line["request"] for line in said if line["event"] in ("changed", "request"))
    assert {line["level"] for line in said if line["event"] == "changed"} == {"info"}
