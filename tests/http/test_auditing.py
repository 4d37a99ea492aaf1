"""The audit log of a whole service, asked over HTTP and read from its file."""

import asyncio
import base64
import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.access.admission import Caller
from ams.app.backup import take
from ams.core.attempts import Attempts
from ams.core.clock import ManualClock
from ams.core.names import UserId, UserName
from ams.core.observing import REQUEST, add_request
from ams.http.app import App
from ams.http.auditing import Auditor, Traced, log_change, shown_path
from ams.http.fast import Gate
from ams.http.limits import Bodies
from ams.http.routing import Row
from ams.service.delivering import UnreadAnswers
from ams.storage.audit.event import AuditEvent
from ams.storage.audit.logins import EACH, FailedLogins
from tests.support import shape
from tests.support.served import SERVICE_TOKEN, Served, served

SECRET = "kirschkernweitspucken"
"""Stands for whatever a client sends in a body."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "ams-data"


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Served]:
    with served(data, trusted_proxies="127.0.0.1", failed_logins_per_minute=20, log_level="debug") as service:
        yield service


def client_of(service: Served, token: str, address: str = "192.0.2.1") -> httpx.Client:
    headers = {"x-api-key": token, "x-forwarded-for": address}
    return httpx.Client(base_url=service.run.base_url + "/v1", headers=headers, trust_env=False)


@pytest.fixture(scope="module")
def root(service: Served) -> Iterator[httpx.Client]:
    with client_of(service, service.token) as client:
        client.post("/projects/P", json={})
        yield client


def lines(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / "audit.jsonl").read_text().splitlines()]


def listed(root: httpx.Client, expected: str, **query: str) -> list[dict[str, Any]]:
    """Return events as the API lists them, when one with the id `expected` has come to the table."""
    for _ in range(100):
        events: list[dict[str, Any]] = root.get("/audit", params=query).json()["events"]
        if any(each["id"] == expected for each in events):
            return events
        time.sleep(0.05)
    raise AssertionError(expected)


def test_a15_every_change_is_recorded_with_who_where_what_and_how_it_ended(root: httpx.Client, data: Path):
    before = len(lines(data))

    done = root.put("/projects/P/topics/garden", headers={"x-request-id": "r-1"})
    again = root.put("/projects/P/topics/garden")
    bad = root.post("/projects/P/topics/garden:modifyAcl", content=b"{")
    root.get("/projects/P/topics/garden")

    made, taken, unread = lines(data)[before:]
    assert (done.status_code, again.status_code, bad.status_code) == (200, 409, 400)
    assert {name: made[name] for name in ("service", "action", "resource", "actor", "address", "code", "result")} == {
        "service": "ams",
        "action": "topics:create",
        "resource": "/projects/P/topics/garden",
        "actor": "admin",
        "address": "192.0.2.1",
        "code": 200,
        "result": "done",
    }
    assert made["request"] == "r-1"
    assert (taken["code"], taken["result"], taken["reason"]) == (409, "refused", "Topic already exists")
    assert (unread["code"], unread["result"]) == (400, "refused")


def test_a_change_that_roles_do_not_allow_is_recorded_with_its_user(service: Served, root: httpx.Client, data: Path):
    user = {"projects": [{"project": "P", "roles": ["publisher"]}]}
    token = root.post("/users/bert", json=user).json()["token"]
    before = len(lines(data))

    with client_of(service, token, "192.0.2.2") as bert:
        assert bert.put("/projects/P/topics/mine").status_code == 403
        assert bert.get("/users").status_code == 401
        assert bert.delete("/users/admin").status_code == 401

    assert [(each["actor"], each["action"], each["code"]) for each in lines(data)[before:]] == [
        ("bert", "topics:create", 403),
        ("bert", "users:delete", 401),
    ]


def test_the_service_token_is_nobody_and_is_named_so(service: Served, root: httpx.Client, data: Path):
    with client_of(service, SERVICE_TOKEN) as token:
        token.put("/projects/P/topics/other")
        token.get("/users/profile")

    assert lines(data)[-1]["actor"] == "(service token)"


def test_publishing_pulling_and_acknowledging_are_not_recorded(root: httpx.Client, data: Path):
    root.put("/projects/P/topics/busy")
    root.put("/projects/P/subscriptions/busy", json={"topic": "projects/P/topics/busy"})
    before = len(lines(data))

    root.post("/projects/P/topics/busy:publish", json={"messages": [{"data": "aGk="}]})
    root.post("/projects/P/subscriptions/busy:pull", json={"maxMessages": "1"})
    root.post("/projects/P/subscriptions/busy:acknowledge", json={"ackIds": ["projects/P/subscriptions/busy:0"]})
    assert len(lines(data)) == before

    root.post("/projects/P/subscriptions/busy:modifyOffset", json={"offset": 0})
    assert lines(data)[-1]["action"] == "subscriptions:modifyOffset"


def test_neither_nacks_nor_extensions_of_leases_are_recorded(root: httpx.Client, data: Path):
    root.put("/projects/P/topics/work")
    worker = {"topic": "projects/P/topics/work", "type": "parallel"}
    root.put("/projects/P/subscriptions/worker", json=worker).raise_for_status()
    root.post("/projects/P/topics/work:publish", json={"messages": [{"data": "aGk="}]})
    before = len(lines(data))

    [pulled] = root.post("/projects/P/subscriptions/worker:pull", json={}).json()["receivedMessages"]
    longer = {"ackIds": [pulled["ackId"]], "ackDeadlineSeconds": 60}
    with capture_logs() as said:
        root.post("/projects/P/subscriptions/worker:modifyAckDeadline", json=longer).raise_for_status()
        root.post("/projects/P/subscriptions/worker:nack", json={"ackIds": [pulled["ackId"]]}).raise_for_status()
        late = root.post("/projects/P/subscriptions/worker:modifyAckDeadline", json=longer)

    assert late.status_code == 408
    assert lines(data)[before:] == []
    assert not [each for each in said if each["event"] == "changed"]


@pytest.mark.parametrize("body", [{"ackDeadlineSeconds": 60}, {"ackDeadlineSeconds": 601}, {}])
def test_a_change_of_a_deadline_of_a_subscription_is_recorded(root: httpx.Client, data: Path, body: dict[str, int]):
    root.put("/projects/P/topics/slow")
    root.put("/projects/P/subscriptions/slow", json={"topic": "projects/P/topics/slow"})
    before = len(lines(data))

    code = root.post("/projects/P/subscriptions/slow:modifyAckDeadline", json=body).status_code

    assert [(each["action"], each["code"]) for each in lines(data)[before:]] == [
        ("subscriptions:modifyAckDeadline", code)
    ]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/users"), ("POST", "/projects/P/topics/t:publish"), ("GET", "/users/profile")]
)
def test_a20_a_login_that_fails_is_recorded_on_every_route(
    service: Served, root: httpx.Client, data: Path, method: str, path: str
):
    failed = service.run.service.failed_logins.failures
    with client_of(service, SECRET, "192.0.2.3") as stranger:
        assert stranger.request(method, path).status_code == 401

    last = lines(data)[-1]
    assert (last["action"], last["address"], last["code"], last["actor"]) == ("login", "192.0.2.3", 401, "")
    assert service.run.service.failed_logins.failures == failed + 1
    figures = httpx.get(service.run.operations_url + "/metrics", trust_env=False).text
    assert f"ams_failed_logins_total {failed + 1}.0" in figures


def test_no_token_and_too_few_roles_are_no_failed_logins(service: Served, root: httpx.Client, data: Path):
    token = root.post("/users/nobody", json={}).json()["token"]
    failed, before = service.run.service.failed_logins.failures, len(lines(data))

    with client_of(service, token) as user:
        assert user.get("/users").status_code == 401
        assert user.get("/users", headers={"x-api-key": ""}).status_code == 401

    assert (service.run.service.failed_logins.failures, len(lines(data))) == (failed, before)


def test_a20_beyond_its_limit_an_address_is_told_so_and_a_good_token_is_not(
    service: Served, root: httpx.Client, data: Path
):
    address, before = "192.0.2.66", len(lines(data))
    with client_of(service, SECRET, address) as stranger:
        answers = [stranger.get("/users") for _ in range(30)]
    with client_of(service, service.token, address) as neighbour:
        assert neighbour.get("/users").status_code == 200
    with client_of(service, SECRET, "192.0.2.67") as other:
        assert other.get("/users").status_code == 401

    assert [each.status_code for each in answers] == [401] * 20 + [429] * 10
    assert answers[-1].json()["error"] == {
        "code": 429,
        "message": "Too many failed logins",
        "status": "RESOURCE_EXHAUSTED",
    }
    assert answers[-1].headers["retry-after"] == "1"
    assert len([each for each in lines(data)[before:] if each["address"] == address]) == EACH


def test_the_list_is_for_service_admins_only_and_has_pages(service: Served, root: httpx.Client, data: Path):
    for number in range(3):
        root.put(f"/projects/P/topics/page-{number}")
    newest = lines(data)[-1]
    asked = {"action": "topics:create", "actor": "admin"}
    events = listed(root, newest["id"], **asked)
    user = root.post("/users/viewer", json={"service_roles": ["admin_viewer"]}).json()

    with client_of(service, user["token"]) as viewer:
        assert viewer.get("/audit").status_code == 403
    assert events[0] == newest
    first = root.get("/audit", params={**asked, "pageSize": "2"}).json()
    second = root.get("/audit", params={**asked, "pageToken": first["nextPageToken"]}).json()
    assert first["events"] + second["events"] == events[: len(first["events"] + second["events"])]
    assert root.get("/audit?since=2999-01-01").json() == {"events": [], "nextPageToken": ""}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("since=yesterday", "Invalid since"),
        ("until=9999-99-99", "Invalid until"),
        ("result=good", "Invalid result"),
        ("pageToken=x", "Invalid page token"),
        ("pageSize=x", "Invalid page size"),
    ],
)
def test_a_bad_filter_is_refused(root: httpx.Client, query: str, message: str):
    refused = root.get(f"/audit?{query}")

    assert (refused.status_code, refused.json()["error"]["message"]) == (400, message)


def test_a15_no_token_no_key_and_no_payload_is_in_the_audit_log_or_the_log(
    service: Served, root: httpx.Client, data: Path, capfd: pytest.CaptureFixture[str]
):
    made = root.post("/users/carol", json={"projects": [{"project": "P", "roles": ["consumer"]}]}).json()
    tokens = [service.token, SERVICE_TOKEN, made["token"]]
    payload = base64.b64encode(SECRET.encode()).decode()
    root.get(f"/users:byToken/{made['token']}")
    root.delete(f"/users/{made['token']}")
    root.put(f"/projects/P/topics/{made['token']}")
    root.put("/projects/P/topics/quiet")
    root.post("/projects/P/topics/quiet:publish", json={"messages": [{"data": payload, "attributes": {"a": SECRET}}]})
    push = {"pushEndpoint": f"https://198.51.100.1/{SECRET}", "authorizationHeader": {"value": SECRET}}
    root.put("/projects/P/subscriptions/quiet", json={"topic": "projects/P/topics/quiet", "pushConfig": push})
    root.put(f"/projects/P/topics/bad?key={made['token']}", content=SECRET)
    root.post("/projects/P/topics/quiet:modifyAcl", json={"authorized_users": [SECRET, made["token"]]})
    root.put("/projects/P/topics/quiet", headers={"x-request-id": made["token"]})
    tokens.append(root.post("/users/carol:refreshToken").json()["token"])
    with client_of(service, SECRET) as stranger:
        stranger.get("/users")
        stranger.get(f"/users/profile?key={SECRET}")
        stranger.get(f"/users:byToken/{SECRET}-{SECRET}")
    with client_of(service, made["token"]) as dead:
        dead.delete(f"/users/profile?key={made['token']}")
    listed(root, lines(data)[-1]["id"])

    said = capfd.readouterr()
    kept = (data / "audit.jsonl").read_text() + said.out + said.err
    kept += json.dumps(root.get("/audit?pageSize=1000").json())
    if not shape.is_cluster():
        with contextlib.closing(sqlite3.connect(data / "registry.db")) as database:
            kept += str(database.execute("SELECT * FROM audit").fetchall())
    assert [each for each in (*tokens, payload) if each in kept] == []
    assert [line for line in kept.splitlines() if SECRET in line and "modifyAcl" not in line] == []


def test_a_backup_holds_both_halves(root: httpx.Client, data: Path, tmp_path: Path):
    if shape.is_cluster():
        pytest.skip("a data folder without messages is not backed up")
    root.put("/projects/P/topics/kept")
    newest = lines(data)[-1]
    listed(root, newest["id"])

    take(str(data), str(tmp_path / "backup"))

    assert newest in lines(tmp_path / "backup")
    with contextlib.closing(sqlite3.connect(tmp_path / "backup" / "registry.db")) as database:
        assert database.execute("SELECT count(*) FROM audit WHERE id = ?", [newest["id"]]).fetchone() == (1,)


async def test_a_change_that_a_stop_cuts_short_is_recorded_as_it_may_have_been_made() -> None:
    events: list[AuditEvent] = []

    class Kept:
        async def record(self, event: AuditEvent) -> None:
            events.append(event)

    class Open(Gate):
        def __init__(self) -> None:
            super().__init__(None, "both")  # type: ignore[arg-type]  # lets everybody in

        async def admit(self, *_: object) -> Caller:
            return Caller(None, UserName("anna"), frozenset(), full_view=False, project=None)

    async def never(_: object) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    clock, gate, begun = ManualClock(), Open(), asyncio.Event()
    auditor = Auditor(Kept(), FailedLogins("ams", Kept(), Attempts(0, clock), clock), gate, clock)
    fast = SimpleNamespace(answer=lambda *_: None)
    app = App(gate, Bodies(1, 1, 1), UnreadAnswers(1), fast, [Row("PUT", "/x", "topics:create", never)], auditor)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "PUT", "path": "/v1/x", "query_string": b"", "headers": [], "client": None}
    task = asyncio.create_task(app(scope, begun.wait, send))  # type: ignore[arg-type]
    await asyncio.wait_for(begun.wait(), 10)
    task.cancel()
    await task

    assert sent[0]["status"] == 503
    assert [(each.actor, each.code, each.result) for each in events] == [("anna", 503, "failed")]


ANNA = Caller(UserId("1"), UserName("anna"), frozenset(), False, None)
SERVICE = Caller(None, None, frozenset(), True, None)
TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "prefix",
    [
        "/v1/users:byToken/",
        "/v1/USERS:BYTOKEN/",
        "//v1//users:byToken/",
        "/users/byToken/",
        "/v1/users:byUUID/",
        "/v1/users:",
        "/v1/users:byToken:",
        "/users:",
        "/v1/./users:byTokens/",
    ],
)
@given(token=st.text(min_size=1))
def test_what_stands_behind_users_is_never_shown(prefix: str, token: str) -> None:
    shown = shown_path(prefix + "!" + token)

    assert shown.endswith("***")
    assert prefix.startswith(shown.removesuffix("***"))


@pytest.mark.parametrize("path", ["/v1/users/{}", "/v1/projects/{}/topics/t", "/{}", "/v1/users/{}:refreshToken"])
@pytest.mark.parametrize("token", [TOKEN, TOKEN.upper(), TOKEN[:40], TOKEN * 3])
def test_what_looks_like_a_token_is_not_shown_either(path: str, token: str) -> None:
    assert shown_path(path.format(token)) == path.format("***")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/P/topics/t:publish",
        "/v1/users:byUUID/0f8fad5b-d9cb-469f-a165-70867728950e",
        "/v1/projects/P/topics/users:publish",
        "/v1/users/users:refreshToken",
        "",
    ],
)
def test_any_other_path_is_shown_as_it_is(path: str) -> None:
    assert shown_path(path) == path


async def changes(method: str, action: str | None, caller: Caller | None) -> list[Any]:
    with capture_logs() as said:
        await log_change(method, action, caller, "/v1/projects/P/topics/t")
    return list(said)


async def test_a_change_says_who_did_what() -> None:
    line = {"event": "changed", "log_level": "info", "action": "topics:create", "resource": "/projects/P/topics/t"}

    assert await changes("PUT", "topics:create", ANNA) == [line | {"by": "anna"}]
    assert await changes("PUT", "topics:create", SERVICE) == [line | {"by": "(service token)"}]


@pytest.mark.parametrize(
    ("method", "action", "caller"),
    [
        ("GET", "topics:show", ANNA),
        ("GET", None, None),
        ("POST", "schemas:validateMessage", ANNA),
        ("POST", "schemas:dryRun", ANNA),
    ],
)
async def test_what_only_reads_is_no_change(method: str, action: str | None, caller: Caller | None) -> None:
    assert await changes(method, action, caller) == []


async def test_a_request_is_said_also_when_it_fails() -> None:
    async def app(*_: object) -> None:
        raise RuntimeError

    async def nothing() -> Any:
        return {}

    async def send(_: Any) -> None:
        return None

    with capture_logs() as said, pytest.raises(RuntimeError):
        await Traced(app)({"type": "http", "method": "GET", "path": "/v1/status"}, nothing, send)

    assert [(line["path"], line["status"]) for line in said] == [("/v1/status", None)]


def test_lines_outside_of_requests_name_none() -> None:
    assert add_request(None, "info", {"event": "x"}) == {"event": "x"}
    before = REQUEST.set(b"probe-7")
    try:
        assert add_request(None, "info", {"event": "x"}) == {"event": "x", "request": "probe-7"}
    finally:
        REQUEST.reset(before)
