"""The contract's examples of answers, read and written again."""

import json

import msgspec
import pytest

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


@pytest.mark.parametrize(("text", "expected"), DECODED)
def test_data_is_decoded_as_the_service_does(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            wire.Message(data=text).payload()
    else:
        assert wire.Message(data=text).payload() == expected


def test_a_named_token_with_all_rights_is_told_from_one_with_some() -> None:
    some = b'{"name": "N", "user": "U", "rights": [{"action": "topics:publish", "resource": "projects/P"}]}'
    every = b'{"name": "N", "user": "U", "created_on": "2024-03-05T10:20:30Z", "token": "s3cret"}'

    assert wire.get_token("U", "N").read(some).rights == [wire.Right(action="topics:publish", resource="projects/P")]
    token = wire.create_token("U", "N").read(every)
    assert (token.rights, token.token) == (None, "s3cret")
    assert "s3cret" not in repr(token)
