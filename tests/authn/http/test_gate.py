"""Who manages (15, A15)."""

import time
from pathlib import Path

import pytest

from ams.authn.http.gate import AmsUsers, key_of
from ams.core.errors import ServiceFailed
from ams.storage.database.database import sqlite_url
from tests.support.authn import ADDRESS, MANAGEMENT_KEY, Service, error, open_service
from tests.support.served import served

WRONG = (401, "Wrong Credentials")


class UsersOfAms:
    """AMS with an administrator and another user, or away."""

    def __init__(self) -> None:
        self.away = False

    async def named(self, token: str) -> tuple[str, bool] | None:
        if self.away:
            raise ServiceFailed("AMS cannot be asked whose key this is")
        return {"of-an-admin": ("ada", True), "of-a-user": ("ben", False)}.get(token)


def test_a15_headers_are_looked_at_before_the_query() -> None:
    header, bearer = (b"x-api-key", b"first"), (b"authorization", b"bearer  second")
    assert key_of([bearer, header], b"key=third") == "first"
    assert key_of([bearer], b"key=third") == "second"
    assert key_of([(b"authorization", b"Basic x")], b"a=b&key=th%2Bird") == "th+ird"
    assert key_of([(b"x-api-key", b"")], b"") == ""


async def test_a15_the_management_key_opens_by_each_way_and_nothing_else_does(quick: Service) -> None:
    get = quick.client.get
    for where in ({"headers": {"x-api-key": MANAGEMENT_KEY}}, {"params": {"key": MANAGEMENT_KEY}}):
        assert (await get("/v1/bindings", **where)).status_code == 200
    assert (await get("/v1/bindings", headers={"authorization": f"Bearer {MANAGEMENT_KEY}"})).status_code == 200
    for key in ("", "wrong", "x" * 2000, "gr\u00fcn", MANAGEMENT_KEY + "x"):
        assert error(await get("/v1/bindings", params={"key": key})) == WRONG
    assert error(await quick.client.post("/v1/service-types", content=b"no json")) == WRONG


async def test_a15_named_keys_are_made_listed_without_the_secret_and_revoked(service: Service) -> None:
    made = (await service.call("POST", "/keys/reader", {"scope": "read"})).json()
    writer = (await service.call("POST", "/keys/writer", {"scope": "write"})).json()["key"]
    reader = made.pop("key")
    assert (await service.call("GET", "/keys")).json()["keys"][0] == made
    assert reader not in (await service.call("GET", "/keys")).text
    await service.auth_method(await service.service_type())

    shown = await service.call("GET", "/authm", key=reader)
    assert (shown.status_code, "a-secret-of-ams" in shown.text) == (200, False)
    refused = (403, "Access to this resource is forbidden")
    assert error(await service.call("DELETE", "/service-types/ams", key=reader)) == refused
    assert error(await service.call("POST", "/keys/more", {"scope": "write"}, key=writer)) == refused
    assert error(await service.call("GET", "/keys", key=reader)) == refused
    assert (await service.call("DELETE", "/service-types/ams", key=writer)).status_code == 204

    assert (await service.call("DELETE", "/keys/writer")).status_code == 204
    assert error(await service.call("GET", "/authm", key=writer)) == WRONG
    assert error(await service.call("DELETE", "/keys/writer")) == (404, "Key was not found")
    taken = (409, "key object with name: reader already exists")
    assert error(await service.call("POST", "/keys/reader", {"scope": "read"})) == taken
    scope = (422, "scope: all is not yet supported.Supported:[read write]")
    assert error(await service.call("POST", "/keys/x", {"scope": "all"})) == scope


async def test_service_administrators_of_ams_manage_too(tmp_path: Path) -> None:
    users = UsersOfAms()
    async with open_service(sqlite_url(str(tmp_path / "db")), users=users) as service:
        assert (await service.call("GET", "/keys", key="of-an-admin")).status_code == 200
        refused = await service.call("GET", "/bindings", key="of-a-user")
        assert error(refused) == (403, "Access to this resource is forbidden")
        assert error(await service.call("GET", "/bindings", key="nobody's")) == WRONG
        users.away = True
        away = await service.call("GET", "/bindings", key="of-an-admin")
        assert error(away) == (502, "AMS cannot be asked whose key this is")
        assert (await service.call("GET", "/bindings")).status_code == 200
        await service.call("DELETE", "/bindings/none", key=MANAGEMENT_KEY)
    recorded = [(each.actor, each.code) for each in service.trail.events]
    assert recorded == [("ben", 403), ("", 401), ("management key", 404)]


async def test_an_ams_that_is_not_there_is_no_refusal() -> None:
    with pytest.raises(ServiceFailed):
        await AmsUsers("https://127.0.0.1:1").named("token")


async def test_failures_are_counted_by_address_and_recorded(tmp_path: Path) -> None:
    async with open_service(sqlite_url(str(tmp_path / "db")), failures=2) as service:
        named = (await service.call("POST", "/keys/reader", {"scope": "read"})).json()["key"]
        service.trail.events.clear()
        answers = [await service.call("DELETE", "/bindings/b", key="wrong") for _ in range(4)]
        assert [each.status_code for each in answers] == [401, 401, 429, 429]
        assert "retry-after" in answers[-1].headers
        assert (await service.call("GET", "/bindings", key=named)).status_code == 429
        assert (await service.call("GET", "/bindings")).status_code == 200  # the management key
        service.clock.advance(60_000)
        assert (await service.call("GET", "/bindings", key=named)).status_code == 200
    recorded = [(each.action, each.code, each.address, each.result) for each in service.trail.events]
    assert recorded == [("bindings:delete", 401, ADDRESS, "refused")] * 2


async def test_the_release_is_told_with_a_right_key_only(quick: Service) -> None:
    without = (await quick.call("GET", "/version", key="")).json()
    assert (await quick.call("GET", "/version", key="wrong")).json() == without
    told = (await quick.call("GET", "/version")).json()
    assert set(without) - {"distro"} == {"build_time", "golang", "compiler", "os", "architecture"}
    assert {name: told[name] for name in without} == without
    assert told["release"]


async def test_what_ams_says_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    users, asked, now = AmsUsers("https://127.0.0.1:1"), [], [100.0]

    async def ask(token: str) -> tuple[str, bool] | None:
        asked.append(token)
        return ("ada", True) if token == "t" else None

    monkeypatch.setattr(users, "_ask", ask)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(2):
        assert await users.named("t") == ("ada", True)
        assert await users.named("other") is None
    now[0] += 10
    await users.named("t")
    assert asked == ["t", "other", "t"]


async def test_a_real_ams_says_whose_a_token_is(tmp_path: Path) -> None:
    with served(tmp_path / "ams") as ams:
        ben = ams.ask("POST", "/users/ben", {"service_roles": ["push_worker"]})["token"]
        rights = {"rights": [{"action": "*", "resource": "*"}]}
        reduced = ams.ask("POST", "/users/admin/tokens/reduced", rights)["token"]
        users = AmsUsers(ams.run.base_url)
        admin = await users.named(ams.token)
        assert admin is not None
        assert admin[1]
        assert await users.named(ben) == ("ben", False)
        assert await users.named(reduced) == ("admin", False)
        assert await users.named("0" * 64) is None
