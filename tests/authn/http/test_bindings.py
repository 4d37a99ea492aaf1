"""Contract 7 on both engines."""

import asyncio
from urllib.parse import quote

from tests.support.authn import DN, HOST, Service, binding_of, error

EMPTY = "binding object contains empty fields. empty value for field: "


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


async def test_a_binding_is_checked_in_the_order_of_the_contract(service: Service) -> None:
    one = await service.service_type()
    await service.binding("taken", one)
    body: dict[str, object] = {}
    steps: list[tuple[dict[str, object], int, str]] = [
        ({}, 422, EMPTY + "service_uuid"),
        ({"service_uuid": "no"}, 422, EMPTY + "host"),
        ({"host": "no"}, 422, EMPTY + "auth_identifier"),
        ({"auth_identifier": DN}, 422, EMPTY + "unique_key"),
        ({"unique_key": "u"}, 422, EMPTY + "auth_type"),
        ({"auth_type": "pin"}, 404, "Service-type was not found"),
        ({"service_uuid": one["uuid"]}, 404, "Host was not found"),
        ({"host": HOST}, 422, "Auth type: pin is not yet supported.Supported:[x509]"),
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
    assert error(await service.call("PUT", "/bindings/c", {"unique_key": ""})) == (422, EMPTY + "unique_key")


async def test_a7_names_and_our_own_fields_are_checked(quick: Service) -> None:
    one = await quick.service_type()
    for name, more, field in [
        ("a%2Fb", {}, "name"),
        ("b", {"issuer": "nobody"}, "issuer"),
        ("b", {"subject_sha256": "AB"}, "subject_sha256"),
    ]:
        code, text = error(await quick.call("POST", f"/bindings/{name}", binding_of(one) | more))
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


async def test_a5_the_last_login_is_shown(service: Service) -> None:
    one = await service.service_type()
    made = await service.binding("b", one)
    assert await service.store.bindings.note_login(made["uuid"], service.clock.wall())
    assert (await service.call("GET", "/bindings/b")).json()["last_auth"] == "2023-11-14T22:13:20Z"
    assert not await service.store.bindings.note_login("none", service.clock.wall())


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
