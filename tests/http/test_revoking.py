"""Requests that wait: a token that dies meanwhile opens nothing any more, and a project has so many waiting pulls."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ams.http.limits import LATE_SECONDS
from tests.support.served import Served, served
from tests.support.waiting import PATIENCE_SECONDS, wait_until

TOPIC, SUBSCRIPTION = "/projects/P/topics/T", "/projects/P/subscriptions/S"
MESSAGES = {"messages": [{"data": "aGk="}]}
BEYOND = "Quota waitingPulls of the project is exceeded: its limit is 1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("revoking") / "ams-data", pull_wait=PATIENCE_SECONDS) as service:
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", TOPIC, {})
        service.ask("PUT", SUBSCRIPTION, {"topic": TOPIC[1:]})
        yield service


def user(service: Served, name: str, *roles: str) -> str:
    """Make a member of the project, or with service_admin a user; return its token."""
    body: dict[str, Any] = {"projects": [{"project": "P", "roles": list(roles)}]}
    if "service_admin" in roles:
        body = {"service_roles": list(roles)}
    token: str = service.ask("POST", f"/users/{name}", body)["token"]
    return token


def list_only(service: Served, resource: str, *names: str) -> None:
    service.ask("POST", f"{resource}:modifyAcl", {"authorized_users": list(names)})


def late(service: Served, method: str, path: str, body: object, token: str, meanwhile: Callable[[], object]) -> int:
    """Send a head and a byte of the body, then, after something happened, the rest; return the status."""
    said = json.dumps(body).encode()
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: {len(said)}\r\n\r\n"
    with service.connect(PATIENCE_SECONDS) as client:
        client.sendall(head.encode() + said[:1])
        time.sleep(LATE_SECONDS)
        meanwhile()
        time.sleep(LATE_SECONDS)
        client.sendall(said[1:])
        return int(client.recv(1000).split()[1])


def waiting_pull(service: Served, token: str = "") -> Callable[[], httpx.Response]:
    """Begin a pull that waits; return what waits for its answer."""
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


def leave_nothing(service: Served) -> None:
    """Move the subscription behind all messages, so that the next pull waits."""
    end = service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"]
    service.ask("POST", f"{SUBSCRIPTION}:modifyOffset", {"offset": end})


def test_a_deleted_administrator_makes_no_other(service: Served) -> None:
    token = user(service, "adm", "service_admin")
    wanted = {"service_roles": ["service_admin"]}

    assert late(service, "POST", "/users/evil", wanted, token, lambda: service.ask("DELETE", "/users/adm")) == 401
    assert "evil" not in {each["name"] for each in service.ask("GET", "/users")["users"]}


def test_who_may_publish_no_more_stores_nothing(service: Served) -> None:
    token = user(service, "pub", "publisher")
    before = service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"]
    publish = f"{TOPIC}:publish", MESSAGES, token

    list_only(service, TOPIC, "pub")
    assert late(service, "POST", *publish, lambda: list_only(service, TOPIC)) == 403
    list_only(service, TOPIC, "pub")
    assert late(service, "POST", *publish, lambda: service.ask("POST", "/users/pub:refreshToken")) == 401
    assert service.ask("GET", f"{SUBSCRIPTION}:offsets")["max"] == before


def test_who_is_still_let_in_may_be_slow(service: Served) -> None:
    token = user(service, "slow", "service_admin")

    assert late(service, "POST", "/projects/late", {}, token, lambda: None) == 200


@pytest.mark.parametrize("how", ["refreshed", "removed", "delisted"])
def test_a_waiting_pull_hands_nothing_to_whom_it_is_not_for_any_more(service: Served, how: str) -> None:
    name = f"con-{how}"
    token = user(service, name, "consumer")
    list_only(service, SUBSCRIPTION, name)
    answer = waiting_pull(service, token)
    if how == "refreshed":
        service.ask("POST", f"/users/{name}:refreshToken")
    elif how == "removed":
        service.ask("POST", f"/projects/P/members/{name}:remove")
    else:
        list_only(service, SUBSCRIPTION)
    service.ask("POST", f"{TOPIC}:publish", {"messages": [{"data": "c2VjcmV0"}]})

    assert answer().status_code == (403 if how == "delisted" else 401)
    leave_nothing(service)


def test_a_second_waiting_pull_is_refused_until_the_first_is_over(service: Served) -> None:
    def limit(pulls: int | None) -> None:
        service.ask("POST", "/projects/P:modifyQuotas", {"quotas": {"waitingPulls": pulls}})

    def waiting() -> int:
        shown = service.ask("GET", "/projects/P:quotas")["quotas"]
        return int(next(each["used"] for each in shown if each["name"] == "waitingPulls"))

    limit(1)
    answer = waiting_pull(service)
    assert waiting() == 1

    refused = service.call("POST", f"{SUBSCRIPTION}:pull", {"returnImmediately": "false"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (429, BEYOND)
    at_once = service.ask("POST", f"{SUBSCRIPTION}:pull", {"returnImmediately": "true"})
    assert at_once == {"receivedMessages": []}
    service.ask("POST", f"{TOPIC}:publish", MESSAGES)
    assert len(answer().json()["receivedMessages"]) == 1
    wait_until(lambda: waiting() == 0)
    limit(None)
    leave_nothing(service)
