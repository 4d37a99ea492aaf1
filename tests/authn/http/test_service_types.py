"""Contract 5 on both engines."""

from pathlib import Path

from ams.authn.settings import AuthnSettings
from ams.storage.database.database import sqlite_url
from tests.support.authn import HOST, Service, error, open_service

GOOD = {"name": "ams", "hosts": [HOST], "auth_types": ["x509"], "auth_method": "headers", "type": "ams"}
EMPTY = "service-type object contains empty fields. empty value for field: "


async def test_a_service_type_is_made_shown_listed_changed_and_removed(service: Service) -> None:
    made = await service.call("POST", "/service-types", GOOD)
    assert made.status_code == 201
    assert made.headers["content-type"] == "application/json; charset=utf-8"
    assert made.text.startswith('{\n "name": "ams",\n "hosts": [\n  "ams.example"\n ],')
    one = made.json()
    assert one == GOOD | {"uuid": one["uuid"], "created_on": "2023-11-14T22:13:20Z"}
    assert (await service.call("GET", "/service-types/ams")).json() == one
    assert (await service.call("GET", "/service-types")).json() == {"service_types": [one]}

    service.clock.advance(60_000)
    change = {"name": "other", "hosts": ["a.example", HOST], "type": "custom", "verify_client_host": True}
    changed = (await service.call("PUT", "/service-types/ams", change)).json()

    assert changed == one | change | {"type": "ams", "updated_on": "2023-11-14T22:14:20Z"}
    assert (await service.call("GET", "/service-types/other")).json() == changed
    assert error(await service.call("GET", "/service-types/ams")) == (404, "Service-type was not found")
    gone = await service.call("DELETE", "/service-types/other")
    assert (gone.status_code, gone.content, "content-length" in gone.headers) == (204, b"", False)
    assert (await service.call("GET", "/service-types")).json() == {"service_types": []}
    assert error(await service.call("DELETE", "/service-types/other")) == (404, "Service-type was not found")


async def test_a_service_type_is_checked_in_the_order_of_the_contract(quick: Service) -> None:
    body: dict[str, object] = {"hosts": [], "auth_types": [], "auth_method": "pin", "type": "?"}
    steps: list[tuple[dict[str, object], str]] = [
        ({}, EMPTY + "name"),
        ({"name": "a/b"}, EMPTY + "hosts"),
        ({"hosts": [HOST, "no host"]}, "auth_method: pin is not yet supported.Supported:[api-key headers]"),
        ({"auth_method": "headers"}, "auth_types: empty is not yet supported.Supported:[x509]"),
        ({"auth_types": ["x509", "oidc"]}, "auth_types: oidc is not yet supported.Supported:[x509]"),
        ({"auth_types": ["x509"]}, "type: ? is not yet supported.Supported:[ams web-api custom]"),
    ]
    for more, text in steps:
        body |= more
        assert error(await quick.call("POST", "/service-types", body)) == (422, text)
    for field in ("hosts", "auth_types", "auth_method", "type"):
        assert error(await quick.call("POST", "/service-types", GOOD | {field: None})) == (422, EMPTY + field)


async def test_a7_names_and_hosts_are_checked(quick: Service) -> None:
    for change, field in [({"name": "a/b"}, "name"), ({"name": ".."}, "name"), ({"hosts": ["a:1"]}, "hosts")]:
        code, text = error(await quick.call("POST", "/service-types", GOOD | change))
        assert code == 422
        assert text.startswith(f"service-type object contains invalid fields. invalid value for field: {field}.")
    await quick.service_type()
    assert error(await quick.call("PUT", "/service-types/ams", {"name": "ä"}))[0] == 422


async def test_a_name_belongs_to_one_service_type(service: Service) -> None:
    await service.service_type("ams")
    await service.service_type("other")
    taken = (409, "service-type object with name: ams already exists")
    assert error(await service.call("POST", "/service-types", GOOD)) == taken
    assert error(await service.call("PUT", "/service-types/other", {"name": "ams"})) == taken
    assert (await service.call("PUT", "/service-types/ams", {"name": "ams"})).status_code == 200


async def test_an_update_keeps_what_it_does_not_say_and_refuses_empty_texts(quick: Service) -> None:
    one = await quick.service_type()
    changed = (await quick.call("PUT", "/service-types/ams", {"hosts": None, "uuid": "x"})).json()
    assert changed.pop("updated_on")
    assert changed == one
    assert error(await quick.call("PUT", "/service-types/ams", {"name": ""})) == (422, EMPTY + "name")
    assert error(await quick.call("PUT", "/service-types/ams", {"hosts": []})) == (422, EMPTY + "hosts")
    assert error(await quick.call("PUT", "/service-types/no", b"no json")) == (404, "Service-type was not found")
    assert error(await quick.call("PUT", "/service-types/ams", b""))[1] == "Poorly formatted JSON. EOF"


async def test_a3_deleting_a_service_type_deletes_all_of_it(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example")
    kept = await service.service_type("kept")
    for host in (HOST, "b.example"):
        await service.auth_method(one, host=host)
    for number in range(3):
        await service.binding(f"b{number}", one, auth_identifier=f"CN={number}")
    await service.binding("of-kept", kept)

    await service.call("DELETE", "/service-types/ams")

    assert (await service.call("GET", "/authm")).json() == {"auth_methods": []}
    left = (await service.call("GET", "/bindings")).json()["bindings"]
    assert [each["name"] for each in left] == ["of-kept"]
    again = await service.service_type("ams")
    await service.binding("b0", again)  # the name is free


async def test_a6_what_is_in_use_is_not_taken_away(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example", "c.example")
    await service.auth_method(one, host="b.example")
    await service.binding("b", one)
    for hosts in (["b.example"], [HOST], ["new.example"]):
        code, text = error(await service.call("PUT", "/service-types/ams", {"hosts": hosts}))
        assert code == 409
        assert text.endswith("is in use: delete its auth method and bindings first")
    code, text = error(await service.call("PUT", "/service-types/ams", {"auth_method": "api-key"}))
    assert (code, text) == (409, "auth_method of service-type ams is in use: delete its auth methods first")
    fewer = await service.call("PUT", "/service-types/ams", {"hosts": ["b.example", HOST]})
    assert fewer.json()["hosts"] == ["b.example", HOST]


async def test_a14_oidc_is_refused_while_nobody_checks_it(quick: Service) -> None:
    refused = (422, "auth_types: oidc is not yet supported.Supported:[x509]")
    assert error(await quick.call("POST", "/service-types", GOOD | {"auth_types": ["oidc"]})) == refused
    one = await quick.service_type()
    body = {"service_uuid": one["uuid"], "host": HOST, "auth_identifier": "a", "unique_key": "u", "auth_type": "oidc"}
    refused = (422, "Auth type: oidc is not yet supported.Supported:[x509]")
    assert error(await quick.call("POST", "/bindings/b", body)) == refused


async def test_a_kind_the_settings_allow_and_nobody_wrote_is_told(tmp_path: Path) -> None:
    async with open_service(
        sqlite_url(str(tmp_path / "authn.db")), settings=AuthnSettings(supported_auth_methods=("pin",))
    ) as service:
        await service.service_type(auth_method="pin")
        answer = await service.call("POST", "/service-types/ams/authm", b"no json")
    assert error(answer) == (500, "Internal Error: Type is supported but not found")
