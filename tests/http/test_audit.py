"""The audit log of a whole service, asked over HTTP and read from its file."""

import asyncio
import base64
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.app.backup.live_copy import take
from ams.core.telemetry import REQUEST, add_request
from ams.http.audit import shown_path
from ams.service.topics import Topics
from ams.storage.audit.trail import MAX_EVENTS_PER_ADDRESS
from tests.support import shape
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service
from tests.support.two_ways import one_way, request
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SECRET = "kirschkernweitspucken"  # any text in a client's body
TOKEN = "0123456789abcdef" * 4
Trail = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("service") / "ams-data"
    with in_process_service(
        data, trusted_proxies="127.0.0.1", failed_logins_per_minute=20, log_level="debug"
    ) as service:
        call(service, "POST", "/projects/P", {})
        yield service


def call(
    service: InProcessService, method: str, path: str, body: object = None, token: str = "", address: str = "192.0.2.1"
) -> httpx.Response:
    return service.call(method, path, body, token, headers={"x-forwarded-for": address})


def lines(data: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(data) / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
def trail(service: InProcessService) -> Trail:
    """Events recorded since the test began."""
    data = service.run.service.folder.path
    before = len(lines(data))
    return lambda: lines(data)[before:]


def list_events(service: InProcessService, expected: str, query: str = "") -> list[dict[str, Any]]:
    """Return events as the API lists them, after one with the id `expected` has arrived in the table."""

    def events() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = service.ask("GET", f"/audit{query}")["events"]
        return found if any(each["id"] == expected for each in found) else []

    return wait_until(events)


def test_a15_every_change_is_recorded_with_who_where_what_and_how_it_ended(service: InProcessService, trail: Trail):
    garden, of = "/projects/P/topics/garden", {"x-forwarded-for": "192.0.2.1", "x-request-id": "r-1"}
    assert service.call("PUT", garden, headers=of).status_code == 200
    assert call(service, "PUT", garden, token=SERVICE_TOKEN).status_code == 409
    assert call(service, "POST", f"{garden}:modifyAcl", "{").status_code == 400
    call(service, "GET", garden)

    made, taken, unread = trail()
    who = {"service": "ams", "actor": "admin", "address": "192.0.2.1", "request": "r-1"}
    what = {"action": "topics:create", "resource": garden, "code": 200, "result": "done"}
    assert {name: made[name] for name in who | what} == who | what
    assert (taken["code"], taken["result"], taken["reason"]) == (409, "refused", "Topic already exists")
    assert taken["actor"] == "(service token)"
    assert (unread["code"], unread["result"]) == (400, "refused")


def test_a_change_that_roles_do_not_allow_is_recorded_with_its_user(service: InProcessService, trail: Trail) -> None:
    user = {"projects": [{"project": "P", "roles": ["publisher"]}]}
    token = call(service, "POST", "/users/bert", user).json()["token"]
    asked = (("PUT", "/projects/P/topics/mine"), ("GET", "/users"), ("DELETE", "/users/admin"))

    assert [call(service, *each, token=token).status_code for each in asked] == [403, 401, 401]
    assert [(each["actor"], each["action"], each["code"]) for each in trail()[1:]] == [
        ("bert", "topics:create", 403), ("bert", "users:delete", 401),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["ordered", "parallel"])
def test_what_is_done_with_messages_is_not_recorded(service: InProcessService, trail: Trail, kind: str) -> None:
    topic, subscription = f"/projects/P/topics/busy-{kind}", f"/projects/P/subscriptions/busy-{kind}"
    service.ask("PUT", topic)
    service.ask("PUT", subscription, {"topic": topic[1:], "type": kind})

    with capture_logs() as said:
        service.ask("POST", f"{topic}:publish", {"messages": [{"data": "aGk="}]})
        [pulled] = service.ask("POST", f"{subscription}:pull", {"maxMessages": "1"})["receivedMessages"]
        ids = {"ackIds": [pulled["ackId"]]}
        if kind == "parallel":
            longer = ids | {"ackDeadlineSeconds": 60}
            service.ask("POST", f"{subscription}:modifyAckDeadline", longer)
            service.ask("POST", f"{subscription}:nack", ids)
            assert call(service, "POST", f"{subscription}:modifyAckDeadline", longer).status_code == 408
        call(service, "POST", f"{subscription}:acknowledge", ids)

    assert [each["action"] for each in trail()] == ["topics:create", "subscriptions:create"]
    assert not [each for each in said if each["event"] == "changed"]

    service.ask("POST", f"{subscription}:modifyOffset", {"offset": 0})
    deadlines = [{"ackDeadlineSeconds": 60}, {"ackDeadlineSeconds": 601}, {}]
    codes = [call(service, "POST", f"{subscription}:modifyAckDeadline", each).status_code for each in deadlines]
    assert [(each["action"], each["code"]) for each in trail()[2:]] == [
        ("subscriptions:modifyOffset", 200), *(("subscriptions:modifyAckDeadline", code) for code in codes),
    ]  # fmt: skip


def test_a20_a_failed_login_is_recorded_on_every_route_and_no_token_is_none(service: InProcessService, trail: Trail):
    routes = (("GET", "/users"), ("POST", "/projects/P/topics/t:publish"), ("GET", "/users/profile"))
    failed = service.run.service.failed_logins.attempts.failures
    for method, path in routes:
        assert call(service, method, path, token=SECRET, address="192.0.2.3").status_code == 401

    shown = [(each["action"], each["address"], each["code"], each["actor"]) for each in trail()]
    assert shown == [("login", "192.0.2.3", 401, "")] * 3
    figures = httpx.get(service.run.operations_url + "/metrics", trust_env=False, timeout=PATIENCE_SECONDS).text
    assert f"ams_failed_logins_total {failed + 3}.0" in figures

    token = service.ask("POST", "/users/nobody", {})["token"]
    assert call(service, "GET", "/users", token=token).status_code == 401
    assert service.call("GET", "/users", headers={"x-api-key": ""}).status_code == 401
    assert (service.run.service.failed_logins.attempts.failures, len(trail())) == (failed + 3, 4)


def test_a20_beyond_its_limit_an_address_is_told_so_and_a_good_token_is_not(service: InProcessService, trail: Trail):
    address = "192.0.2.66"
    answers = [call(service, "GET", "/users", token=SECRET, address=address) for _ in range(30)]
    assert call(service, "GET", "/users", address=address).status_code == 200
    assert call(service, "GET", "/users", token=SECRET, address="192.0.2.67").status_code == 401

    assert [each.status_code for each in answers] == [401] * 20 + [429] * 10
    error = {"code": 429, "message": "Too many failed logins", "status": "RESOURCE_EXHAUSTED"}
    assert (answers[-1].json()["error"], answers[-1].headers["retry-after"]) == (error, "1")
    assert len([each for each in trail() if each["address"] == address]) == MAX_EVENTS_PER_ADDRESS


def test_the_list_is_for_service_admins_only_and_has_pages(service: InProcessService, trail: Trail) -> None:
    for number in range(3):
        service.ask("PUT", f"/projects/P/topics/page-{number}")
    newest, asked = trail()[-1], "?action=topics:create&actor=admin"
    events = list_events(service, newest["id"], asked)
    viewer = service.ask("POST", "/users/viewer", {"service_roles": ["admin_viewer"]})["token"]

    assert call(service, "GET", "/audit", token=viewer).status_code == 403
    assert events[0] == newest
    first = service.ask("GET", f"/audit{asked}&pageSize=2")
    second = service.ask("GET", f"/audit{asked}&pageToken={first['nextPageToken']}")
    assert first["events"] + second["events"] == events[: len(first["events"] + second["events"])]
    assert service.ask("GET", "/audit?since=2999-01-01") == {"events": [], "nextPageToken": ""}


TIMES = "it is a date such as 2030-05-01, or a time such as 2030-05-01T12:00:00Z"
ACTIONS = "the audit log has changes and failed logins, and no action of those begins so"


@pytest.mark.parametrize(("query", "message"), [
    *((f"action={each}", "") for each in ("topics", "topics:", "topics:create", "login", "subscriptions:d")),
    ("since=yesterday", f"Invalid since: {TIMES}"),
    ("until=9999-99-99", f"Invalid until: {TIMES}"),
    ("result=good", "Invalid result: it is one of done, refused and failed"),
    *((f"action={each}", f"Invalid action: {ACTIONS}") for each in ("topics:publish", "topics:list", "Topics")),
    ("pageToken=x", "Invalid page token"),
])  # fmt: skip
def test_events_may_be_asked_for_by_what_can_be_there(service: InProcessService, query: str, message: str) -> None:
    answer = call(service, "GET", f"/audit?{query}")
    assert (answer.status_code, answer.json().get("error", {}).get("message", "")) == (400 if message else 200, message)


def test_a15_no_secret_or_payload_is_logged(service: InProcessService, trail: Trail, capfd: pytest.CaptureFixture[str]):
    def ask(*said: Any) -> Any:
        answer = call(service, *said)
        return answer.json() if answer.content else None

    made = ask("POST", "/users/carol", {"projects": [{"project": "P", "roles": ["consumer"]}]})["token"]
    payload = base64.b64encode(SECRET.encode()).decode()
    push = {"pushEndpoint": f"https://198.51.100.1/{SECRET}", "authorizationHeader": {"value": SECRET}}
    ask("GET", f"/users:byToken/{made}")
    ask("DELETE", f"/users/{made}")
    ask("PUT", f"/projects/P/topics/{made}")
    ask("PUT", "/projects/P/topics/quiet")
    ask("POST", "/projects/P/topics/quiet:publish", {"messages": [{"data": payload, "attributes": {"a": SECRET}}]})
    ask("PUT", "/projects/P/subscriptions/quiet", {"topic": "projects/P/topics/quiet", "pushConfig": push})
    ask("PUT", f"/projects/P/topics/bad?key={made}", SECRET)
    ask("POST", "/projects/P/topics/quiet:modifyAcl", {"authorized_users": [SECRET, made]})
    service.call("PUT", "/projects/P/topics/quiet", headers={"x-request-id": made})
    tokens = [service.token, SERVICE_TOKEN, made, ask("POST", "/users/carol:refreshToken")["token"]]
    for path in ("/users", f"/users/profile?key={SECRET}", f"/users:byToken/{SECRET}-{SECRET}"):
        ask("GET", path, None, SECRET)
    ask("DELETE", f"/users/profile?key={made}", None, made)
    list_events(service, trail()[-1]["id"])

    said, data = capfd.readouterr(), Path(service.run.service.folder.path)
    kept = (data / "audit.jsonl").read_text() + said.out + said.err + json.dumps(ask("GET", "/audit?pageSize=1000"))
    if not shape.is_cluster():
        with contextlib.closing(sqlite3.connect(data / "registry.db")) as database:
            kept += str(database.execute("SELECT * FROM audit").fetchall())
    assert [each for each in (*tokens, payload) if each in kept] == []
    assert [line for line in kept.splitlines() if SECRET in line and "modifyAcl" not in line] == []


@pytest.mark.embedded("a data folder without messages is not backed up")
def test_a_backup_holds_both_halves(service: InProcessService, trail: Trail, tmp_path: Path) -> None:
    service.ask("PUT", "/projects/P/topics/kept")
    [newest] = trail()
    list_events(service, newest["id"])

    take(service.run.service.folder.path, str(tmp_path / "backup"))

    assert newest in lines(tmp_path / "backup")
    with contextlib.closing(sqlite3.connect(tmp_path / "backup" / "registry.db")) as database:
        assert database.execute("SELECT count(*) FROM audit WHERE id = ?", [newest["id"]]).fetchone() == (1,)


async def test_a_change_cut_short_by_a_stop_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def wait_for_ever(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with one_way(tmp_path / "data", lane=False) as way:
        monkeypatch.setattr(Topics, "create", wait_for_ever)
        asking = asyncio.ensure_future(way.send_packets([request("PUT", "/projects/P/topics/cut")]))
        await begun.wait()
        for exchange in list(way.port.exchanges):
            exchange.cancel()

        assert (await asking)[0].startswith(b"HTTP/1.1 503")
        newest = (await way.audit_lines())[-1]
    assert (newest["resource"], newest["code"], newest["result"]) == ("/projects/P/topics/cut", 503, "failed")


USER_PATHS = [
    "/v1/users:byToken/", "/v1/USERS:BYTOKEN/", "//v1//users:byToken/", "/users/byToken/", "/v1/users:byUUID/",
    "/v1/users:", "/v1/users:byToken:", "/users:", "/v1/./users:byTokens/",
]  # fmt: skip


@given(prefix=st.sampled_from(USER_PATHS), token=st.text(min_size=1))
def test_what_stands_behind_users_is_never_shown(prefix: str, token: str) -> None:
    shown = shown_path(prefix + "!" + token)
    assert shown.endswith("***")
    assert prefix.startswith(shown.removesuffix("***"))


@pytest.mark.parametrize("path", ["/v1/users/{}", "/v1/projects/{}/topics/t", "/{}", "/v1/users/{}:refreshToken"])
@pytest.mark.parametrize("token", [TOKEN, TOKEN.upper(), TOKEN[:40], TOKEN * 3])
def test_what_looks_like_a_token_is_not_shown_either(path: str, token: str) -> None:
    assert shown_path(path.format(token)) == path.format("***")


def test_any_other_path_is_shown_as_it_is() -> None:
    for path in ("/v1/projects/P/topics/t:publish", "/v1/users:byUUID/0f8fad5b-d9cb-469f-a165-70867728950e",
                 "/v1/projects/P/topics/users:publish", "/v1/users/users:refreshToken", ""):  # fmt: skip
        assert shown_path(path) == path


def test_lines_outside_of_requests_name_none() -> None:
    assert add_request(None, "info", {"event": "x"}) == {"event": "x"}
    before = REQUEST.set(b"probe-7")
    try:
        assert add_request(None, "info", {"event": "x"}) == {"event": "x", "request": "probe-7"}
    finally:
        REQUEST.reset(before)
