"""What a delivery carries (push contract 10 and 11)."""

import base64
import json
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ams.core.messages import Fragment, message
from ams.core.push_config import MATTERMOST
from ams.push.delivery import PREFIX, Bodies, Body, DeliveryHeaders, key, new_secret, signatures
from ams.push.upstream import Pulled, Target
from tests.push.keepers import pulled, target

TIME = "2026-01-01T00:00:00Z"
SUBSCRIPTION = "projects/P/subscriptions/S"
HOOK = "https://chat.example/hooks/abcdefghij"
ATTRIBUTES = st.dictionaries(st.text(), st.text(), max_size=3)
KEYS = st.just("") | st.text(max_size=5)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def body(*messages: Pulled, **config: object) -> Body:
    return Bodies(target(**config)).body(messages)


ITEM = (
    b'{"message":{"messageId":"7","orderingKey":"bed 4","attributes":{"k":"v"},"data":"aGk=",'
    b'"publishTime":"2026-01-01T00:00:00Z"},"subscription":"projects/P/subscriptions/S"}'
)


@pytest.mark.parametrize(("most", "content"), [(1, ITEM), (2, b'{"messages":[' + ITEM + b"]}")], ids=["object", "list"])
def test_a_configuration_of_one_message_sends_an_object_and_of_more_a_list(most: int, content: bytes) -> None:
    """P7: the subscription without a leading slash, and nothing of a host."""
    assert body(pulled(7, "aGk=", {"k": "v"}, "bed 4"), max_messages=most).content == content


def test_empty_ids_times_and_attributes_are_left_out() -> None:
    message_ = Pulled(0, "", "", Fragment(b'"data":""'))

    assert json.loads(body(message_).content)["message"] == {"data": ""}


@given(st.lists(st.tuples(ATTRIBUTES, st.binary(max_size=20), KEYS), min_size=1, max_size=5))
def test_bodies_hold_what_was_published_in_order(published: list[tuple[Mapping[str, str], bytes, str]]) -> None:
    messages = [pulled(offset, encoded(data), each, key) for offset, (each, data, key) in enumerate(published)]

    items = json.loads(body(*messages, max_messages=5).content)["messages"]

    assert [each["subscription"] for each in items] == [SUBSCRIPTION] * len(messages)
    assert [each["message"]["messageId"] for each in items] == [str(offset) for offset in range(len(messages))]
    assert [each["message"]["data"] for each in items] == [encoded(data) for _, data, _ in published]
    assert [each["message"].get("attributes", {}) for each in items] == [each for each, _, _ in published]
    assert [each["message"].get("orderingKey", "") for each in items] == [key for _, _, key in published]


def test_data_that_had_to_be_escaped_is_sent_as_it_was_published() -> None:
    assert json.loads(body(pulled(0, 'no "base64"\n')).content)["message"]["data"] == 'no "base64"\n'


@given(st.text(), ATTRIBUTES, KEYS)
def test_text_is_sent_decoded_where_that_is_asked_for(text: str, attributes: dict[str, str], key: str) -> None:
    made = body(pulled(3, encoded(text.encode()), attributes, key), base64_decode=True)

    expected = {"messageId": "3", "data": text, "publishTime": TIME}
    expected |= {name: value for name, value in (("attributes", attributes), ("orderingKey", key)) if value}
    assert json.loads(made.content)["message"] == expected
    assert made.undecodable == 0


@given(st.text(alphabet='"\\:,ab=\r\n'), ATTRIBUTES, KEYS)
def test_whatever_was_published_is_decoded_or_left_as_it_was(data: str, attributes: dict[str, str], key: str) -> None:
    """Line breaks in base64 do no harm."""
    made = json.loads(body(pulled(3, data, attributes, key), base64_decode=True).content)["message"]

    try:
        expected = base64.b64decode(data.replace("\n", "").replace("\r", ""), validate=True).decode()
    except ValueError:
        expected = data
    assert made["data"] == expected
    assert made.get("attributes", {}) == attributes
    assert made.get("orderingKey", "") == key


@pytest.mark.parametrize("data", ["/w==", "gIA=", "7aCA", "no base64", "aGk", '"aGk=', ':"aGk='])
def test_what_is_no_text_is_sent_unchanged_and_counted(data: str) -> None:
    """P13: bytes that are no UTF-8 would be damaged in JSON; and what is no base64 has nothing to decode."""
    made = body(pulled(0, data), pulled(1, "aGk="), base64_decode=True, max_messages=10)

    assert [each["message"]["data"] for each in json.loads(made.content)["messages"]] == [data, "hi"]
    assert made.undecodable == 1


def post(message: Pulled, **config: object) -> Body:
    return body(message, type=MATTERMOST, mattermost_url=HOOK, **config)


@pytest.mark.parametrize(
    ("data", "attributes", "text", "undecodable"),
    [
        ("aGk=", {}, "hi", 0),
        ("aGk=", {"bed": "roses"}, "hi", 0),
        ("", {"bed": "roses", "state": "dry"}, "bed: roses\nstate: dry", 0),
        ("ICAK", {"bed": "roses"}, "bed: roses", 0),
        ("", {}, "Message 7 has no text", 0),
        ("/w==", {}, "/w==", 1),
    ],
)
def test_mattermost_gets_the_text_of_one_message_or_what_stands_for_it(
    data: str, attributes: dict[str, str], text: str, undecodable: int
) -> None:
    """Mattermost refuses a post without text each time, and so would hold up all behind it."""
    made = post(pulled(7, data, attributes), base64_decode=True)

    assert json.loads(made.content) == {"text": text}
    assert made.undecodable == undecodable


def test_mattermost_is_told_username_and_channel() -> None:
    made = post(pulled(0), mattermost_username="ams", mattermost_channel="ops")

    assert json.loads(made.content) == {"text": "aGk=", "username": "ams", "channel": "ops"}


def test_a_fragment_of_elsewhere_is_joined_as_it_is() -> None:
    fragment = message("aGk=", {"ä": "ö"}).fragment

    assert fragment in body(Pulled(0, 'a"b', TIME, fragment)).content
    assert json.loads(body(Pulled(0, 'a"b', TIME, fragment)).content)["message"]["messageId"] == 'a"b'


# Headers: signatures that receivers verify with the public package of Standard Webhooks


BODY = b'{"text":"\xc3\xa4"}'


def headers(*secrets: str, **config: object) -> dict[str, str]:
    made = DeliveryHeaders(target(secrets=secrets, **config))
    return dict(made.headers([pulled(3), pulled(7)], BODY, attempt=2, now=int(time.time())))


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
    """P20: receivers can tell messages they had before, without a change of the body."""
    made = headers(header_value="not a scheme word")

    assert abs(int(made.pop("webhook-timestamp")) - time.time()) < 60
    assert made == {
        "Content-Type": "application/json",
        "Authorization": "not a scheme word",
        "webhook-id": "P.S.3-7",
        "ams-delivery-attempt": "2",
    }
    assert "Authorization" not in headers()


def test_mattermost_gets_none_of_them() -> None:
    made = headers(new_secret(), type=MATTERMOST, mattermost_url="https://chat.example/hooks/x", header_value="value")

    assert set(made) == {"Content-Type"}


def webhook_id(of: Target) -> str:
    return dict(DeliveryHeaders(of).headers([pulled(0)], BODY, attempt=1, now=1))["webhook-id"]


def test_messages_of_a_topic_that_was_made_anew_have_other_ids() -> None:
    ids = [webhook_id(target(topic_id=each)) for each in ("0123456789abcdef", "fedcba9876543210")]

    assert ids == ["P.S.01234567.0-0", "P.S.fedcba98.0-0"]


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,255}", fullmatch=True), st.from_regex(r"[a-zA-Z0-9_-]{1,255}", fullmatch=True))
def test_ids_of_deliveries_tell_subscriptions_apart(project: str, name: str) -> None:
    assert webhook_id(target(f"/projects/{project}/subscriptions/{name}")) == f"{project}.{name}.0-0"


@pytest.mark.parametrize("value", ["two\nlines", "ä", "\x00"])
def test_a_value_that_no_header_can_carry_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="authorization header") as raised:
        DeliveryHeaders(target(header_value=value))

    assert value not in str(raised.value)


@pytest.mark.parametrize("path", ["", "S", "/projects/P/topics/T", "projects/P/subscriptions/S"])
def test_what_is_not_the_name_of_a_subscription_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="resource name"):
        DeliveryHeaders(target(path))
