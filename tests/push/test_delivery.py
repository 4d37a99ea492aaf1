"""Deliveries: bodies, headers, Google's format, and descriptions of failures (push contract 10 and 11)."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ams.core.messages import Fragment
from ams.core.push_config import MATTERMOST, GoogleForm
from ams.push.attempts import MAX_BYTES, FailureTexts, repeats
from ams.push.delivery_request import (
    NO_TOKEN,
    PREFIX,
    Body,
    Deliveries,
    Delivery,
    GoogleDeliveries,
    google_seconds,
    key,
    new_secret,
    signatures,
)
from ams.push.sender import NotAsked, _encode_headers
from ams.push.upstream import Pulled, Target
from tests.push.keepers import make_pulled, target

TIME = "2026-01-01T00:00:00Z"
SUBSCRIPTION = "projects/P/subscriptions/S"
HOOK = "https://chat.example/hooks/xyzhookidentity"
ATTRIBUTES = st.dictionaries(st.text(), st.text(), max_size=3)
KEYS = st.just("") | st.text(max_size=5)


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()


def body(*messages: Pulled, **config: object) -> Body:
    return Deliveries(target(**config)).body(messages)


ITEM = (
    b'{"message":{"messageId":"7","orderingKey":"bed 4","attributes":{"k":"v"},"data":"aGk=",'
    b'"publishTime":"2026-01-01T00:00:00Z"},"subscription":"projects/P/subscriptions/S"}'
)


@pytest.mark.parametrize(("most", "content"), [(1, ITEM), (2, b'{"messages":[' + ITEM + b"]}")], ids=["object", "list"])
def test_a_configuration_of_one_message_sends_an_object_and_of_more_a_list(most: int, content: bytes) -> None:
    """P7: the subscription without a leading slash, and nothing of a host."""
    assert body(make_pulled(7, "aGk=", {"k": "v"}, "bed 4"), max_messages=most).content == content


def test_empty_ids_times_and_attributes_are_left_out() -> None:
    message_ = Pulled(0, "", "", Fragment(b'"data":""'))

    assert json.loads(body(message_).content)["message"] == {"data": ""}


@given(st.lists(st.tuples(ATTRIBUTES, st.binary(max_size=20), KEYS), min_size=1, max_size=5))
def test_bodies_hold_what_was_published_in_order(published: list[tuple[Mapping[str, str], bytes, str]]) -> None:
    messages = [make_pulled(offset, encode_data(data), each, key) for offset, (each, data, key) in enumerate(published)]

    items = json.loads(body(*messages, max_messages=5).content)["messages"]

    assert [each["subscription"] for each in items] == [SUBSCRIPTION] * len(messages)
    assert [each["message"]["messageId"] for each in items] == [str(offset) for offset in range(len(messages))]
    assert [each["message"]["data"] for each in items] == [encode_data(data) for _, data, _ in published]
    assert [each["message"].get("attributes", {}) for each in items] == [each for each, _, _ in published]
    assert [each["message"].get("orderingKey", "") for each in items] == [key for _, _, key in published]


@given(st.text(), ATTRIBUTES, KEYS)
def test_text_is_sent_decoded_where_that_is_asked_for(text: str, attributes: dict[str, str], key: str) -> None:
    made = body(make_pulled(3, encode_data(text.encode()), attributes, key), base64_decode=True)

    expected = {"messageId": "3", "data": text, "publishTime": TIME}
    expected |= {name: value for name, value in (("attributes", attributes), ("orderingKey", key)) if value}
    assert json.loads(made.content)["message"] == expected
    assert made.undecodable == 0


@pytest.mark.parametrize("data", ["/w==", "gIA=", "7aCA", "no base64", "aGk", '"aGk=', ':"aGk=', 'no "base64"\n'])
def test_what_is_no_text_is_sent_unchanged_and_counted(data: str) -> None:
    """P13: bytes that are not UTF-8 would be damaged in JSON; and invalid base64 cannot be decoded."""
    made = body(make_pulled(0, data), make_pulled(1, "aGk="), base64_decode=True, max_messages=10)

    assert [each["message"]["data"] for each in json.loads(made.content)["messages"]] == [data, "hi"]
    assert made.undecodable == 1


def post(message: Pulled, **config: object) -> Body:
    return body(message, type=MATTERMOST, mattermost_url=HOOK, **config)


@pytest.mark.parametrize(("data", "attributes", "text", "undecodable"), [
    ("aGk=", {}, "hi", 0), ("aGk=", {"bed": "roses"}, "hi", 0),
    ("", {"bed": "roses", "state": "dry"}, "bed: roses\nstate: dry", 0),
    ("ICAK", {"bed": "roses"}, "bed: roses", 0), ("", {}, "Message 7 has no text", 0), ("/w==", {}, "/w==", 1),
])  # fmt: skip
def test_mattermost_gets_the_text_or_a_note(data: str, attributes: dict[str, str], text: str, undecodable: int) -> None:
    """Mattermost refuses every post without text, which would block all later messages."""
    made = post(make_pulled(7, data, attributes), base64_decode=True)

    assert json.loads(made.content) == {"text": text}
    assert made.undecodable == undecodable


# Headers: signatures that receivers verify with the public package of Standard Webhooks


BODY = b'{"text":"\xc3\xa4"}'


def headers(*secrets: str, **config: object) -> dict[str, str]:
    made = Deliveries(target(secrets=secrets, **config))
    return dict(made.headers([make_pulled(3), make_pulled(7)], BODY, attempt=2, now=int(time.time())))


def test_a_new_secret_has_thirty_two_bytes_nobody_else_has() -> None:
    assert len(key(new_secret())) == 32
    assert new_secret() != new_secret()


@pytest.mark.parametrize(
    "text", ["", "whsec_", "abc", "whsec_!!!!", PREFIX + base64.b64encode(b"x" * 23).decode(), PREFIX + "YQ==" * 30]
)
def test_what_is_no_secret_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="a signing secret must be") as raised:
        key(text)

    assert not text.removeprefix(PREFIX) or text not in str(raised.value)


@given(st.binary(min_size=24, max_size=64), st.binary().map(lambda each: each.hex().encode()))
def test_receivers_verify_what_was_signed(secret: bytes, body: bytes) -> None:
    now = int(time.time())
    given = {"webhook-id": "P.S.0-1", "webhook-timestamp": str(now)}
    given["webhook-signature"] = signatures([secret], "P.S.0-1", now, body)

    Webhook(secret).verify(body, given, json_parse=False)


def test_p20_while_a_secret_is_replaced_receivers_verify_by_the_old_and_the_new_one() -> None:
    old, new = new_secret(), new_secret()
    made = headers(new, old)

    assert len(made["webhook-signature"].split(" ")) == 2
    for each in (old, new):
        Webhook(each).verify(BODY, made)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, made)


def test_secrets_are_not_shown_with_their_target() -> None:
    secret = new_secret()

    assert secret not in repr(target(secrets=[secret], header_value="a-header-value"))
    assert "a-header-value" not in repr(target(header_value="a-header-value"))


def test_every_delivery_says_what_it_is_and_which() -> None:
    """P20: receivers can recognise repeated messages without a change of the body."""
    made = headers(header_value="not a scheme word")

    assert abs(int(made.pop("webhook-timestamp")) - time.time()) < 60
    assert made == {
        "Content-Type": "application/json", "Authorization": "not a scheme word", "webhook-id": "P.S.3-7",
        "ams-delivery-attempt": "2",
    }  # fmt: skip
    assert "Authorization" not in headers()


def test_mattermost_gets_none_of_them_and_is_told_username_and_channel() -> None:
    made = headers(new_secret(), type=MATTERMOST, mattermost_url=HOOK, header_value="value")
    said = post(make_pulled(0), mattermost_username="ams", mattermost_channel="ops")

    assert set(made) == {"Content-Type"}
    assert json.loads(said.content) == {"text": "aGk=", "username": "ams", "channel": "ops"}


def webhook_id(of: Target) -> str:
    return dict(Deliveries(of).headers([make_pulled(0)], BODY, attempt=1, now=1))["webhook-id"]


def test_messages_of_a_topic_that_was_made_anew_have_other_ids() -> None:
    ids = [webhook_id(target(topic_id=each)) for each in ("0123456789abcdef", "fedcba9876543210")]

    assert ids == ["P.S.01234567.0-0", "P.S.fedcba98.0-0"]


@pytest.mark.parametrize("value", ["two\nlines", "ä", "\x00"])
def test_a_value_that_no_header_can_carry_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="authorization header") as raised:
        Deliveries(target(header_value=value))

    assert value not in str(raised.value)


@pytest.mark.parametrize("path", ["", "S", "/projects/P/topics/T", "projects/P/subscriptions/S"])
def test_what_is_not_the_name_of_a_subscription_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="resource name"):
        Deliveries(target(path))


# Google's format

WRAPPED, PLAIN = GoogleForm(), GoogleForm(is_wrapped=False, write_metadata=True)
SIGNED = GoogleForm(service_account="a@P.iam.gserviceaccount.com")


def delivery(message: Pulled, form: GoogleForm, *, token: str = "", counts: bool = False) -> Delivery:
    there = replace(target(google=form), counts_attempts=counts)
    return GoogleDeliveries(there, form).delivery(message, attempt=3, token=token)


def test_a_wrapped_one_says_all_of_its_message() -> None:
    made = delivery(make_pulled(7, "aGk=", {"k": "v"}, "key"), WRAPPED, counts=True)

    time = "2026-01-01T00:00:00Z"
    assert json.loads(made.body) == {
        "message": {
            "data": "aGk=", "attributes": {"k": "v"}, "messageId": "7", "message_id": "7", "publishTime": time,
            "publish_time": time, "orderingKey": "key",
        },
        "subscription": "projects/P/subscriptions/S",
        "deliveryAttempt": 3,
    }  # fmt: skip
    assert dict(made.headers) == {"User-Agent": "CloudPubSub-Google", "Content-Type": "application/json"}
    assert "deliveryAttempt" not in json.loads(delivery(make_pulled(7), WRAPPED).body), "with a dead letter policy only"


def test_data_that_is_no_base64_goes_out_as_the_text_it_is() -> None:
    message = make_pulled(7)._replace(fragment=Fragment(b'"data":"no base64!"'))

    assert delivery(message, PLAIN).body == b"no base64!"
    assert base64.b64decode(json.loads(delivery(message, WRAPPED).body)["message"]["data"]) == b"no base64!"


def test_without_metadata_headers_say_nothing_of_the_message() -> None:
    made = delivery(make_pulled(7, "aGk=", {"k": "v"}), GoogleForm(is_wrapped=False))

    assert dict(made.headers) == {"User-Agent": "CloudPubSub-Google", "Content-Type": "application/octet-stream"}
    assert made.body == b"hi"


def test_an_attribute_may_say_what_the_data_is() -> None:
    made = delivery(make_pulled(7, "aGk=", {"content-type": "text/plain"}), PLAIN)

    assert [value for name, value in made.headers if name.lower() == "content-type"] == ["text/plain"]


@pytest.mark.parametrize(
    "name", ["Host", "authorization", "Transfer-Encoding", "Content-Length", "X-Forwarded-For", "x-goog-iap", "a b",
             "ü", "a:b", "", "Connection", "cookie", "User-Agent"],
)  # fmt: skip
def test_a_publisher_does_not_write_what_the_sender_says(name: str) -> None:
    made = delivery(make_pulled(7, "aGk=", {name: "other"}), PLAIN)

    assert "other" not in [value for _, value in made.headers]


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.text(max_size=9))
def test_headers_of_any_message_can_be_sent(attributes: dict[str, str], key: str) -> None:
    made = delivery(make_pulled(7, "aGk=", attributes, key), PLAIN)

    encoded = _encode_headers(made.headers)
    assert not any({10, 13} & set(name + value) for name, value in encoded)


def test_a_token_is_shown_and_without_it_nothing_is_sent() -> None:
    assert ("Authorization", "Bearer eyJ.a.b") in delivery(make_pulled(7), SIGNED, token="eyJ.a.b").headers
    with pytest.raises(NotAsked, match=NO_TOKEN):
        delivery(make_pulled(7), SIGNED)


def test_an_endpoint_that_repeats_its_token_is_not_quoted() -> None:
    details = FailureTexts(target(google=SIGNED))

    assert details.detail("no: Bearer eyJhbGciOiJS.eyJpc3MiOiJo.c2lnbmF0dXJl is old") == "no: Bearer *** is old"
    assert details.detail("no: eyJhbGciOiJS.eyJpc3M") == "no: ***"


def test_a_delivery_takes_as_long_as_the_deadline_and_its_lease_outlives_it() -> None:
    assert google_seconds(target(deadline=45)) == 45
    assert google_seconds(target(deadline=600)) == 590


# Descriptions of failures: short, on one line, and without secrets

HEADER = "5f2d7c0a9b1e4d3f8a6c"
SECRET = new_secret()
DETAILS = FailureTexts(target(header_value=f"Bearer {HEADER}", secrets=[SECRET], verification_hash="0011223344556677"))
CHAT = FailureTexts(target(type=MATTERMOST, mattermost_url=HOOK))


@given(st.text(), st.text(), st.sampled_from([HEADER, f"Bearer {HEADER}", SECRET, SECRET[6:], "0011223344556677"]))
def test_p19_no_secret_is_shown_whoever_repeats_it(before: str, after: str, secret: str) -> None:
    assert secret not in DETAILS.detail(before + secret + after)


@given(st.integers(5, len(HEADER)))
def test_a_text_that_was_cut_within_a_secret_does_not_show_its_beginning(length: int) -> None:
    assert HEADER[:5] not in DETAILS.detail("the value was " + HEADER[:length])


@given(st.text(max_size=5000), st.text(alphabet="<>!-?/abtiles &;", max_size=2000))
def test_p19_a_detail_and_what_is_shown_of_a_page_are_one_short_line(text: str, page: str) -> None:
    for shown in (DETAILS.detail(text * 10), DETAILS.answer("<" + page)):
        assert len(shown.encode()) <= MAX_BYTES
        assert len(shown.splitlines()) <= 1


@pytest.mark.parametrize(("said", "shown"), [
    ("a\ud800b\x1b[31m\x00\r\nc", "a b [31m c"), ("ä" * 5000, "ä" * (MAX_BYTES // 2)),
    (f"{HOOK}: refused", "***: refused"), ("POST /hooks/xyzhookidentity", "POST /hooks/***"),
], ids=["what cannot be printed", "half a character", "a hook", "the identity of a hook"])  # fmt: skip
def test_what_is_no_text_or_a_secret_is_left_out(said: str, shown: str) -> None:
    assert CHAT.detail(said) == shown


@pytest.mark.parametrize(("answer", "shown"), [
    ('{"id": "x", "message": "No hook", "detailed_error": "", "status_code": 400}', "No hook"),
    ('{"message": "No hook", "detailed_error": "it was deleted"}', "No hook.it was deleted"), ("[]", "[]"),
    ('{"message": 1}', '{"message": 1}'), ("\ud800", ""), ("", ""),
])  # fmt: skip
def test_mattermost_is_quoted_as_the_contract_says_and_another_answer_as_it_is(answer: str, shown: str) -> None:
    assert CHAT.answer(answer) == shown


@pytest.mark.parametrize("after", ["/", "?x=1", "#x", "/slack"])
def test_the_identity_of_a_hook_is_hidden_wherever_it_stands_in_its_url(after: str) -> None:
    chat = FailureTexts(target(type=MATTERMOST, mattermost_url=HOOK + after))

    assert chat.detail("no hook xyzhookidentity at chat.example") == "no hook *** at chat.example"


@pytest.mark.parametrize(("page", "shown"), [
    ("<!doctype html>\n<html lang=en>\n<title>400 Bad Request</title>\n<h1>Bad Request</h1>\n<p>no such bed</p>",
     "400 Bad Request no such bed"),
    ("<html><title>400: no such bed</title><body>400: no such bed</body></html>", "400: no such bed"),
    ("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>"
     "\r\n<hr><center>nginx</center></body></html>", "502 Bad Gateway nginx"),
    ("<!DOCTYPE html><html><head><style>p {color: red}</style><script>if (1<2) no()</script></head><!-- a -->"
     "<body>a &lt; b &amp; c</body>", "a < b & c"),
    ("  <html><title>Error</title><style>" + "p {color: red}" * 500, "Error"),
    ("<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Not here</Message></Error>",
     "AccessDenied Not here"),
    ("<html>", ""), ("<![x[ <", ""), ("2 < 3", "2 < 3"), ("say <b>hi</b>", "say <b>hi</b>"),
    (f"<html><title>Error</title>who is <b>{HEADER}</b>?", "Error who is *** ?"),
    ('{"message": "m"}', '{"message": "m"}'),
])  # fmt: skip
def test_of_a_page_its_title_and_text_are_shown_and_all_of_what_is_none(page: str, shown: str) -> None:
    assert DETAILS.answer(page) == shown


@pytest.mark.parametrize("text", [
    "cannot read SGVsbG8sIHdvcmxkIG9mIGJlZHM=", "cannot read: Hello, world of beds", "got 'world of beds'",
    "Hello,  'WORLD' of", "no bed named roses 7", "bad key: GREENHOUSE 12",
])  # fmt: skip
def test_a_text_that_repeats_a_message_is_noticed(text: str) -> None:
    message = make_pulled(1, "SGVsbG8sIHdvcmxkIG9mIGJlZHM=", {"bed": "roses-7"}, "greenhouse-12")

    assert repeats(text, [make_pulled(0, ""), message])


@given(st.text("abcdefghij", min_size=11, max_size=40), st.text(), st.text("abcdefghij", max_size=8))
def test_eleven_characters_of_a_message_in_a_row_are_noticed(data: str, before: str, after: str) -> None:
    sent = base64.b64encode(f"{after}{data}{before}".encode()).decode()

    assert repeats(before + data[:11] + after, [make_pulled(1, sent)])


@pytest.mark.parametrize("text", ["", "no such bed", "Duplicate 'User-Agent' header found.", "unknown subscription"])
def test_a_text_of_its_own_repeats_nothing(text: str) -> None:
    assert not repeats(
        text, [make_pulled(1, "SGVsbG8sIHdvcmxkIG9mIGJlZHM=", {"bed": "roses-7"}), make_pulled(2, "not base64!")]
    )
