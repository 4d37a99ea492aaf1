"""Service types, auth methods, bindings and their versions (contract 5 to 7), by their routes and in the store."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import Connection, insert, select

from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.tables import bindings
from ams.authn.values import X509, AuthMethod, BindingId, ServiceType, ServiceTypeId, SubjectBinding
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, NotFound, RegistryUnavailable, Unusable
from ams.core.names import new_uuid
from ams.storage.database.database import sqlite_url
from ams.storage.files import Disk
from ams.storage.free_space import FreeSpace
from tests.support.authn import DN, HOST, KEY, Service, binding_of, error, open_service
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until_async

GOOD = {"name": "ams", "hosts": [HOST], "auth_types": ["x509"], "auth_method": "headers", "type": "ams"}
EMPTY_TYPE = "service-type object contains empty fields. empty value for field: "


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


async def test_a14_a_service_type_is_checked_in_the_order_of_the_contract(quick_service: Service) -> None:
    body: dict[str, object] = {"hosts": [], "auth_types": [], "auth_method": "pin", "type": "?"}
    steps: list[tuple[dict[str, object], str]] = [
        ({}, EMPTY_TYPE + "name"),
        ({"name": "a/b"}, EMPTY_TYPE + "hosts"),
        ({"hosts": [HOST, "no host"]}, "auth_method: pin is not yet supported.Supported:[api-key headers]"),
        ({"auth_method": "headers"}, "auth_types: empty is not yet supported.Supported:[x509]"),
        ({"auth_types": ["x509", "oidc"]}, "auth_types: oidc is not yet supported.Supported:[x509]"),
        ({"auth_types": ["x509"]}, "type: ? is not yet supported.Supported:[ams web-api custom]"),
    ]
    for more, text in steps:
        body |= more
        assert error(await quick_service.call("POST", "/service-types", body)) == (422, text)
    for field in ("hosts", "auth_types", "auth_method", "type"):
        assert error(await quick_service.call("POST", "/service-types", GOOD | {field: None})) == (
            422, EMPTY_TYPE + field,
        )  # fmt: skip


async def test_a_kind_the_settings_allow_and_nobody_wrote_is_told(tmp_path: Path) -> None:
    settings = AuthnSettings(supported_auth_methods=("pin",))
    async with open_service(sqlite_url(str(tmp_path / "authn.db")), settings=settings) as service:
        await service.service_type(auth_method="pin")
        answer = await service.call("POST", "/service-types/ams/authm", b"no json")
    assert error(answer) == (500, "Internal Error: Type is supported but not found")


async def test_a7_names_and_hosts_are_checked(quick_service: Service) -> None:
    for change, field in [({"name": "a/b"}, "name"), ({"name": ".."}, "name"), ({"hosts": ["a:1"]}, "hosts")]:
        code, text = error(await quick_service.call("POST", "/service-types", GOOD | change))
        assert code == 422
        assert text.startswith(f"service-type object contains invalid fields. invalid value for field: {field}.")
    await quick_service.service_type()
    assert error(await quick_service.call("PUT", "/service-types/ams", {"name": "ä"}))[0] == 422


async def test_a_name_belongs_to_one_service_type(service: Service) -> None:
    await service.service_type("ams")
    await service.service_type("other")
    taken = (409, "service-type object with name: ams already exists")
    assert error(await service.call("POST", "/service-types", GOOD)) == taken
    assert error(await service.call("PUT", "/service-types/other", {"name": "ams"})) == taken
    assert (await service.call("PUT", "/service-types/ams", {"name": "ams"})).status_code == 200


async def test_an_update_keeps_what_it_does_not_say_and_refuses_empty_texts(quick_service: Service) -> None:
    one = await quick_service.service_type()
    changed = (await quick_service.call("PUT", "/service-types/ams", {"hosts": None, "uuid": "x"})).json()
    assert changed.pop("updated_on")
    assert changed == one
    assert error(await quick_service.call("PUT", "/service-types/ams", {"name": ""})) == (422, EMPTY_TYPE + "name")
    assert error(await quick_service.call("PUT", "/service-types/ams", {"hosts": []})) == (422, EMPTY_TYPE + "hosts")
    assert error(await quick_service.call("PUT", "/service-types/no", b"no json")) == (
        404, "Service-type was not found",
    )  # fmt: skip
    assert error(await quick_service.call("PUT", "/service-types/ams", b""))[1] == "Poorly formatted JSON. EOF"


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


PATH = f"/service-types/ams/hosts/{HOST}/authm"
EMPTY_METHOD = "auth method object contains empty fields. empty value for field: "


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


async def test_an_auth_method_is_checked_in_the_order_of_the_contract(quick_service: Service) -> None:
    where = "/service-types/ams/authm"
    assert error(await quick_service.call("POST", where, b"no json")) == (404, "Service-type was not found")
    await quick_service.service_type()
    await quick_service.service_type("keyed", auth_method="api-key")
    assert error(await quick_service.call("POST", where, b'{"port": "443"}')) == (
        400, "Poorly formatted JSON. json: cannot unmarshal string into field port of type int",
    )  # fmt: skip
    body: dict[str, object] = {"port": 0}
    steps: list[tuple[dict[str, object], int, str]] = [
        ({}, 422, EMPTY_METHOD + "port"), ({"port": -1}, 422, EMPTY_METHOD + "host"),
        ({"host": "b.example"}, 404, "Host was not found"),
        ({"host": HOST, "headers": {}}, 422, EMPTY_METHOD + "headers"),
    ]  # fmt: skip
    for more, code, text in steps:
        body |= more
        assert error(await quick_service.call("POST", where, body)) == (code, text)
    assert error(await quick_service.call("POST", "/service-types/keyed/authm", body)) == (
        422, EMPTY_METHOD + "access_key",
    )  # fmt: skip
    for path in ("/service-types/no/hosts/no/authm", "/service-types/ams/hosts/no/authm"):
        thing = "Service-type" if "/no/hosts" in path else "Host"
        assert error(await quick_service.call("GET", path)) == (404, f"{thing} was not found")


async def test_a7_ports_and_headers_are_checked(quick_service: Service) -> None:
    await quick_service.service_type()
    for change in ({"port": -1}, {"port": 65536}, {"headers": {"a b": "c"}}, {"headers": {"a": "b\n"}}):
        body = {"port": 443, "host": HOST, "headers": {"a": "b"}} | change
        code, text = error(await quick_service.call("POST", "/service-types/ams/authm", body))
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
        ({"service_uuid": "no"}, 404, "Service-type was not found"), ({"host": "no"}, 404, "Host was not found"),
        ({"service_uuid": keyed["uuid"]}, 409, "service-type keyed has auth_method: api-key"),
        ({"service_uuid": other["uuid"]}, 409, f"Auth method object with host: {HOST} already exists"),
        ({"headers": {}}, 422, EMPTY_METHOD + "headers"), ({"host": ""}, 422, EMPTY_METHOD + "host"),
    ]  # fmt: skip
    for change, code, text in moves:
        assert error(await service.call("PUT", PATH, change)) == (code, text)
    assert error(await service.call("PUT", PATH, {"headers": {"new": "***"}}))[0] == 422
    await service.call("DELETE", f"/service-types/other/hosts/{HOST}/authm")
    assert (await service.call("PUT", PATH, {"service_uuid": other["uuid"]})).status_code == 200


async def test_a16_no_secret_is_in_the_file_of_the_database(quick_service: Service, tmp_path: Path) -> None:
    one = await quick_service.service_type()
    await quick_service.service_type("keyed", auth_method="api-key")
    await quick_service.auth_method(one, headers={"x-api-key": "SECRET-of-a-header"})
    await quick_service.auth_method({"name": "keyed"}, access_key="SECRET-access-key")
    secret = (await quick_service.call("POST", "/keys/reader", {"scope": "read"})).json()["key"]
    await quick_service.store.close()

    files = b"".join(each.read_bytes() for each in tmp_path.iterdir())

    assert b"keyed" in files
    assert b"SECRET" not in files
    assert secret.encode() not in files
    assert "SECRET" not in "".join(str(event) for event in quick_service.trail.events)


EMPTY_BINDING = "binding object contains empty fields. empty value for field: "


async def test_a_binding_is_made_shown_listed_found_and_removed(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example")
    made = await service.binding("site", one, name="ignored", last_auth="ignored")
    other = await service.binding("other", one, host="b.example")

    assert made == binding_of(one) | {
        "name": "site", "uuid": made["uuid"], "created_on": "2023-11-14T22:13:20Z",
    }  # fmt: skip
    assert (await service.call("GET", "/bindings/site")).json() == made
    assert (await service.call("GET", "/bindings")).json() == {"bindings": [made, other]}
    of_host = f"/service-types/ams/hosts/{HOST}/bindings"
    assert (await service.call("GET", of_host)).json() == {"bindings": [made]}
    assert (await service.call("GET", f"{of_host}?authID={quote(DN, safe='')}")).json() == {"bindings": [made]}
    assert error(await service.call("GET", f"{of_host}?authID=CN%3Dno")) == (404, "Binding was not found")
    assert (await service.call("DELETE", "/bindings/site")).status_code == 204
    assert error(await service.call("DELETE", "/bindings/site")) == (404, "Binding was not found")
    assert error(await service.call("GET", "/bindings/site")) == (404, "Binding was not found")
    for path in ("no/hosts/no", "ams/hosts/no"):
        thing = "Service-type" if path.startswith("no") else "Host"
        answer = await service.call("GET", f"/service-types/{path}/bindings?authID=x")
        assert error(answer) == (404, f"{thing} was not found")


async def test_a14_a_binding_is_checked_in_the_order_of_the_contract(service: Service) -> None:
    one = await service.service_type()
    await service.binding("taken", one)
    body: dict[str, object] = {}
    steps: list[tuple[dict[str, object], int, str]] = [
        ({}, 422, EMPTY_BINDING + "service_uuid"),
        ({"service_uuid": "no"}, 422, EMPTY_BINDING + "host"),
        ({"host": "no"}, 422, EMPTY_BINDING + "auth_identifier"),
        ({"auth_identifier": DN}, 422, EMPTY_BINDING + "unique_key"),
        ({"unique_key": "u"}, 422, EMPTY_BINDING + "auth_type"),
        ({"auth_type": "oidc"}, 404, "Service-type was not found"),
        ({"service_uuid": one["uuid"]}, 404, "Host was not found"),
        ({"host": HOST}, 422, "Auth type: oidc is not yet supported.Supported:[x509]"),
        ({"auth_type": "x509"}, 409, f"binding object with auth_identifier: {DN} already exists"),
        ({"auth_identifier": "CN=new"}, 409, "binding object with name: taken already exists"),
    ]
    for more, code, text in steps:
        body |= more
        assert error(await service.call("POST", "/bindings/taken", body)) == (code, text)
    assert error(await service.call("POST", "/bindings/taken", b"{")) == (400, "Poorly formatted JSON. unexpected EOF")
    assert error(await service.call("PUT", "/bindings/no", b"{")) == (404, "Binding was not found")


async def test_every_field_of_a_binding_changes_and_stays_changed(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example")
    two = await service.service_type("two", "b.example")
    shown = await service.binding("b", one)
    changes: list[dict[str, object]] = [
        {"name": "c"}, {"host": "b.example"}, {"service_uuid": two["uuid"]}, {"auth_identifier": "CN=new"},
        {"unique_key": "new"}, {"auth_type": "x509"}, {"issuer": "C=GR,O=Acme,CN=CA"}, {"subject_sha256": "0" * 64},
    ]  # fmt: skip
    for change in changes:
        service.clock.advance(1000)
        changed = (await service.call("PUT", f"/bindings/{shown['name']}", change)).json()
        assert changed.pop("updated_on") > shown.pop("updated_on", "")
        expected = shown | change | ({"issuer": "CN=CA,O=Acme,C=GR"} if "issuer" in change else {})
        assert changed == expected
        shown = (await service.call("GET", f"/bindings/{changed['name']}")).json()
        assert shown == changed | {"updated_on": shown["updated_on"]}
    forgotten = (await service.call("PUT", "/bindings/c", {"subject_sha256": "", "issuer": ""})).json()
    assert {"subject_sha256", "issuer"} & set(forgotten) == set()
    assert error(await service.call("PUT", "/bindings/c", {"unique_key": ""})) == (422, EMPTY_BINDING + "unique_key")


async def test_a7_names_and_our_own_fields_are_checked(quick_service: Service) -> None:
    one = await quick_service.service_type()
    for name, more, field in [("a%2Fb", {}, "name"), ("b", {"issuer": "nobody"}, "issuer"),
                              ("b", {"subject_sha256": "AB"}, "subject_sha256")]:  # fmt: skip
        code, text = error(await quick_service.call("POST", f"/bindings/{name}", binding_of(one) | more))
        assert code == 422
        assert f"invalid value for field: {field}." in text


async def test_a4_a_binding_that_moves_meets_the_one_that_is_there(service: Service) -> None:
    one = await service.service_type("ams", HOST, "b.example")
    two = await service.service_type("two")
    await service.binding("here", one)
    await service.binding("there", one, host="b.example")
    await service.binding("elsewhere", two)
    taken = (409, f"binding object with auth_identifier: {DN} already exists")
    assert error(await service.call("PUT", "/bindings/there", {"host": HOST})) == taken
    assert error(await service.call("PUT", "/bindings/elsewhere", {"service_uuid": one["uuid"]})) == taken
    name = (409, "binding object with name: here already exists")
    assert error(await service.call("PUT", "/bindings/there", {"name": "here"})) == name
    assert (await service.call("PUT", "/bindings/here", {"name": "here", "host": HOST})).status_code == 200


async def test_a4_of_two_creations_with_one_subject_one_is_made(service: Service) -> None:
    one = await service.service_type()
    body = binding_of(one)
    answers = await asyncio.gather(*(service.call("POST", f"/bindings/b{number}", body) for number in range(4)))
    assert sorted(each.status_code for each in answers) == [201, 409, 409, 409]
    refused = {error(each)[1] for each in answers if each.status_code == 409}
    assert refused == {f"binding object with auth_identifier: {DN} already exists"}
    types = await asyncio.gather(*(service.call("POST", "/service-types", one | {"name": "same"}) for _ in range(3)))
    assert sorted(each.status_code for each in types) == [201, 409, 409]


async def test_a20_lists_come_in_pages_when_that_is_asked_for(service: Service) -> None:
    one = await service.service_type()
    for number in range(5):
        await service.binding(f"b{number}", one, auth_identifier=f"CN={number}")
    names, token = [], ""
    for size in (2, 2, 1):
        page = (await service.call("GET", f"/bindings?pageSize=2&pageToken={token}")).json()
        assert len(page["bindings"]) == size
        names += [each["name"] for each in page["bindings"]]
        token = page.get("nextPageToken", "")
    assert (names, token) == ([f"b{number}" for number in range(5)], "")
    assert error(await service.call("GET", "/bindings?pageSize=x")) == (400, "Invalid page size")
    assert error(await service.call("GET", "/bindings?pageToken=x")) == (400, "Invalid page token")


CHANGES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a service type": ("/service-types/ams", {"hosts": [HOST, "b.example"]}, {"verify_client_host": True}),
    "an auth method": (f"/service-types/ams/hosts/{HOST}/authm", {"port": 1}, {"port": 2}),
    "a binding": ("/bindings/b", {"unique_key": "one"}, {"unique_key": "two"}),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_of_an_older_version_is_refused_and_of_two_at_once_one(service: Service, what: str) -> None:
    one = await service.service_type()
    await service.auth_method(one, headers={"h": "v"})
    await service.binding("b", one)
    path, first, second = CHANGES[what]
    version = (await service.call("GET", path)).headers["etag"]

    both = await asyncio.gather(*(service.call("PUT", path, each, if_match=version) for each in (first, second)))

    assert sorted(each.status_code for each in both) == [200, 412]
    refused = next(each for each in both if each.status_code == 412).json()["error"]
    assert (refused["status"], "changed meanwhile" in refused["message"]) == ("PRECONDITION FAILED", True)
    shown = await service.call("GET", path)
    assert shown.json() == next(each for each in both if each.status_code == 200).json()
    assert (await service.call("PUT", path, first, if_match=shown.headers["etag"])).status_code == 200
    assert (await service.call("PUT", path, second, if_match="*")).status_code == 200
    assert (await service.call("PUT", path, first)).status_code == 200
    assert (await service.call("PUT", path, first, if_match="x")).status_code == 400
    assert error(await service.call("DELETE", path, if_match=version))[0] == 412
    version = (await service.call("GET", path)).headers["etag"]
    assert (await service.call("DELETE", path, if_match=version)).status_code == 204


async def test_a5_the_last_login_is_shown_and_makes_no_other_version_of_a_binding(service: Service) -> None:
    made = await service.binding("b", await service.service_type())
    version = (await service.call("GET", "/bindings/b")).headers["etag"]

    assert await service.store.bindings.note_login(made["uuid"], service.clock.wall())

    shown = await service.call("GET", "/bindings/b")
    assert (shown.json()["last_auth"], shown.headers["etag"]) == ("2023-11-14T22:13:20Z", version)
    assert (await service.call("PUT", "/bindings/b", {"unique_key": "x"}, if_match=version)).status_code == 200


async def test_on_a_disk_that_is_nearly_full_nothing_is_made_and_all_that_must_go_on_does(tmp_path: Path) -> None:
    url, host = sqlite_url(str(tmp_path / "authn.db")), f"/service-types/ams/hosts/{HOST}"
    async with open_service(url) as service:
        one = await service.service_type()
        await service.auth_method(one)
        made = await service.binding("b", one)
        await service.call("POST", "/keys/k", {"scope": "read"})
        other = await service.service_type("other")
    method = {"port": 443, "host": HOST, "headers": {"a": "b"}}
    async with open_service(url, space=FreeSpace(Disk(), str(tmp_path), 2**62)) as service:
        for verb, path, body in (
            ("POST", "/service-types", other | {"name": "new"}), ("PUT", "/service-types/ams", {"name": "renamed"}),
            ("POST", "/service-types/other/authm", method), ("PUT", f"{host}/authm", method),
            ("POST", "/bindings/c", binding_of(one) | {"auth_identifier": "CN=c"}),
            ("PUT", "/bindings/b", {"unique_key": "x"}), ("POST", "/keys/l", {"scope": "read"}),
        ):  # fmt: skip
            assert error(await service.call(verb, path, body)) == (500, "Database Error: Backend Error")
        assert (await service.login()).status_code == 200
        assert await service.store.bindings.note_login(made["uuid"], NOW, "a" * 64)
        await service.store.look_at_space()
        told = (await service.call("GET", "/health", key="")).json()
        assert (told["status"], "min_free_bytes" in told["database"]) == ("warning", True)
        for path in ("/keys/k", "/bindings/b", f"{host}/authm", "/service-types/ams"):
            assert (await service.call("DELETE", path)).status_code == 204


NOW = Milliseconds(1_700_000_000_000)


def a_service_type(name: str = "ams") -> ServiceType:
    uuid = ServiceTypeId(new_uuid())
    return ServiceType(
        uuid=uuid, name=name, hosts=(HOST,), auth_types=(X509,), auth_method="headers", type="ams", created_on=NOW
    )


async def made_type(service: Service) -> ServiceType:
    made = a_service_type()
    await service.store.service_types.create(made)
    return made


def a_binding(of: ServiceType, name: str = "b", identifier: str = DN) -> SubjectBinding:
    return SubjectBinding(
        uuid=BindingId(new_uuid()), name=name, service_uuid=of.uuid, host=HOST, auth_identifier=identifier,
        unique_key="user", auth_type=X509, created_on=NOW,
    )  # fmt: skip


async def test_a_login_finds_what_was_changed_a_moment_ago(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))
    shown = (DN, one.uuid, HOST, X509)
    assert await store.bindings.for_login(*shown) == made
    await store.bindings.change(made, NOW, lambda present, _: replace(present, unique_key="new"))
    assert (await store.bindings.for_login(*shown) or made).unique_key == "new"
    await store.bindings.change(made, NOW, lambda present, _: replace(present, auth_identifier="CN=other"))
    assert await store.bindings.for_login(*shown) is None
    assert await store.bindings.for_login("CN=other", *shown[1:]) is not None
    await store.bindings.delete(made)
    assert await store.bindings.for_login("CN=other", *shown[1:]) is None
    await store.bindings.create(a_binding(one))
    assert await store.bindings.for_login(*shown) is not None
    await store.service_types.delete(one)
    assert await store.bindings.for_login(*shown) is None
    assert await store.service_types.find("ams") is None


async def test_a8_the_first_subject_stays_until_it_is_forgotten(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))
    await store.bindings.for_login(DN, one.uuid, HOST, X509)
    assert await store.bindings.note_login(made.uuid, NOW, "a" * 64)
    assert await store.bindings.note_login(made.uuid, NOW, "a" * 64)
    assert not await store.bindings.note_login(made.uuid, NOW, "b" * 64)
    found = await store.bindings.for_login(DN, one.uuid, HOST, X509)
    assert found is not None
    assert (found.subject_sha256, found.last_auth) == ("a" * 64, NOW)
    await store.bindings.change(made, NOW, lambda present, _: replace(present, subject_sha256=""))
    assert await store.bindings.note_login(made.uuid, NOW, "b" * 64)
    assert not await store.bindings.note_login(BindingId("none"), NOW, "b" * 64)


async def test_a4_the_database_itself_refuses_a_second_one(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))

    def put_a_second_one(connection: Connection) -> None:
        row = dict(connection.execute(select(bindings).where(bindings.c.uuid == made.uuid)).one()._mapping)
        del row["number"]
        connection.execute(insert(bindings).values(row | {"uuid": new_uuid(), "name": "c"}))

    with pytest.raises(AlreadyExists, match="with this auth_identifier already exists"):
        await store.database.write(put_a_second_one)
    with pytest.raises(NotFound, match="Host was not found"):
        await store.bindings.create(replace(a_binding(one, "d", "CN=d"), host="gone.example"))


async def test_names_and_identifiers_of_any_length_and_letters_are_kept(service: Service) -> None:
    store, one = service.store, await made_type(service)
    for identifier in ("CN=" + "x" * 20_000, "CN=\x00\x1a\u00e9\U0001f600", "'; DROP TABLE authn_bindings; --"):
        made = a_binding(one, new_uuid(), identifier)
        await store.bindings.create(made)
        assert await store.bindings.for_login(identifier, one.uuid, HOST, X509) == made


async def test_a_store_opens_with_its_own_key_only(tmp_path: Path) -> None:
    url = sqlite_url(str(tmp_path / "authn.db"))
    await (await Store.open(url, KEY)).close()
    await (await Store.open(url, KEY)).close()
    with pytest.raises(Unusable, match="not the one they were encrypted with"):
        await Store.open(url, bytes(32))
    (tmp_path / "none.db").write_bytes(b"no database" * 1000)
    with pytest.raises(Unusable, match="the certificate service's database is not usable"):
        await Store.open(sqlite_url(str(tmp_path / "none.db")), KEY)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        await Store.open("postgresql://127.0.0.1:1/none?connect_timeout=1", KEY)


def test_a16_secrets_are_not_in_what_values_print() -> None:
    method = AuthMethod(
        uuid="u", service_uuid=ServiceTypeId("s"), host=HOST, port=1, type="headers", created_on=NOW,
        access_key="SECRET", headers={"x": "SECRET"},
    )  # fmt: skip
    assert "SECRET" not in repr(method)


@pytest.mark.postgres
async def test_a_change_on_another_node_is_seen() -> None:
    from tests.support.databases import empty_store

    url, clock, one = empty_store(KEY), ManualClock(), a_service_type()
    bound = a_binding(one)
    here, there = await Store.open(url, KEY, clock=clock), await Store.open(url, KEY, clock=clock)

    async def user() -> str:
        found = await here.bindings.for_login(DN, one.uuid, HOST, X509)
        return found.unique_key if found else ""

    async def is_new() -> bool:
        return await user() == "new"

    async def is_gone() -> bool:
        return not await here.service_types.find("ams") and not await user()

    try:
        await there.service_types.create(one)
        await there.bindings.create(bound)
        await wait_until_async(lambda: not here.database.away and not there.database.away)
        assert await user() == "user"
        await there.bindings.change(bound, NOW, lambda present, _: replace(present, unique_key="new"))
        await wait_until_async(is_new)
        await there.service_types.delete(one)
        await wait_until_async(is_gone)
    finally:
        await here.close()
        await there.close()
