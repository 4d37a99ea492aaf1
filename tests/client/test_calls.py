"""Every call to both services as it leaves, beside the line of the contract it comes from."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.client import wire
from ams.client.errors import InvalidInput
from ams.client.wire import authn, list_topics

MESSAGE = wire.message(b"hi", {"k": "v"})
EMPTY = None
SUBJECT = "CN=12345,O=Acme\\, Inc. \\+ Co,C=GR,DC=v1+DC=v2"
P = "/v1/projects/P"
RULE = wire.RoleRule(entitlement="urn:a:group:b", project="P", roles=["publisher"])
ISSUER = wire.Issuer(name="I", url="https://issuer.example", audiences=["ams"], client_secret="***", roles=[RULE])
ISSUER_BODY = {
    "url": "https://issuer.example", "audiences": ["ams"], "clients": [], "jwks_url": "", "introspect": "never",
    "introspection_url": "", "client_id": "", "client_secret": "***", "create_users": False,
    "entitlement_claims": ["entitlements", "eduperson_entitlement"],
    "roles": [{"entitlement": "urn:a:group:b", "project": "P", "roles": ["publisher"]}],
}  # fmt: skip

CALLS: list[tuple[wire.Call[Any], str, str, object]] = [
    # contract 7
    (wire.list_projects(), "GET", "/v1/projects", EMPTY),
    (wire.get_project("P"), "GET", P, EMPTY),
    (wire.create_project("P"), "POST", P, {"description": ""}),
    (wire.create_project("P", "for tests"), "POST", P, {"description": "for tests"}),
    (wire.update_project("P", name="Q"), "PUT", P, {"name": "Q"}),
    (wire.delete_project("P"), "DELETE", P, EMPTY),
    # contract 7.1
    (wire.list_members("P"), "GET", f"{P}/members", EMPTY),
    (wire.get_member("P", "U"), "GET", f"{P}/members/U", EMPTY),
    (wire.create_member("P", "U", ["consumer"], email="u@site.example"), "POST", f"{P}/members/U",
        {"projects": [{"project": "P", "roles": ["consumer"]}], "email": "u@site.example"}),
    (wire.update_member("P", "U", []), "PUT", f"{P}/members/U", {"projects": [{"project": "P", "roles": []}]}),
    (wire.add_member("P", "U", ["publisher"]), "POST", f"{P}/members/U:add", {"roles": ["publisher"]}),
    (wire.remove_member("P", "U"), "POST", f"{P}/members/U:remove", EMPTY),
    # contract 5
    (wire.list_users(), "GET", "/v1/users", EMPTY),
    (wire.get_user("U"), "GET", "/v1/users/U", EMPTY),
    (wire.get_user_by_uuid("7a3c-1"), "GET", "/v1/users:byUUID/7a3c-1", EMPTY),
    (wire.get_user_by_token("abc123"), "GET", "/v1/users:byToken/abc123", EMPTY),
    (wire.get_profile(), "GET", "/v1/users/profile", EMPTY),
    (wire.create_user("U"), "POST", "/v1/users/U", {}),
    (wire.create_user("U", wire.UserDetails(email="u@site.example", service_roles=["service_admin"])),
        "POST", "/v1/users/U", {"email": "u@site.example", "service_roles": ["service_admin"]}),
    (wire.update_user("U", wire.UserDetails(name="V", projects=[])), "PUT", "/v1/users/U",
        {"name": "V", "projects": []}),
    (wire.refresh_token("U"), "POST", "/v1/users/U:refreshToken", EMPTY),
    (wire.delete_user("U"), "DELETE", "/v1/users/U", EMPTY),
    # our own: named tokens, and identity bindings
    (wire.list_tokens("U"), "GET", "/v1/users/U/tokens", EMPTY),
    (wire.get_token("U", "N"), "GET", "/v1/users/U/tokens/N", EMPTY),
    (wire.create_token("U", "N"), "POST", "/v1/users/U/tokens/N", {}),
    (wire.create_token("U", "N", public_key="PEM"), "POST", "/v1/users/U/tokens/N", {"public_key": "PEM"}),
    (wire.create_token("U", "N", expires_in=60, rights=[wire.Right(action="topics:publish", resource="*")]),
        "POST", "/v1/users/U/tokens/N",
        {"expires_in": 60, "rights": [{"action": "topics:publish", "resource": "*"}]}),
    (wire.create_token("U", "N", expires_on="2030-05-01T00:00:00Z"), "POST", "/v1/users/U/tokens/N",
        {"expires_on": "2030-05-01T00:00:00Z"}),
    (wire.revoke_token("U", "N"), "DELETE", "/v1/users/U/tokens/N", EMPTY),
    (wire.list_bindings("U"), "GET", "/v1/users/U/bindings", EMPTY),
    (wire.create_binding("U", "B", "https://issuer.example", "jane"), "POST", "/v1/users/U/bindings/B",
        {"issuer": "https://issuer.example", "subject": "jane"}),
    (wire.delete_binding("U", "B"), "DELETE", "/v1/users/U/bindings/B", EMPTY),
    (wire.list_issuers(), "GET", "/v1/issuers", EMPTY),
    (wire.get_issuer("I"), "GET", "/v1/issuers/I", EMPTY),
    (wire.create_issuer(ISSUER), "POST", "/v1/issuers/I", ISSUER_BODY),
    (wire.update_issuer(ISSUER), "PUT", "/v1/issuers/I", ISSUER_BODY),
    (wire.delete_issuer("I"), "DELETE", "/v1/issuers/I", EMPTY),
    # contract 6
    (wire.register("U"), "POST", "/v1/registrations", {"name": "U"}),
    (wire.register("U", wire.UserDetails(email="u@site.example", service_roles=["service_admin"])),
        "POST", "/v1/registrations", {"name": "U", "email": "u@site.example"}),
    (wire.list_registrations(), "GET", "/v1/registrations", EMPTY),
    (wire.get_registration("7a3c-1"), "GET", "/v1/registrations/7a3c-1", EMPTY),
    (wire.accept_registration("7a3c-1"), "POST", "/v1/registrations/7a3c-1:accept", EMPTY),
    (wire.decline_registration("7a3c-1", "why"), "POST", "/v1/registrations/7a3c-1:decline", {"comment": "why"}),
    (wire.delete_registration("7a3c-1"), "DELETE", "/v1/registrations/7a3c-1", EMPTY),
    # contract 8
    (wire.list_topics("P"), "GET", f"{P}/topics", EMPTY),
    (wire.get_topic("P", "T"), "GET", f"{P}/topics/T", EMPTY),
    (wire.create_topic("P", "T"), "PUT", f"{P}/topics/T", EMPTY),
    (wire.delete_topic("P", "T"), "DELETE", f"{P}/topics/T", EMPTY),
    (wire.list_topic_subscriptions("P", "T"), "GET", f"{P}/topics/T/subscriptions", EMPTY),
    (wire.get_topic_acl("P", "T"), "GET", f"{P}/topics/T:acl", EMPTY),
    (wire.modify_topic_acl("P", "T", ["U"]), "POST", f"{P}/topics/T:modifyAcl", {"authorized_users": ["U"]}),
    (wire.create_topic("P", "T", schema="X"), "PUT", f"{P}/topics/T", {"schema": "projects/P/schemas/X"}),
    (wire.attach_schema("P", "T", "X"), "POST", f"{P}/topics/T:attachSchema", {"schema": "projects/P/schemas/X"}),
    (wire.detach_schema("P", "T"), "POST", f"{P}/topics/T:detachSchema", EMPTY),
    # contract 15, and our own schema calls
    (wire.list_schemas("P"), "GET", f"{P}/schemas", EMPTY),
    (wire.get_schema("P", "X"), "GET", f"{P}/schemas/X", EMPTY),
    (wire.create_schema("P", "X", {"type": "object"}), "POST", f"{P}/schemas/X",
        {"type": "json", "schema": {"type": "object"}}),
    (wire.create_schema("P", "X", attributes={"closed": True}), "POST", f"{P}/schemas/X",
        {"type": "json", "attributes": {"closed": True}}),
    (wire.update_schema("P", "X", name="Y"), "PUT", f"{P}/schemas/X", {"name": "projects/P/schemas/Y"}),
    (wire.update_schema("P", "X", {"type": "int"}, kind="avro", attributes={}), "PUT", f"{P}/schemas/X",
        {"type": "avro", "schema": {"type": "int"}, "attributes": {}}),
    (wire.delete_schema("P", "X"), "DELETE", f"{P}/schemas/X", EMPTY),
    (wire.validate_document("P", "X", b'{"a": 1}'), "POST", f"{P}/schemas/X:validate", {"a": 1}),
    (wire.validate_datum("P", "X", b"hi"), "POST", f"{P}/schemas/X:validate", {"data": "aGk="}),
    (wire.validate_message("P", "X", MESSAGE), "POST", f"{P}/schemas/X:validate",
        {"data": "aGk=", "attributes": {"k": "v"}}),
    (wire.dry_run("P", "X", "T", 5), "POST", f"{P}/schemas/X:dryRun",
        {"topic": "projects/P/topics/T", "messages": 5}),
    # contract 12.2
    (wire.publish("P", "T", [MESSAGE, wire.Message(data="bXkgZGF0YQ==")]), "POST", f"{P}/topics/T:publish",
        {"messages": [{"attributes": {"k": "v"}, "data": "aGk="}, {"data": "bXkgZGF0YQ=="}]}),
    # contract 9
    (wire.list_subscriptions("P"), "GET", f"{P}/subscriptions", EMPTY),
    (wire.get_subscription("P", "S"), "GET", f"{P}/subscriptions/S", EMPTY),
    (wire.create_subscription("P", "S", "T"), "PUT", f"{P}/subscriptions/S", {"topic": "projects/P/topics/T"}),
    (wire.create_subscription("P", "S", "T", ack_deadline=0), "PUT", f"{P}/subscriptions/S",
        {"topic": "projects/P/topics/T", "ackDeadlineSeconds": 0}),
    (wire.create_subscription("P", "S", "T", parallel=wire.ParallelOptions()), "PUT", f"{P}/subscriptions/S",
        {"topic": "projects/P/topics/T", "type": "parallel"}),
    (wire.create_subscription("P", "S", "T", parallel=wire.ParallelOptions(retry_policy=wire.RetryBackoff("1s"),
        dead_letter_policy=wire.DeadLetterPolicy("D", 7), filter="attributes:a", enable_message_ordering=True,
        expiration_policy=wire.ExpirationPolicy("86400s"))), "PUT", f"{P}/subscriptions/S",
        {"topic": "projects/P/topics/T", "type": "parallel", "retryPolicy": {"minimumBackoff": "1s"},
        "deadLetterPolicy": {"deadLetterTopic": "D", "maxDeliveryAttempts": 7}, "filter": "attributes:a",
        "enableMessageOrdering": True, "expirationPolicy": {"ttl": "86400s"}}),
    (wire.update_subscription("P", "S", wire.SubscriptionChanges(retry_policy=None, retain_acked_messages=False)),
        "POST", f"{P}/subscriptions/S:update", {"retryPolicy": None, "retainAckedMessages": False}),
    # contract 19.6
    (wire.detach_subscription("P", "S"), "POST", f"{P}/subscriptions/S:detach", EMPTY),
    # contract 19.3
    (wire.list_snapshots("P"), "GET", f"{P}/snapshots", EMPTY),
    (wire.get_snapshot("P", "N"), "GET", f"{P}/snapshots/N", EMPTY),
    (wire.create_snapshot("P", "N", "S"), "PUT", f"{P}/snapshots/N", {"subscription": "S"}),
    (wire.seek("P", "S", snapshot="N"), "POST", f"{P}/subscriptions/S:seek", {"snapshot": "N"}),
    (wire.delete_snapshot("P", "N"), "DELETE", f"{P}/snapshots/N", EMPTY),
    (wire.delete_subscription("P", "S"), "DELETE", f"{P}/subscriptions/S", EMPTY),
    (wire.get_subscription_acl("P", "S"), "GET", f"{P}/subscriptions/S:acl", EMPTY),
    (wire.modify_subscription_acl("P", "S", []), "POST", f"{P}/subscriptions/S:modifyAcl", {"authorized_users": []}),
    (wire.modify_ack_deadline("P", "S", 60), "POST", f"{P}/subscriptions/S:modifyAckDeadline",
        {"ackDeadlineSeconds": 60}),
    # contract 13
    (wire.modify_push_config("P", "S", wire.PushConfig(push_endpoint="https://r.example/",
        retry_policy=wire.RetryPolicy(period=300))), "POST", f"{P}/subscriptions/S:modifyPushConfig",
        {"pushConfig": {"pushEndpoint": "https://r.example/", "retryPolicy": {"period": 300}}}),
    (wire.modify_push_config("P", "S", wire.PushConfig(type="mattermost", mattermost_url="https://c.example/",
        base64_decode=False)), "POST", f"{P}/subscriptions/S:modifyPushConfig",
        {"pushConfig": {"type": "mattermost", "mattermostUrl": "https://c.example/", "base64Decode": False}}),
    (wire.modify_push_config("P", "S", None), "POST", f"{P}/subscriptions/S:modifyPushConfig", {"pushConfig": {}}),
    (wire.verify_push_endpoint("P", "S"), "POST", f"{P}/subscriptions/S:verifyPushEndpoint", EMPTY),
    (wire.create_subscription("P", "S", "T", push=wire.PushConfig(push_endpoint="https://r.example/",
        authorization_header=wire.AuthorizationHeader(type="disabled"))), "PUT", f"{P}/subscriptions/S",
        {"topic": "projects/P/topics/T", "pushConfig": {"pushEndpoint": "https://r.example/", "authorizationHeader":
        {"type": "disabled"}}}),
    # contract 10 and 11; both values of a pull are strings (clients.md, R3)
    (wire.pull("P", "S"), "POST", f"{P}/subscriptions/S:pull", {"maxMessages": "1", "returnImmediately": "false"}),
    (wire.pull("P", "S", max_messages=100, wait=False), "POST", f"{P}/subscriptions/S:pull",
        {"maxMessages": "100", "returnImmediately": "true"}),
    (wire.acknowledge("P", "S", [wire.ack_id("P", "S", 7)]), "POST", f"{P}/subscriptions/S:acknowledge",
        {"ackIds": ["projects/P/subscriptions/S:7"]}),
    (wire.get_offsets("P", "S"), "GET", f"{P}/subscriptions/S:offsets", EMPTY),
    (wire.time_to_offset("P", "S", datetime(2024, 1, 2, tzinfo=UTC)), "GET", f"{P}/subscriptions/S:timeToOffset",
        EMPTY),
    (wire.modify_offset("P", "S", 0), "POST", f"{P}/subscriptions/S:modifyOffset", {"offset": 0}),
    # ours
    (wire.modify_topic_retention("P", "T", 60), "POST", f"{P}/topics/T:modifyRetention", {"retentionSeconds": 60}),
    (wire.get_project_quotas("P"), "GET", f"{P}:quotas", None),
    (wire.modify_project_quotas("P", {"topics": None}), "POST", f"{P}:modifyQuotas", {"quotas": {"topics": None}}),
    (wire.modify_project_retention("P", 0), "POST", f"{P}:modifyRetention", {"retentionSeconds": 0}),
    (wire.diagnose("P", "S"), "GET", f"{P}/subscriptions/S:doctor", EMPTY),
    (wire.diagnose_service(), "GET", "/v1/doctor", EMPTY),
    (wire.get_push_status("P", "S"), "GET", f"{P}/subscriptions/S:pushStatus", EMPTY),
    (wire.lease_push("h", ["1", "2"], states={"1": {"batch": 3}}, version="v"), "POST", "/v1/push:lease",
        {"holder": "h", "held": ["1", "2"], "states": {"1": {"batch": 3}}, "leaving": False, "version": "v"}),
    (wire.get_topic_offsets("P", "T"), "GET", f"{P}/topics/T:offsets", EMPTY),
    (wire.read_topic("P", "T"), "GET", f"{P}/topics/T:read", EMPTY),
    (wire.seek("P", "S", offset=0), "POST", f"{P}/subscriptions/S:seek", {"offset": 0}),
    (wire.seek("P", "S", time=datetime(2024, 1, 2, tzinfo=UTC)), "POST", f"{P}/subscriptions/S:seek",
        {"time": "2024-01-02T00:00:00.000Z"}),
    # contract 14.1 to 14.4
    (wire.get_service_metrics(), "GET", "/v1/metrics", EMPTY),
    (wire.get_project_metrics("P"), "GET", f"{P}:metrics", EMPTY),
    (wire.get_topic_metrics("P", "T"), "GET", f"{P}/topics/T:metrics", EMPTY),
    (wire.get_subscription_metrics("P", "S"), "GET", f"{P}/subscriptions/S:metrics", EMPTY),
    (wire.get_va_metrics(), "GET", "/v1/metrics/va_metrics", EMPTY),
    (wire.get_usage_report(), "GET", "/v1/users/usageReport", EMPTY),
    # contract 14.5 and 14.6
    (wire.get_status(), "GET", "/v1/status", EMPTY),
    (wire.get_version(), "GET", "/v1/version", EMPTY),
    # the certificate service
    (authn.create_service_type("ams", ["ams.example"], verify_client_host=True), "POST", "/v1/service-types",
        {"name": "ams", "hosts": ["ams.example"], "auth_types": ["x509"], "auth_method": "headers", "type": "ams",
        "verify_client_host": True}),
    (authn.create_binding("site.one", "u-1", "ams.example", SUBJECT, "id-1", issuer="CN=CA"), "POST",
        "/v1/bindings/site.one", {"service_uuid": "u-1", "host": "ams.example", "auth_identifier": SUBJECT,
        "unique_key": "id-1", "auth_type": "x509", "issuer": "CN=CA"}),
    (authn.update_binding("jane", authn.BindingFields(unique_key="id-2", issuer="")), "PUT", "/v1/bindings/jane",
        {"unique_key": "id-2", "issuer": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "method", "path", "body"), CALLS, ids=lambda each: getattr(each, "path", ""))
def test_a_call_leaves_as_the_contract_says(call: wire.Call[Any], method: str, path: str, body: object) -> None:
    assert (call.method, call.path) == (method, path)
    assert (json.loads(call.body) if call.body is not None else EMPTY) == body


def test_a_publish_under_a_key_is_repeatable_and_one_without_is_not() -> None:
    with_key, without = wire.publish("P", "T", [MESSAGE], key="k-1"), wire.publish("P", "T", [MESSAGE])
    assert (with_key.headers, with_key.may_repeat) == ({"Idempotency-Key": "k-1"}, True)
    assert (without.headers, without.may_repeat) == ({}, False)


def test_only_what_does_no_harm_twice_is_repeatable() -> None:
    assert {call.path.rpartition(":")[2] for call, *_ in CALLS if call.may_repeat and call.method != "GET"} == {
        "pull", "acknowledge",
    }  # fmt: skip
    assert all(call.may_repeat for call, *_ in CALLS if call.method == "GET")


MOMENT = datetime.fromisoformat("2024-01-02T05:04:05.678901+02:00")
WINDOW = {"start_date": "2024-01-01", "end_date": "2024-01-31", "projects": "P,Q"}

QUERIES: list[tuple[wire.Call[Any], dict[str, str]]] = [
    (wire.list_topics("P"), {}),
    (wire.list_topics("P", page_size=2, page_token="bmV4dA=="), {"pageSize": "2", "pageToken": "bmV4dA=="}),
    (wire.list_users(project="P", details=True), {"project": "P", "details": "true"}),
    (wire.list_members("P", details=True, page_size=1), {"details": "true", "pageSize": "1"}),
    (wire.list_registrations(), {}),
    (wire.list_registrations(status="pending", name="U"), {"status": "pending", "name": "U"}),
    (wire.list_registrations(email="e", organization="o", activation_token="a"),
        {"email": "e", "organization": "o", "activation_token": "a"}),
    (wire.read_topic("P", "T", start=0, stop=9, most=5, subscription="S"),
        {"from": "0", "to": "9", "max": "5", "subscription": "S"}),
    (wire.read_topic("P", "T"), {}),
    (wire.get_topic_offsets("P", "T"), {}),
    (wire.get_va_metrics(start="2024-01-01", end="2024-01-31", projects=["P", "Q"]), WINDOW),
    (wire.get_usage_report(end="2024-01-31"), {"end_date": "2024-01-31"}),
    (wire.get_va_metrics(), {}),
    # a time travels in UTC with three digits
    (wire.time_to_offset("P", "S", MOMENT), {"time": "2024-01-02T03:04:05.678Z"}),
    (wire.time_to_offset("P", "S", MOMENT.replace(microsecond=0)), {"time": "2024-01-02T03:04:05.000Z"}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "query"), QUERIES, ids=lambda each: getattr(each, "path", ""))
def test_a_query_says_only_what_was_asked_for(call: wire.Call[Any], query: dict[str, str]) -> None:
    assert call.query == query


@pytest.mark.parametrize("name", ["", "a/b", "a:delete", "..", "a b", "a?b", "ä", "a\n", "a" * 256])
def test_a_name_that_would_ask_for_something_else_is_refused_before_sending(name: str) -> None:
    for kind, call in (
        ("project", lambda: wire.get_project(name)), ("topic", lambda: wire.publish("P", name, [MESSAGE])),
        ("topic", lambda: wire.create_subscription("P", "S", name)), ("subscription", lambda: wire.pull("P", name)),
        ("user", lambda: wire.refresh_token(name)), ("token", lambda: wire.get_user_by_token(name)),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=f"Invalid {kind} name"):
            call()


def test_the_plus_of_a_subject_is_sent_so_that_it_stays_one() -> None:
    call = authn.find_binding("ams", "ams.example", SUBJECT)
    url = str(httpx.Request(call.method, f"https://h{call.path}", params=dict(call.query)).url)
    assert parse_qs(urlsplit(url).query) == {"authID": [SUBJECT]}
    assert url.count("%2B") == SUBJECT.count("+")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "a:b", "ä"])
def test_a7_nothing_new_gets_a_name_that_no_path_could_hold(name: str) -> None:
    with pytest.raises(InvalidInput):
        authn.create_binding(name, "u", "h", "CN=x", "k")
    with pytest.raises(InvalidInput):
        authn.create_key(name, "read")


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name and name not in (".", "..")))
def test_a7_what_was_imported_under_another_name_can_still_be_asked_for(name: str) -> None:
    try:
        path = authn.get_binding(name).path
    except UnicodeEncodeError:
        return  # lone surrogates are no text

    assert path.isascii()
    assert path.count("/") == 3
    assert httpx.URL(f"https://h{path}").path == f"/v1/bindings/{name}"


def test_calls_know_which_service_they_are_for() -> None:
    assert authn.is_for_authn(authn.list_bindings())
    assert authn.is_for_authn(authn.delete_auth_method("ams", "h"))
    assert not authn.is_for_authn(list_topics("p"))


def test_no_secret_is_shown_by_repr() -> None:
    method = authn.AuthMethod(
        host="h", port=1, service_uuid="u", type="headers", uuid="m", access_key="hush", headers={"x": "hush"}
    )

    assert "hush" not in repr(method)
    assert "hush" not in repr(authn.Token(token="hush"))
    assert "hush" not in repr(authn.Key(name="n", scope="read", key="hush"))
    assert authn.without_secrets(method).headers == {"x": ""}
