"""Rates, quotas of long-lived things, and tokens that expire while their request waits, over HTTP."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.http.limits import RECHECK_AFTER_SECONDS
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

USER_REFUSAL = {"error": {"code": 429, "message": "Too many requests of this user", "status": "RESOURCE_EXHAUSTED"}}
RATE_MESSAGE = "Quota requestsPerSecond of the project is exceeded: its limit is 5"
PROJECT_REFUSAL = {"error": {"code": 429, "message": RATE_MESSAGE, "status": "RESOURCE_EXHAUSTED"}}
PUBLISH = {"messages": [{"data": "aGk="}]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("service") / "ams-data"
    with in_process_service(data, user_requests_per_second=3, project_requests_per_second=5) as service:
        service.ask("POST", "/projects/P", {}, SERVICE_TOKEN)
        service.ask("PUT", "/projects/P/topics/t", None, SERVICE_TOKEN)
        service.ask("PUT", "/projects/P/subscriptions/s", {"topic": "projects/P/topics/t"}, SERVICE_TOKEN)
        yield service


@pytest.fixture
def admin(service: InProcessService) -> Iterator[httpx.Client]:
    base, headers = service.run.base_url + "/v1", {"x-api-key": service.token}
    with httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        service.clock.advance(3000)  # until no other client has requests left in the window
        yield client


def answers(client: httpx.Client, method: str, path: str, count: int, body: object = None) -> list[int]:
    return [client.request(method, path, json=body).status_code for _ in range(count)]


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/projects/P/topics/t:publish", PUBLISH), ("GET", "/projects/P/topics", None), ("GET", "/users", None),
    ("GET", "/users/profile", None), ("GET", "/users/usageReport?start_date=x", None),
])  # fmt: skip
def test_rates_say_when_to_retry(service: InProcessService, admin: httpx.Client, method: str, path: str, body: object):
    answered = [admin.request(method, path, json=body) for _ in range(3)]
    assert 429 not in [each.status_code for each in answered]

    refused = admin.request(method, path, json=body)

    assert (refused.status_code, refused.json()) == (429, USER_REFUSAL)
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["content-type"] == "application/json; charset=utf-8"
    assert "x-request-id" in refused.headers
    service.clock.advance(1000)
    after = admin.request(method, path, json=body)
    assert after.status_code != 429
    if path.endswith("t:publish"):  # what was refused was not done
        assert after.json() == {"messageIds": [str(int(answered[2].json()["messageIds"][0]) + 1)]}


@pytest.mark.parametrize("verb", ["topics/t:publish", "subscriptions/s:pull", "subscriptions/s:acknowledge"])
def test_a_request_whose_body_comes_late_counts_once(admin: httpx.Client, verb: str) -> None:
    """Its sender is checked again, but it is the same request."""

    def late_body() -> Iterator[bytes]:
        yield b"{"
        time.sleep(2 * RECHECK_AFTER_SECONDS)
        yield b"}"

    assert admin.post(f"/projects/P/{verb}", content=late_body()).status_code != 429
    assert answers(admin, "GET", "/users", 3) == [200, 200, 429]


def test_a_project_has_a_rate_that_all_who_ask_it_share(admin: httpx.Client) -> None:
    with httpx.Client(
        base_url=admin.base_url, headers={"x-api-key": SERVICE_TOKEN}, trust_env=False, timeout=PATIENCE_SECONDS
    ) as everybody:
        assert answers(admin, "GET", "/projects/P", 2) == [200, 200]
        assert answers(everybody, "GET", "/projects/P/topics", 3) == [200, 200, 429]
        assert everybody.get("/projects/P").json() == PROJECT_REFUSAL
        assert answers(everybody, "GET", "/users", 10) == [200] * 10


def test_who_is_not_let_in_and_open_routes_are_not_counted(admin: httpx.Client) -> None:
    stranger = {"x-api-key": "0" * 64}
    for _ in range(10):
        assert admin.get("/projects/P", headers=stranger).status_code == 401
        assert admin.get("/status").status_code == 200
        assert admin.get("/users/profile", headers=stranger).status_code == 401
        assert admin.get("/projects/none").status_code == 404

    assert answers(admin, "GET", "/projects/P", 4) == [200, 200, 200, 429]


class Connections:
    def __init__(self, service: InProcessService, stack: contextlib.ExitStack) -> None:
        self.service, self._stack, self._opened = service, stack, 0

    def open(self) -> HTTPConnection:
        self._opened += 1  # each uses another client address, as an address has its own share
        source = f"127.0.0.{self._opened + 1}", 0
        connection = HTTPConnection(*self.service.address, timeout=30, source_address=source)
        return self._stack.enter_context(contextlib.closing(connection))

    def ask(self, connection: HTTPConnection, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"x-api-key": self.service.token}
        connection.request(method, f"/v1/projects/{path}", json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def publish(self, connection: HTTPConnection, project: str = "P") -> int:
        status, said = self.ask(connection, "POST", f"{project}/topics/t:publish", PUBLISH)
        assert status == 200 or said["error"]["message"].startswith("Quota connections of the project is exceeded: ")
        return status

    def count_used(self, connection: HTTPConnection, project: str = "P") -> int:
        shown = self.ask(connection, "GET", f"{project}:quotas")[1]["quotas"]
        return int(next(each["used"] for each in shown if each["name"] == "connections"))


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Connections]:
    with contextlib.ExitStack() as stack:
        made = Connections(stack.enter_context(in_process_service(tmp_path / "data", max_connections=7)), stack)
        for project in ("P", "Q"):
            made.service.ask("POST", f"/projects/{project}", {})
            made.service.ask("PUT", f"/projects/{project}/topics/t")
        yield made


def test_a_connection_counts_for_the_project_that_it_asked_last(connections: Connections) -> None:
    one, two, three = connections.open(), connections.open(), connections.open()
    assert connections.ask(one, "POST", "P:modifyQuotas", {"quotas": {"connections": 2}})[0] == 200
    assert [connections.publish(each) for each in (one, two, three)] == [200, 200, 429]
    assert connections.publish(two) == 200  # it has its place, also on the fast lane

    assert connections.publish(three, "Q") == 200
    assert (connections.count_used(one), connections.count_used(three, "Q")) == (2, 1)
    assert connections.publish(two, "Q") == 200
    assert connections.publish(three) == 200
    three.close()
    wait_until(lambda: connections.count_used(one) == 1)


def test_a_project_without_a_quota_has_a_fair_share_of_connections(connections: Connections) -> None:
    many = [connections.open() for _ in range(5)]
    # As many as its share leaves of seven.
    assert [connections.publish(each) for each in many] == [200, 200, 200, 200, 429]
    assert connections.publish(many[4], "Q") == 200


# Waiting requests

TOPIC, SUBSCRIPTION = "/projects/P/topics/T", "/projects/P/subscriptions/S"
WAITING_MESSAGE = "Quota waitingPulls of the project is exceeded: its limit is 1"


@pytest.fixture(scope="module")
def patient_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process_service(tmp_path_factory.mktemp("patient") / "ams-data", pull_wait=PATIENCE_SECONDS) as service:
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", TOPIC, {})
        service.ask("PUT", SUBSCRIPTION, {"topic": TOPIC[1:]})
        yield service


def user(service: InProcessService, name: str, *roles: str) -> str:
    body: dict[str, Any] = {"projects": [{"project": "P", "roles": list(roles)}]}
    if "service_admin" in roles:
        body = {"service_roles": list(roles)}
    token: str = service.ask("POST", f"/users/{name}", body)["token"]
    return token


def list_only(service: InProcessService, resource: str, *names: str) -> None:
    service.ask("POST", f"{resource}:modifyAcl", {"authorized_users": list(names)})


def send_late(
    service: InProcessService, method: str, path: str, body: object, token: str, meanwhile: Callable[[], object]
) -> int:
    """Send a head and a byte of the body, then, after an event, the rest; return the status."""
    said = json.dumps(body).encode()
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: {len(said)}\r\n\r\n"
    with service.connect(PATIENCE_SECONDS) as client:
        client.sendall(head.encode() + said[:1])
        time.sleep(RECHECK_AFTER_SECONDS)
        meanwhile()
        time.sleep(RECHECK_AFTER_SECONDS)
        client.sendall(said[1:])
        return int(client.recv(1000).split()[1])


def waiting_pull(service: InProcessService, token: str = "") -> Callable[[], httpx.Response]:
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(service.call("POST", f"{SUBSCRIPTION}:pull", {}, token)), daemon=True
    )
    waiting.start()
    wait_until(lambda: service.run.service.deliverer.waiting)

    def answer() -> httpx.Response:
        waiting.join()
        return answers[0]

    return answer


def leave_nothing(service: InProcessService) -> None:
    """Move the subscription behind all messages, so that the next pull waits."""
    end = service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"]
    service.ask("POST", f"{SUBSCRIPTION}:modifyOffset", {"offset": end})


def test_a_deleted_administrator_makes_no_other(patient_service: InProcessService) -> None:
    token = user(patient_service, "adm", "service_admin")
    wanted = {"service_roles": ["service_admin"]}
    assert (
        send_late(
            patient_service, "POST", "/users/evil", wanted, token, lambda: patient_service.ask("DELETE", "/users/adm")
        )
        == 401
    )
    assert "evil" not in {each["name"] for each in patient_service.ask("GET", "/users")["users"]}


def test_who_may_publish_no_more_stores_nothing(patient_service: InProcessService) -> None:
    token = user(patient_service, "pub", "publisher")
    before = patient_service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"]
    publish = f"{TOPIC}:publish", PUBLISH, token

    list_only(patient_service, TOPIC, "pub")
    assert send_late(patient_service, "POST", *publish, lambda: None) == 200  # who is still let in may be slow
    before += 1
    assert send_late(patient_service, "POST", *publish, lambda: list_only(patient_service, TOPIC)) == 403
    list_only(patient_service, TOPIC, "pub")
    assert (
        send_late(patient_service, "POST", *publish, lambda: patient_service.ask("POST", "/users/pub:refreshToken"))
        == 401
    )
    assert patient_service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"] == before
    leave_nothing(patient_service)


@pytest.mark.parametrize("how", ["refreshed", "removed", "delisted"])
def test_a_waiting_pull_hands_nothing_to_a_user_who_lost_access(patient_service: InProcessService, how: str) -> None:
    name = f"con-{how}"
    token = user(patient_service, name, "consumer")
    list_only(patient_service, SUBSCRIPTION, name)
    answer = waiting_pull(patient_service, token)
    if how == "refreshed":
        patient_service.ask("POST", f"/users/{name}:refreshToken")
    elif how == "removed":
        patient_service.ask("POST", f"/projects/P/members/{name}:remove")
    else:
        list_only(patient_service, SUBSCRIPTION)
    patient_service.ask("POST", f"{TOPIC}:publish", {"messages": [{"data": "c2VjcmV0"}]})

    assert answer().status_code == (403 if how == "delisted" else 401)
    leave_nothing(patient_service)


def test_a_second_waiting_pull_is_refused_until_the_first_is_over(patient_service: InProcessService) -> None:
    def limit(pulls: int | None) -> None:
        patient_service.ask("POST", "/projects/P:modifyQuotas", {"quotas": {"waitingPulls": pulls}})

    def waiting() -> int:
        shown = patient_service.ask("GET", "/projects/P:quotas")["quotas"]
        return int(next(each["used"] for each in shown if each["name"] == "waitingPulls"))

    limit(1)
    answer = waiting_pull(patient_service)
    assert waiting() == 1

    refused = patient_service.call("POST", f"{SUBSCRIPTION}:pull", {"returnImmediately": "false"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (429, WAITING_MESSAGE)
    at_once = patient_service.ask("POST", f"{SUBSCRIPTION}:pull", {"returnImmediately": "true"})
    assert at_once == {"receivedMessages": []}
    patient_service.ask("POST", f"{TOPIC}:publish", PUBLISH)
    assert len(answer().json()["receivedMessages"]) == 1
    wait_until(lambda: waiting() == 0)
    limit(None)
    leave_nothing(patient_service)
