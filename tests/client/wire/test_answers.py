"""The contract's examples of answers, read and written again."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.client import wire
from tests.support.texts import DECODED


def test_a_pull_reads_as_the_contract_shows_it() -> None:
    body = b"""{"receivedMessages": [{"ackId": "projects/P/subscriptions/S:7",
      "message": {"messageId": "7", "attributes": {"k": "v"}, "data": "aGk=",
      "publishTime": "2016-02-24T11:55:09.786127994Z"}}]}"""

    received = wire.pull("P", "S").read(body)

    [only] = received.received_messages
    assert only.ack_id == "projects/P/subscriptions/S:7"
    assert only.message.payload() == b"hi"
    assert only.message.attributes == {"k": "v"}
    assert only.message.publish_time == "2016-02-24T11:55:09.786127994Z"
    assert json.loads(msgspec.json.encode(received)) == json.loads(body)


def test_a_subscription_reads_as_the_contract_shows_it() -> None:
    body = b"""{"name": "/projects/P/subscriptions/S", "topic": "/projects/P/topics/T",
     "pushConfig": {"type": "", "pushEndpoint": "", "maxMessages": 0, "authorizationHeader": {},
       "retryPolicy": {}, "verificationHash": "", "verified": false,
       "mattermostUrl": "", "mattermostUsername": "", "mattermostChannel": "",
       "base64Decode": false},
     "ackDeadlineSeconds": 10, "createdOn": "2024-03-05T10:20:30Z"}"""

    subscription = wire.get_subscription("P", "S").read(body)

    assert (subscription.name, subscription.topic) == ("/projects/P/subscriptions/S", "/projects/P/topics/T")
    assert subscription.ack_deadline_seconds == 10
    assert json.loads(msgspec.json.encode(subscription)) == json.loads(body)


def test_a_user_reads_in_full_and_in_reduced_view() -> None:
    always = {
        "uuid": "1",
        "name": "U",
        "email": "",
        "service_roles": [],
        "created_on": "2024-03-05T10:20:30Z",
        "modified_on": "2024-03-05T10:20:30Z",
    }
    membership = {"project": "P", "roles": ["consumer"], "topics": [], "subscriptions": ["S"]}
    full = always | {"token": "abc", "projects": [membership], "created_by": "admin"}

    assert wire.get_user("U").read(json.dumps(always).encode()).token == ""
    user = wire.get_user("U").read(json.dumps(full).encode())
    assert (user.token, user.created_by) == ("abc", "admin")
    assert user.projects[0].subscriptions == ["S"]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        (wire.list_topics("P"), {"topics": [], "nextPageToken": "", "totalSize": 0}),
        (wire.list_subscriptions("P"), {"subscriptions": [], "nextPageToken": "", "totalSize": 0}),
        (wire.list_users(), {"users": [], "nextPageToken": "", "totalSize": 0}),
        (wire.list_projects(), {"projects": []}),
        (wire.list_topic_subscriptions("P", "T"), {"subscriptions": ["/projects/P/subscriptions/S"]}),
        (wire.get_topic("P", "T"), {"name": "/projects/P/topics/T", "created_on": "2024-03-05T10:20:30Z"}),
        (wire.list_schemas("P"), {"schemas": []}),
        (
            wire.get_schema("P", "X"),
            {"uuid": "1", "name": "projects/P/schemas/X", "type": "json", "schema": {}, "attributes": {"closed": True}},
        ),
        (wire.validate_document("P", "X", b"1"), {"message": "Message validated successfully"}),
        (
            wire.dry_run("P", "X", "T"),
            {"checked": 2, "refused": 1, "reasons": [{"messageId": "1", "reason": "Message 1 is not valid.x"}]},
        ),
        (wire.get_topic_acl("P", "T"), {"authorized_users": []}),
        (wire.publish("P", "T", []), {"messageIds": ["0", "1"]}),
        (wire.get_offsets("P", "S"), {"max": 3, "min": 0, "current": 1}),
        (wire.get_status(), {"status": "ok", "push_functionality": "disabled"}),
    ],
)
def test_what_the_contract_promises_is_there_again_when_written(call: wire.Call[object], body: object) -> None:
    assert json.loads(msgspec.json.encode(call.read(json.dumps(body).encode()))) == body


def test_an_answer_that_misses_what_was_promised_is_not_taken() -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.pull("P", "S").read(b"{}")
    with pytest.raises(msgspec.DecodeError):
        wire.list_topics("P").read(b'{"topics": null, "nextPageToken": "", "totalSize": 0}')


def test_unknown_fields_are_ignored() -> None:
    assert wire.publish("P", "T", []).read(b'{"messageIds": ["0"], "more": {}}').message_ids == ["0"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"message": "deactivated"}'])
def test_an_answer_that_says_nothing_is_read_whatever_it_holds(body: bytes) -> None:
    assert wire.delete_subscription("P", "S").read(body) is None


@given(st.binary(), st.dictionaries(st.text(), st.text()))
def test_payload_and_attributes_survive_the_wire(payload: bytes, attributes: dict[str, str]) -> None:
    sent = msgspec.json.encode(wire.message(payload, attributes))

    received = msgspec.json.decode(sent, type=wire.Message)

    assert received.payload() == payload
    assert received.attributes == attributes


@pytest.mark.parametrize(("text", "expected"), DECODED)
def test_data_is_decoded_as_the_service_does(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            wire.Message(data=text).payload()
    else:
        assert wire.Message(data=text).payload() == expected


def test_metrics_read_as_the_contract_shows_them() -> None:
    metric = {"metric": "topic.publishing_rate", "metric_type": "rate", "value_type": "float64",
              "resource_type": "topic", "resource_name": "T", "description": "A rate.",
              "timeseries": [{"timestamp": "2024-03-05T10:20:30Z", "value": 0.5}]}  # fmt: skip
    body = json.dumps({"metrics": [metric]}).encode()

    metrics = wire.get_topic_metrics("P", "T").read(body)

    assert metrics.metrics[0].timeseries[0].value == 0.5
    assert json.loads(msgspec.json.encode(metrics)) == json.loads(body)


def test_usage_reads_as_the_contract_shows_it() -> None:
    body = b"""{"projects_metrics": {"projects": [{"project": "P", "message_count": 120, "average_daily_messages": 3.88,
        "topics_count": 4, "subscriptions_count": 7, "users_count": 5}],
      "total_message_count": 120, "average_daily_messages": 3.88},
     "total_users_count": 5, "total_topics_count": 4, "total_subscriptions_count": 7}"""

    usage = wire.get_va_metrics().read(body)

    assert usage.projects_metrics.projects[0].average_daily_messages == 3.88
    assert json.loads(msgspec.json.encode(usage)) == json.loads(body)
    report = wire.get_usage_report().read(b'{"va_metrics": %b, "operational_metrics": {"metrics": []}}' % body)
    assert (report.va_metrics, report.operational_metrics.metrics) == (usage, [])


def test_a_named_token_with_all_rights_is_told_from_one_with_some() -> None:
    some = b'{"name": "N", "user": "U", "rights": [{"action": "topics:publish", "resource": "projects/P"}]}'
    every = b'{"name": "N", "user": "U", "created_on": "2024-03-05T10:20:30Z", "token": "s3cret"}'

    assert wire.get_token("U", "N").read(some).rights == [wire.Right(action="topics:publish", resource="projects/P")]
    token = wire.create_token("U", "N").read(every)
    assert (token.rights, token.token) == (None, "s3cret")
    assert "s3cret" not in repr(token)


def test_an_issuer_reads_with_the_state_of_its_keys() -> None:
    body = b"""{"name": "egi", "source": "settings", "url": "https://issuer.example", "audiences": ["ams"],
      "clients": [], "jwks_url": "", "introspect": "never", "introspection_url": "", "client_id": "ams",
      "client_secret": "***", "create_users": true, "entitlement_claims": ["entitlements"],
      "roles": [{"entitlement": "urn:a:group:b", "project": "P", "roles": ["publisher"]}],
      "keys": {"ids": ["k1"], "fetched_on": "2024-03-05T10:20:30Z"}}"""

    issuer = wire.get_issuer("egi").read(body)

    assert (issuer.source, issuer.keys.ids, issuer.keys.failure) == ("settings", ["k1"], "")
    assert json.loads(msgspec.json.encode(issuer)) == json.loads(body)
    assert "***" not in repr(issuer)
