"""Contract 6 on both engines."""

from pathlib import Path

import pytest

from tests.support.authn import HOST, Service, error

PATH = f"/service-types/ams/hosts/{HOST}/authm"
EMPTY = "auth method object contains empty fields. empty value for field: "


async def test_a16_an_auth_method_is_made_shown_listed_and_removed_without_its_secrets(service: Service) -> None:
    one = await service.service_type()
    made = await service.auth_method(one, service_uuid="ignored", type="api-key")

    assert made == {
        "service_uuid": one["uuid"], "port": 443, "host": HOST, "type": "headers", "uuid": made["uuid"],
        "created_on": "2023-11-14T22:13:20Z", "headers": {"x-api-key": "***"},
    }  # fmt: skip
    assert (await service.call("GET", PATH)).json() == made
    assert (await service.call("GET", "/authm")).json() == {"auth_methods": [made]}
    again = {"port": 1, "host": HOST, "headers": {"a": "b"}}
    taken = (409, f"Auth method object with host: {HOST} already exists")
    assert error(await service.call("POST", "/service-types/ams/authm", again)) == taken
    assert (await service.call("DELETE", PATH)).status_code == 204
    for method in ("GET", "DELETE", "PUT"):
        assert error(await service.call(method, PATH)) == (404, "Auth method was not found")


async def test_an_auth_method_is_checked_in_the_order_of_the_contract(quick: Service) -> None:
    where = "/service-types/ams/authm"
    assert error(await quick.call("POST", where, b"no json")) == (404, "Service-type was not found")
    await quick.service_type()
    await quick.service_type("keyed", auth_method="api-key")
    assert error(await quick.call("POST", where, b'{"port": "443"}')) == (
        400,
        "Poorly formatted JSON. json: cannot unmarshal string into field port of type int",
    )
    body: dict[str, object] = {"port": 0}
    steps: list[tuple[dict[str, object], int, str]] = [
        ({}, 422, EMPTY + "port"), ({"port": -1}, 422, EMPTY + "host"),
        ({"host": "b.example"}, 404, "Host was not found"), ({"host": HOST, "headers": {}}, 422, EMPTY + "headers"),
    ]  # fmt: skip
    for more, code, text in steps:
        body |= more
        assert error(await quick.call("POST", where, body)) == (code, text)
    assert error(await quick.call("POST", "/service-types/keyed/authm", body)) == (422, EMPTY + "access_key")
    for path in ("/service-types/no/hosts/no/authm", "/service-types/ams/hosts/no/authm"):
        thing = "Service-type" if "/no/hosts" in path else "Host"
        assert error(await quick.call("GET", path)) == (404, f"{thing} was not found")


@pytest.mark.parametrize(
    "change", [{"port": -1}, {"port": 65536}, {"headers": {"a b": "c"}}, {"headers": {"a": "b\n"}}]
)
async def test_a7_ports_and_headers_are_checked(quick: Service, change: dict[str, object]) -> None:
    await quick.service_type()
    body = {"port": 443, "host": HOST, "headers": {"a": "b"}} | change
    code, text = error(await quick.call("POST", "/service-types/ams/authm", body))
    assert code == 422
    assert text.startswith("auth method object contains invalid fields. invalid value for field: ")


async def test_a2_headers_are_replaced_as_a_whole(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example")
    made = await service.auth_method(one, headers={"x-api-key": "kept", "x-old": "gone"})
    await service.binding("b", one)
    service.clock.advance(1000)

    change = {"host": HOST, "port": 8443, "headers": {"X-Api-Key": "***", "x-new": "new"}}
    changed = (await service.call("PUT", PATH, change)).json()

    assert changed == made | {
        "port": 8443, "headers": {"X-Api-Key": "***", "x-new": "***"}, "updated_on": "2023-11-14T22:13:21Z",
    }  # fmt: skip
    assert (await service.call("GET", PATH)).json() == changed
    told = (await service.login()).json()["token"]
    assert told == "a-user by {'X-Api-Key': 'kept', 'x-new': 'new'}"
    moved = (await service.call("PUT", PATH, {"host": "b.example"})).json()
    assert (moved["host"], moved["port"]) == ("b.example", 8443)


async def test_a2_an_access_key_is_replaced(service: Service) -> None:
    one = await service.service_type(auth_method="api-key")
    await service.auth_method(one, access_key="first", headers={"passed": "over"})
    await service.binding("b", one)
    assert (await service.call("PUT", PATH, {"access_key": "***", "port": 1})).json()["access_key"] == "***"
    assert (await service.login()).json()["token"] == "a-user by first"

    changed = await service.call("PUT", PATH, {"access_key": "second"})

    assert (changed.status_code, "updated_on" in changed.json()) == (200, True)
    assert (await service.login()).json()["token"] == "a-user by second"


async def test_an_auth_method_moves_only_where_it_belongs(service: Service) -> None:
    await service.auth_method(await service.service_type())
    other = await service.service_type("other")
    keyed = await service.service_type("keyed", auth_method="api-key")
    await service.auth_method(other)
    moves = [
        ({"service_uuid": "no"}, 404, "Service-type was not found"),
        ({"host": "no"}, 404, "Host was not found"),
        ({"service_uuid": keyed["uuid"]}, 409, "service-type keyed has auth_method: api-key"),
        ({"service_uuid": other["uuid"]}, 409, f"Auth method object with host: {HOST} already exists"),
        ({"headers": {}}, 422, EMPTY + "headers"),
        ({"host": ""}, 422, EMPTY + "host"),
    ]
    for change, code, text in moves:
        assert error(await service.call("PUT", PATH, change)) == (code, text)
    assert error(await service.call("PUT", PATH, {"headers": {"new": "***"}}))[0] == 422
    await service.call("DELETE", f"/service-types/other/hosts/{HOST}/authm")
    assert (await service.call("PUT", PATH, {"service_uuid": other["uuid"]})).status_code == 200


async def test_a16_no_secret_is_in_the_file_of_the_database(quick: Service, tmp_path: Path) -> None:
    one = await quick.service_type()
    await quick.service_type("keyed", auth_method="api-key")
    await quick.auth_method(one, headers={"x-api-key": "SECRET-of-a-header"})
    await quick.auth_method({"name": "keyed"}, access_key="SECRET-access-key")
    secret = (await quick.call("POST", "/keys/reader", {"scope": "read"})).json()["key"]
    await quick.store.close()

    files = b"".join(each.read_bytes() for each in tmp_path.iterdir())

    assert b"keyed" in files
    assert b"SECRET" not in files
    assert secret.encode() not in files
    assert "SECRET" not in "".join(str(event) for event in quick.trail.events)
