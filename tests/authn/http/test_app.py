"""Requests up to their answer: administrators (A15), bodies, routes, and the table of errors (contract 4)."""

import asyncio
import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.certificates import crls
from ams.authn.http.authentication import AmsUsers, key_of
from ams.authn.http.errors import CODES, WORDS, MethodNotAllowed, refusal
from ams.authn.http.json_bodies import read_body
from ams.authn.http.routes import CHANGE_ACTIONS
from ams.core import errors
from ams.core.clock import publish_time
from ams.core.errors import BadRequest, ServiceFailed
from ams.storage.database.database import sqlite_url
from ams.wire.actions import SMALL_BODY
from ams.wire.base import Request
from tests.support.authn import ADDRESS, DN, HOST, MANAGEMENT_KEY, Service, binding_of, error, open_service
from tests.support.served import in_process_service


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


async def test_a19_what_is_no_route_is_told_in_json(quick_service: Service) -> None:
    for path in ("/", "/v1", "/v2/bindings", "/v1/bindings/", "/v1/bindings/a/b", "/v1/service-types/a/hosts/b:authx"):
        assert error(await quick_service.client.get(path)) == (404, "Page not found")
    wrong = await quick_service.client.patch("/v1/bindings/a")
    assert (error(wrong), wrong.headers["allow"]) == ((405, "Method not allowed"), "POST, GET, PUT, DELETE")
    assert (await quick_service.client.head("/v1/health")).status_code == 405


async def test_a19_health_tells_of_the_database(quick_service: Service) -> None:
    well = await quick_service.client.get("/v1/health")
    assert (well.status_code, well.json()) == (200, {"status": "ok", "database": "ok"})

    def broken(*_: object) -> None:
        raise TimeoutError

    quick_service.store.check = broken  # type: ignore[assignment, method-assign]
    ill = await quick_service.client.get("/v1/health")
    assert (ill.status_code, ill.json()) == (200, {"status": "warning", "database": "the database does not answer"})


async def test_a20_a_body_has_a_limit_and_may_be_in_gzip_and_in_no_other_coding(quick_service: Service) -> None:
    body = {"name": "x", "hosts": [HOST], "auth_types": ["x509"], "auth_method": "headers", "type": "ams"}
    packed = gzip.compress(json.dumps(body).encode())
    for coding, content, code, message in (
        ("br", packed, 415, "Content-Encoding can only be gzip"),
        ("gzip", json.dumps(body).encode(), 400, "Request body is not gzip"),
        ("gzip", gzip.compress(b" " * (SMALL_BODY + 1)), 413, "Message size is too large"), ("gzip", packed, 201, ""),
    ):  # fmt: skip
        headers = {"x-api-key": MANAGEMENT_KEY, "content-encoding": coding}
        answer = await quick_service.client.post("/v1/service-types", content=content, headers=headers)
        assert (answer.status_code, answer.json().get("error", {}).get("message", "")) == (code, message)
    assert error(await quick_service.call("POST", "/service-types", b" " * (SMALL_BODY + 1)))[0] == 413


def test_every_change_is_one_of_which_there_may_be_events(quick_service: Service) -> None:
    assert {row.action for row, _ in quick_service.app._routes._rows if row.changes} == CHANGE_ACTIONS


async def test_a20_pages_of_any_origin_may_ask(quick_service: Service) -> None:
    origin = {"origin": "https://page.example"}
    asked = await quick_service.client.options(
        "/v1/bindings", headers=origin | {"access-control-request-method": "PUT"}
    )
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "*"
    assert asked.headers["access-control-allow-methods"] == "OPTIONS, POST, GET, PUT, DELETE, HEAD"
    assert "Content-Type" in asked.headers["access-control-allow-headers"]
    assert (await quick_service.client.get("/v1/health", headers=origin)).headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in (await quick_service.client.get("/v1/health")).headers


async def test_a18_a_request_has_one_deadline(tmp_path: Path) -> None:
    async def never(*_: object) -> object:
        return await asyncio.Event().wait()

    async with open_service(sqlite_url(str(tmp_path / "db")), deadline_seconds=0.05) as service:
        service.store.events.list = never  # type: ignore[assignment, method-assign]
        late = await service.call("GET", "/audit")
    assert error(late) == (504, "The request took too long; it may have been carried out")


async def test_segments_of_paths_are_decoded_after_they_are_cut(quick_service: Service) -> None:
    one = await quick_service.service_type()
    await quick_service.binding("a.b", one)
    assert (await quick_service.call("GET", "/bindings/a%2Eb")).json()["name"] == "a.b"
    assert error(await quick_service.call("GET", "/bindings/a%2Fb")) == (404, "Binding was not found")
    assert error(await quick_service.call("GET", "/bindings/%FF")) == (404, "Binding was not found")


async def test_each_answer_has_the_id_of_its_request(quick_service: Service) -> None:
    given = await quick_service.client.get("/v1/health", headers={"x-request-id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    made = [(await quick_service.client.get("/v1/none")).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert (await quick_service.client.get("/v1/none", headers={"x-request-id": "a b"})).headers[
        "x-request-id"
    ] != "a b"


async def test_a15_whoever_has_no_key_at_all_cannot_fill_the_audit_log(quick_service: Service) -> None:
    for method, path in (("POST", "/bindings/b"), ("DELETE", "/service-types/ams"), ("PUT", "/bindings/b")):
        assert (await quick_service.call(method, path, key="")).status_code == 401
    assert quick_service.trail.events == []


async def test_a15_every_change_is_recorded_and_every_refused_one(quick_service: Service) -> None:
    one = await quick_service.service_type()
    await quick_service.call("PUT", "/bindings/none", {}, key="wrong")
    await quick_service.call("POST", "/bindings/b", binding_of(one) | {"host": "no"})
    await quick_service.call("GET", "/bindings")
    await quick_service.call("GET", "/bindings", key="")
    await quick_service.call("DELETE", "/bindings/" + "a" * 40)

    events = [(e.action, e.resource, e.actor, e.code, e.result, e.reason) for e in quick_service.trail.events]

    key = "management key"
    assert events == [("service-types:create", "/service-types/ams", key, 201, "done", ""),
                      ("bindings:update", "/bindings/none", "", 401, "refused", "Wrong Credentials"),
                      ("bindings:create", "/bindings/b", key, 404, "refused", "Host was not found"),
                      ("bindings:delete", "/bindings/***", key, 404, "refused", "Binding was not found")]  # fmt: skip
    assert {(each.service, each.address, each.time) for each in quick_service.trail.events} == {
        ("authn", ADDRESS, publish_time(quick_service.clock.wall()))
    }
    assert all(each.request for each in quick_service.trail.events)


async def test_what_nobody_foresaw_is_told_as_nothing(quick_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise RuntimeError(f"holds {DN}")

    monkeypatch.setattr(type(quick_service.store.service_types), "find", fail)
    assert error(await quick_service.login()) == (500, "Internal Error: the service failed")


class Fields(Request, frozen=True):
    text: str | None = None
    number: int | None = None
    switch: bool | None = None
    texts: tuple[str, ...] | None = None
    by_name: Mapping[str, str] | None = None


@pytest.mark.parametrize(("body", "reason"), [
    (b"", "EOF"), (b" \n", "EOF"), (b'{"text": "a', "unexpected EOF"), (b'{"text"', "unexpected EOF"),
    (b'{"text": tru', "unexpected EOF"), (b"{", "unexpected EOF"),
    (b"no", "invalid character 'n' looking for beginning of value"),
    (b"{'text': 1}", 'invalid character "\'" at position 2'),
    (b'{"number": NaN}', "invalid character 'N' looking for beginning of value"),
    (b"[]", "json: cannot unmarshal array into an object"),
    (b'"x"', "json: cannot unmarshal string into an object"),
    (b'{"text": 1}', "json: cannot unmarshal number into field text of type string"),
    (b'{"number": "1"}', "json: cannot unmarshal string into field number of type int"),
    (b'{"number": 1.5}', "json: cannot unmarshal number into field number of type int"),
    (b'{"number": true}', "json: cannot unmarshal bool into field number of type int"),
    (b'{"number": ' + b"9" * 5000 + b"}", "json: cannot unmarshal number into field number of type int"),
    (b'{"switch": "yes"}', "json: cannot unmarshal string into field switch of type bool"),
    (b'{"texts": "a"}', "json: cannot unmarshal string into field texts of type []string"),
    (b'{"texts": [[]]}', "json: cannot unmarshal array into field texts of type []string"),
    (b'{"by_name": {"a": {}}}', "json: cannot unmarshal object into field by_name of type map[string]string"),
    (b"[" * 100_000, "exceeded max depth"),
])  # fmt: skip
def test_what_cannot_be_read_is_told(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_body(body, Fields)
    assert caught.value.message == f"Poorly formatted JSON. {reason}"


@pytest.mark.parametrize(("body", "fields"), [
    (
        b'{"TEXT": "a", "Number": 7, "other": [{}], "Texts": ["a", null], "switch": null, "BY_NAME": {"A": "b"}}',
        Fields("a", 7, None, ("a", ""), {"A": "b"}),
    ),
    (b'{"text": "a"} and more', Fields("a")),
    (b"null", Fields()),
    (rb'{"text": "a\ud800b"}', Fields("a\ufffdb")),
    (b'{"text": "a", "TEXT": "b", "Text": "c"}', Fields("c")),
    (b'{"text": "a", "TEXT": "b", "text": "c"}', Fields("c")),
    (b'{"text": "a\xffb"}', Fields("a\ufffdb")),
])  # fmt: skip
def test_a_body_is_read_as_the_reference_reads_it(body: bytes, fields: Fields) -> None:
    assert read_body(body, Fields) == fields


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0 tfn1-e.', max_size=40).map(str.encode))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        read_body(body, Fields)
    except BadRequest as error:
        assert error.message.startswith("Poorly formatted JSON. ")


ROWS = [
    (errors.BadRequest("No certificate provided"), 400, "BAD REQUEST", "No certificate provided"),
    (errors.NotAuthenticated("Wrong Credentials"), 401, "UNAUTHORIZED", "Wrong Credentials"),
    (errors.CertificateRefused("x"), 403, "ACCESS_FORBIDDEN", "x"),
    (errors.NotAllowed(), 403, "ACCESS_FORBIDDEN", "Access to this resource is forbidden"),
    (errors.NotFound("Host was not found"), 404, "NOT FOUND", "Host was not found"),
    (MethodNotAllowed(("GET",)), 405, "METHOD NOT ALLOWED", "Method not allowed"),
    (errors.AlreadyExists("x"), 409, "CONFLICT", "x"), (errors.Conflict("x"), 409, "CONFLICT", "x"),
    (errors.TooLarge(), 413, "REQUEST ENTITY TOO LARGE", "Message size is too large"),
    (errors.Unprocessable("x"), 422, "UNPROCESSABLE ENTITY", "x"),
    (errors.RateLimited("x"), 429, "TOO MANY REQUESTS", "x"),
    (errors.RegistryUnavailable("x"), 500, "INTERNAL SERVER ERROR", "Database Error: x"),
    (errors.Unavailable("Backend error"), 500, "INTERNAL SERVER ERROR", "Internal Error: Backend error"),
    (crls.Doubt.unreachable("u").error, 500, "INTERNAL SERVER ERROR", "Internal Error: Could not access CRL u"),
    (
        errors.Unavailable("Unable to read CRL Data"), 500, "INTERNAL SERVER ERROR",
        "Internal Error: Unable to read CRL Data",
    ),
    (errors.Damaged("x"), 500, "INTERNAL SERVER ERROR", "Internal Error: x"),
    (ValueError("never told"), 500, "INTERNAL SERVER ERROR", "Internal Error: the service failed"),
    (errors.ServiceFailed("x"), 502, "BAD GATEWAY", "x"), (errors.Overloaded("x"), 503, "SERVICE UNAVAILABLE", "x"),
    (errors.ServiceTimeout("x"), 504, "GATEWAY TIMEOUT", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "code", "words", "message"), ROWS, ids=lambda value: str(value)[:20])
def test_each_error_has_its_envelope(error: Exception, code: int, words: str, message: str) -> None:
    refused = refusal(error)
    assert refused.code == code
    told = json.loads(refused.body)["error"]
    assert list(told.items()) == [("message", message), ("code", code), ("status", words)]
    assert refused.body.startswith(b'{\n "error": {\n  "message": ')
    if code in (429, 503):
        assert dict(refused.headers)[b"retry-after"] == b"2", "who is turned away is told when to come back"


def test_every_class_of_error_has_a_row() -> None:
    def all_below(kind: type[errors.AmsError]) -> list[type[errors.AmsError]]:
        return [below for each in kind.__subclasses__() for below in (each, *all_below(each))]

    ours = [each for each in all_below(errors.AmsError) if each.__module__ == "ams.core.errors"]
    assert [each for each in ours if not any(base in CODES for base in each.__mro__)] == []
    assert WORDS.keys() >= set(CODES.values())


WRONG = (401, "Wrong Credentials")


class UsersOfAms:
    def __init__(self) -> None:
        self.away = False

    async def find_user(self, token: str) -> tuple[str, bool] | None:
        if self.away:
            raise ServiceFailed("AMS cannot be asked whose key this is")
        return {"of-an-admin": ("ada", True), "of-a-user": ("ben", False)}.get(token)


def test_a15_headers_are_looked_at_before_the_query() -> None:
    header, bearer = (b"x-api-key", b"first"), (b"authorization", b"bearer  second")
    assert key_of([bearer, header], b"key=third") == "first"
    assert key_of([bearer], b"key=third") == "second"
    assert key_of([(b"authorization", b"Basic x")], b"a=b&key=th%2Bird") == "th+ird"
    assert key_of([(b"x-api-key", b"")], b"") == ""


async def test_a15_the_management_key_opens_by_each_way_and_nothing_else_does(quick_service: Service) -> None:
    get = quick_service.client.get
    for where in ({"headers": {"x-api-key": MANAGEMENT_KEY}}, {"params": {"key": MANAGEMENT_KEY}}):
        assert (await get("/v1/bindings", **where)).status_code == 200
    assert (await get("/v1/bindings", headers={"authorization": f"Bearer {MANAGEMENT_KEY}"})).status_code == 200
    for key in ("", "wrong", "x" * 2000, "gr\u00fcn", MANAGEMENT_KEY + "x"):
        assert error(await get("/v1/bindings", params={"key": key})) == WRONG
    assert error(await quick_service.client.post("/v1/service-types", content=b"no json")) == WRONG


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


async def test_the_release_is_told_with_a_right_key_only(quick_service: Service) -> None:
    without = (await quick_service.call("GET", "/version", key="")).json()
    assert (await quick_service.call("GET", "/version", key="wrong")).json() == without
    told = (await quick_service.call("GET", "/version")).json()
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
        assert await users.find_user("t") == ("ada", True)
        assert await users.find_user("other") is None
    now[0] += 10
    await users.find_user("t")
    assert asked == ["t", "other", "t"]


async def test_a_real_ams_says_whose_a_token_is(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "ams") as ams:
        ben = ams.ask("POST", "/users/ben", {"service_roles": ["push_worker"]})["token"]
        rights = {"rights": [{"action": "*", "resource": "*"}]}
        reduced = ams.ask("POST", "/users/admin/tokens/reduced", rights)["token"]
        users = AmsUsers(ams.run.base_url)
        admin = await users.find_user(ams.token)
        assert admin is not None
        assert admin[1]
        assert await users.find_user(ben) == ("ben", False)
        assert await users.find_user(reduced) == ("admin", False)
        assert await users.find_user("0" * 64) is None
    with pytest.raises(ServiceFailed):
        await AmsUsers("https://127.0.0.1:1").find_user("token")  # no refusal
