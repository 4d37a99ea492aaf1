"""Requests from their arrival to their answer."""

import asyncio
from pathlib import Path

import httpx
import pytest

from ams.storage.database.database import sqlite_url
from tests.support.authn import ADDRESS, DN, HOST, MANAGEMENT_KEY, Service, binding_of, error, open_service


async def test_the_sequence_of_the_reference_works_and_again_after_a_new_name(service: Service) -> None:
    key = {"params": {"key": MANAGEMENT_KEY}}
    kind = {"content-type": "application/javascript"}

    async def post(path: str, body: bytes) -> dict[str, str]:
        answer = await service.client.post(f"/v1{path}", content=body, headers=kind, **key)
        assert answer.status_code == 201, answer.text
        made: dict[str, str] = answer.json()
        return made

    made = await post(
        "/service-types",
        b'{"name": "devel", "hosts": ["%s"], "auth_types": ["x509"], "auth_method": "headers", "type": "ams"}'
        % HOST.encode(),
    )
    await post("/service-types/devel/authm", b'{"port": 443, "host": "ams.example", "headers": {"x-api-key": "t"}}')
    await service.binding("cicd", made)
    path = f"/v1/service-types/devel/hosts/{HOST}:authx509"
    assert (await service.client.get(path)).json() == {"token": "a-user by {'x-api-key': 't'}"}
    await service.call("PUT", "/service-types/devel", {"name": "renamed"})
    assert error(await service.client.get(path)) == (404, "Service-type was not found")
    assert (await service.client.get(path.replace("devel", "renamed"))).status_code == 200
    assert (await service.client.delete("/v1/service-types/renamed", **key)).status_code == 204
    assert error(await service.call("GET", "/bindings/cicd")) == (404, "Binding was not found")


async def test_a19_what_is_no_route_is_told_in_json(quick: Service) -> None:
    for path in ("/", "/v1", "/v2/bindings", "/v1/bindings/", "/v1/bindings/a/b", "/v1/service-types/a/hosts/b:authx"):
        assert error(await quick.client.get(path)) == (404, "Page not found")
    wrong = await quick.client.patch("/v1/bindings/a")
    assert (error(wrong), wrong.headers["allow"]) == ((405, "Method not allowed"), "POST, GET, PUT, DELETE")
    assert (await quick.client.head("/v1/health")).status_code == 405


async def test_a19_health_tells_of_the_database(quick: Service) -> None:
    well = await quick.client.get("/v1/health")
    assert (well.status_code, well.json()) == (200, {"status": "ok", "database": "ok"})

    def broken(*_: object) -> None:
        raise TimeoutError

    quick.store.check = broken  # type: ignore[assignment, method-assign]
    ill = await quick.client.get("/v1/health")
    assert (ill.status_code, ill.json()) == (200, {"status": "warning", "database": "the database does not answer"})


async def test_a20_pages_of_any_origin_may_ask(quick: Service) -> None:
    origin = {"origin": "https://page.example"}
    asked = await quick.client.options("/v1/bindings", headers=origin | {"access-control-request-method": "PUT"})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "*"
    assert asked.headers["access-control-allow-methods"] == "OPTIONS, POST, GET, PUT, DELETE, HEAD"
    assert "Content-Type" in asked.headers["access-control-allow-headers"]
    assert (await quick.client.get("/v1/health", headers=origin)).headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in (await quick.client.get("/v1/health")).headers


async def test_a20_a_body_has_a_limit(quick: Service) -> None:
    assert error(await quick.call("POST", "/service-types", b" " * (2**20 + 1)))[0] == 413


async def test_a18_a_request_has_one_deadline(tmp_path: Path) -> None:
    async def never(*_: object) -> object:
        return await asyncio.Event().wait()

    async with open_service(sqlite_url(str(tmp_path / "db")), audit=never, deadline_seconds=0.05) as service:
        late = await service.call("GET", "/audit")
    assert error(late) == (504, "The request took too long; it may have been carried out")


async def test_segments_of_paths_are_decoded_after_they_are_cut(quick: Service) -> None:
    one = await quick.service_type()
    await quick.binding("a.b", one)
    assert (await quick.call("GET", "/bindings/a%2Eb")).json()["name"] == "a.b"
    assert error(await quick.call("GET", "/bindings/a%2Fb")) == (404, "Binding was not found")
    assert error(await quick.call("GET", "/bindings/%FF")) == (404, "Binding was not found")


async def test_each_answer_has_the_id_of_its_request(quick: Service) -> None:
    given = await quick.client.get("/v1/health", headers={"x-request-id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    made = [(await quick.client.get("/v1/none")).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert (await quick.client.get("/v1/none", headers={"x-request-id": "a b"})).headers["x-request-id"] != "a b"


async def test_a15_whoever_has_no_key_at_all_cannot_fill_the_audit_log(quick: Service) -> None:
    for method, path in (("POST", "/bindings/b"), ("DELETE", "/service-types/ams"), ("PUT", "/bindings/b")):
        assert (await quick.call(method, path, key="")).status_code == 401
    assert quick.trail.events == []


async def test_a15_every_change_is_recorded_and_every_refused_one(quick: Service) -> None:
    one = await quick.service_type()
    await quick.call("PUT", "/bindings/none", {}, key="wrong")
    await quick.call("POST", "/bindings/b", binding_of(one) | {"host": "no"})
    await quick.call("GET", "/bindings")
    await quick.call("GET", "/bindings", key="")
    await quick.call("DELETE", "/bindings/" + "a" * 40)

    events = [
        (each.action, each.resource, each.actor, each.code, each.result, each.reason) for each in quick.trail.events
    ]

    key = "management key"
    assert events == [
        ("service-types:create", "/service-types/ams", key, 201, "done", ""),
        ("bindings:update", "/bindings/none", "", 401, "refused", "Wrong Credentials"),
        ("bindings:create", "/bindings/b", key, 404, "refused", "Host was not found"),
        ("bindings:delete", "/bindings/***", key, 404, "refused", "Binding was not found"),
    ]
    assert {(each.service, each.address, each.at) for each in quick.trail.events} == {
        ("authn", ADDRESS, quick.clock.wall())
    }
    assert all(each.request for each in quick.trail.events)


async def test_what_nobody_foresaw_is_told_as_nothing(quick: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise RuntimeError(f"holds {DN}")

    monkeypatch.setattr(type(quick.store.service_types), "find", fail)
    assert error(await quick.login()) == (500, "Internal Error: the service failed")


async def test_a_request_without_a_known_peer_is_its_connections(quick: Service) -> None:
    transport = httpx.ASGITransport(quick.app, client=("192.0.2.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="https://authn.example", trust_env=False) as client:
        answer = await client.delete("/v1/bindings/b", headers={"x-api-key": "wrong"})

    assert answer.status_code == 401
    assert quick.trail.events[-1].address == "192.0.2.9"
