"""A token that dies while a request is still coming, or waits, opens nothing any more."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ams.http.limits import LATE_SECONDS
from tests.support.served import SERVICE_TOKEN, Served, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("revoking") / "ams-data", pull_wait=5) as service:
        ask(service, "POST", "/projects/P", {})
        ask(service, "PUT", "/projects/P/topics/T", {})
        ask(service, "PUT", "/projects/P/subscriptions/S", {"topic": "projects/P/topics/T"})
        yield service


def ask(service: Served, method: str, path: str, body: object = None, token: str = SERVICE_TOKEN) -> Any:
    url, content = service.run.base_url + "/v1" + path, json.dumps(body)
    answer = httpx.request(method, url, content=content, headers={"x-api-key": token}, trust_env=False, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json() if answer.content else None


def user(service: Served, name: str, *roles: str) -> str:
    """Make a member of the project, or with service_admin a user; return its token."""
    body: dict[str, Any] = {"projects": [{"project": "P", "roles": list(roles)}]}
    if "service_admin" in roles:
        body = {"service_roles": list(roles)}
    token: str = ask(service, "POST", f"/users/{name}", body)["token"]
    return token


def late(service: Served, method: str, path: str, body: object, token: str, meanwhile: Callable[[], object]) -> int:
    """Send a head and a byte of the body, then, after something happened, the rest; return the status."""
    said = json.dumps(body).encode()
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\nContent-Length: {len(said)}\r\n\r\n"
    host, _, port = service.run.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(head.encode() + said[:1])
        time.sleep(LATE_SECONDS)
        meanwhile()
        time.sleep(LATE_SECONDS)
        client.sendall(said[1:])
        return int(client.recv(1000).split()[1])


def test_a_deleted_administrator_makes_no_other(service: Served) -> None:
    token = user(service, "adm", "service_admin")
    wanted = {"service_roles": ["service_admin"]}

    assert late(service, "POST", "/users/evil", wanted, token, lambda: ask(service, "DELETE", "/users/adm")) == 401
    assert "evil" not in {each["name"] for each in ask(service, "GET", "/users")["users"]}


def test_who_may_publish_no_more_stores_nothing(service: Served) -> None:
    token = user(service, "pub", "publisher")
    before = ask(service, "GET", "/projects/P/subscriptions/S:offsets")["max"]
    publish = "/projects/P/topics/T:publish", {"messages": [{"data": "aGk="}]}

    def list_only(*names: str) -> None:
        ask(service, "POST", "/projects/P/topics/T:modifyAcl", {"authorized_users": list(names)})

    list_only("pub")
    assert late(service, "POST", *publish, token, list_only) == 403
    list_only("pub")
    assert late(service, "POST", *publish, token, lambda: ask(service, "POST", "/users/pub:refreshToken")) == 401
    assert ask(service, "GET", "/projects/P/subscriptions/S:offsets")["max"] == before


def test_who_is_still_let_in_may_be_slow(service: Served) -> None:
    token = user(service, "slow", "service_admin")

    assert late(service, "POST", "/projects/late", {}, token, lambda: None) == 200


@pytest.mark.parametrize("how", ["refreshed", "removed", "delisted"])
def test_a_waiting_pull_hands_nothing_to_whom_it_is_not_for_any_more(service: Served, how: str) -> None:
    name = f"con-{how}"
    token = user(service, name, "consumer")
    ask(service, "POST", "/projects/P/subscriptions/S:modifyAcl", {"authorized_users": [name]})
    heard: list[httpx.Response] = []

    def pull() -> None:
        url = service.run.base_url + "/v1/projects/P/subscriptions/S:pull"
        heard.append(httpx.post(url, headers={"x-api-key": token}, content="{}", trust_env=False, timeout=10))

    waiting = threading.Thread(target=pull)
    waiting.start()
    while not service.run.service.deliverer.waiting:
        time.sleep(0.01)
    if how == "refreshed":
        ask(service, "POST", f"/users/{name}:refreshToken")
    elif how == "removed":
        ask(service, "POST", f"/projects/P/members/{name}:remove")
    else:
        ask(service, "POST", "/projects/P/subscriptions/S:modifyAcl", {"authorized_users": []})
    ask(service, "POST", "/projects/P/topics/T:publish", {"messages": [{"data": "c2VjcmV0"}]})
    waiting.join()

    assert heard[0].status_code == (403 if how == "delisted" else 401)
    offsets = ask(service, "GET", "/projects/P/subscriptions/S:offsets")
    ask(service, "POST", "/projects/P/subscriptions/S:modifyOffset", {"offset": offsets["max"]})
