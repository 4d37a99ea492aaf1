"""Rates over HTTP: on every route that lets users in, the hot ones too, and in the envelope."""

import time
from collections.abc import Iterator

import httpx
import pytest

from ams.http.limits import LATE_SECONDS
from tests.support.served import SERVICE_TOKEN, Served, served

OF_USER = {"error": {"code": 429, "message": "Too many requests of this user", "status": "RESOURCE_EXHAUSTED"}}
OF_PROJECT = {"error": {"code": 429, "message": "Too many requests to this project", "status": "RESOURCE_EXHAUSTED"}}
PUBLISH = {"messages": [{"data": "aGk="}]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("service") / "ams-data"
    with served(data, user_requests_per_second=3, project_requests_per_second=5) as service:
        yield service


@pytest.fixture
def admin(service: Served) -> Iterator[httpx.Client]:
    """Give the administrator's client, with full buckets and project P."""
    service.clock.advance(1000)
    base, headers = service.run.base_url + "/v1", {"x-api-key": service.token}
    with httpx.Client(base_url=base, headers=headers, trust_env=False) as client:
        client.post("/projects/P", json={}, headers={"x-api-key": SERVICE_TOKEN})
        client.put("/projects/P/topics/t", headers={"x-api-key": SERVICE_TOKEN})
        service.clock.advance(3000)  # until nobody else asks at the same time
        yield client


def answers(client: httpx.Client, method: str, path: str, count: int, body: object = None) -> list[int]:
    return [client.request(method, path, json=body).status_code for _ in range(count)]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/projects/P/topics/t:publish", PUBLISH),
        ("GET", "/projects/P/topics", None),
        ("GET", "/users", None),
        ("POST", "/projects/P/topics/none:publish", PUBLISH),
        ("GET", "/users/profile", None),
        ("GET", "/users/usageReport?start_date=x", None),
    ],
)
def test_a_user_beyond_its_rate_is_told_when_to_come_back(
    service: Served, admin: httpx.Client, method: str, path: str, body: object
) -> None:
    assert 429 not in answers(admin, method, path, 3, body)

    refused = admin.request(method, path, json=body)

    assert (refused.status_code, refused.json()) == (429, OF_USER)
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["content-type"] == "application/json; charset=utf-8"
    assert "x-request-id" in refused.headers
    service.clock.advance(1000)
    assert admin.request(method, path, json=body).status_code != 429


@pytest.mark.parametrize("verb", ["topics/t:publish", "subscriptions/s:pull", "subscriptions/s:acknowledge"])
def test_a_request_whose_body_comes_late_counts_once(admin: httpx.Client, verb: str) -> None:
    """Its sender is looked at again, but it is the same request."""
    admin.put(
        "/projects/P/subscriptions/s", json={"topic": "projects/P/topics/t"}, headers={"x-api-key": SERVICE_TOKEN}
    )

    def late() -> Iterator[bytes]:
        yield b"{"
        time.sleep(2 * LATE_SECONDS)
        yield b"}"

    assert admin.post(f"/projects/P/{verb}", content=late()).status_code != 429
    assert answers(admin, "GET", "/users", 3) == [200, 200, 429]


def test_what_is_refused_is_not_done(service: Served, admin: httpx.Client) -> None:
    sent = [admin.post("/projects/P/topics/t:publish", json=PUBLISH) for _ in range(4)]
    service.clock.advance(1000)

    after = admin.post("/projects/P/topics/t:publish", json=PUBLISH)

    last = int(sent[2].json()["messageIds"][0])
    assert after.json() == {"messageIds": [str(last + 1)]}


def test_a_project_has_a_rate_that_all_who_ask_it_share(admin: httpx.Client) -> None:
    with httpx.Client(base_url=admin.base_url, headers={"x-api-key": SERVICE_TOKEN}, trust_env=False) as everybody:
        assert answers(admin, "GET", "/projects/P", 2) == [200, 200]
        assert answers(everybody, "GET", "/projects/P/topics", 3) == [200, 200, 429]
        assert everybody.get("/projects/P").json() == OF_PROJECT
        assert answers(everybody, "GET", "/users", 10) == [200] * 10


def test_who_is_not_let_in_and_open_routes_are_not_counted(admin: httpx.Client) -> None:
    stranger = {"x-api-key": "0" * 64}
    for _ in range(10):
        assert admin.get("/projects/P", headers=stranger).status_code == 401
        assert admin.get("/status").status_code == 200
        assert admin.get("/users/profile", headers=stranger).status_code == 401
        assert admin.get("/projects/none").status_code == 404

    assert answers(admin, "GET", "/projects/P", 4) == [200, 200, 200, 429]
