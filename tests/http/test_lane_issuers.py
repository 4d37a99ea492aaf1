"""Tokens of issuers on the lane: they are good as long as they are good over ASGI."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ams.core.clock import ManualClock
from ams.http.lane import LaneProtocol
from demo.issuer import ExampleIssuer
from tests.support.served import Served, served

BODY = b'{"messages":[{"data":"aGk="}]}'


@pytest.fixture
def issuer() -> Iterator[ExampleIssuer]:
    clock.clear()
    with ExampleIssuer(now=lambda: clock[0].wall() / 1000 if clock else 0.0) as started:
        yield started


clock: list[ManualClock] = []
"""That of the service, once it is there."""


@pytest.fixture
def service(tmp_path: Path, issuer: ExampleIssuer) -> Iterator[Served]:
    clock.append(ManualClock())
    with served(tmp_path / "ams-data", issuers_allow="127.0.0.0/8") as running:
        clock[:] = [running.clock]
        with client(running) as http:
            headers = {"x-api-key": running.token}
            for method, path, said in (
                ("POST", "/projects/P", {}),
                ("PUT", "/projects/P/topics/T", {}),
                ("POST", "/issuers/egi", {"url": issuer.url, "audiences": ["ams"]}),
                ("POST", "/users/alice", {"projects": [{"project": "P", "roles": ["publisher"]}]}),
                ("POST", "/users/alice/bindings/work", {"issuer": issuer.url, "subject": "alice"}),
                ("POST", "/projects/P/topics/T:modifyAcl", {"authorized_users": ["alice"]}),
            ):
                http.request(method, path, json=said, headers=headers).raise_for_status()
        yield running


@pytest.fixture
def on_lane(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    taken: list[bytes] = []
    start = LaneProtocol._start

    def noted(protocol: LaneProtocol, *said: object) -> object:
        taken.append(protocol.url)
        return start(protocol, *said)  # type: ignore[arg-type]

    monkeypatch.setattr(LaneProtocol, "_start", noted)
    return taken


def client(service: Served) -> httpx.Client:
    return httpx.Client(base_url=service.run.base_url + "/v1", trust_env=False, timeout=10)


def publish(http: httpx.Client, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return http.post("/projects/P/topics/T:publish", content=BODY, headers=headers).status_code


def test_a_token_that_expires_is_refused(service: Served, issuer: ExampleIssuer, on_lane: list[bytes]) -> None:
    token = issuer.token(lifetime=600)
    with client(service) as http:
        assert [publish(http, token) for _ in range(3)] == [200] * 3
        assert len(on_lane) == 2
        service.clock.advance(1000 * 1000)

        assert publish(http, token) == 401
        assert len(on_lane) == 2


@pytest.mark.parametrize("path", ["/issuers/egi", "/users/alice/bindings/work", "/users/alice"])
def test_a_token_whose_issuer_binding_or_user_is_gone_is_refused(
    service: Served, issuer: ExampleIssuer, on_lane: list[bytes], path: str
) -> None:
    token = issuer.token(lifetime=10**6)
    with client(service) as http:
        assert [publish(http, token) for _ in range(3)] == [200] * 3
        http.delete(path, headers={"x-api-key": service.token}).raise_for_status()

        assert publish(http, token) in (401, 403)
        assert len(on_lane) == 2
