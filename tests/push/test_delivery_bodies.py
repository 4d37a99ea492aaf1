"""What a delivery carries (push contract 10 and 11)."""

import base64
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Fragment, message
from ams.core.push_config import MATTERMOST
from ams.push.delivery import Bodies, Body
from ams.push.upstream import Pulled
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


def test_a_configuration_of_one_message_sends_a_single_object() -> None:
    content = body(pulled(7, "aGk=", {"k": "v"}), max_messages=1).content

    assert content == (
        b'{"message":{"messageId":"7","attributes":{"k":"v"},"data":"aGk=","publishTime":"2026-01-01T00:00:00Z"},'
        b'"subscription":"projects/P/subscriptions/S"}'
    )


def test_a_configuration_of_more_sends_a_list_also_of_one_message() -> None:
    content = body(pulled(7), max_messages=2).content

    assert content == (
        b'{"messages":[{"message":{"messageId":"7","data":"aGk=","publishTime":"2026-01-01T00:00:00Z"},'
        b'"subscription":"projects/P/subscriptions/S"}]}'
    )


def test_the_subscription_is_told_by_its_documented_name() -> None:
    """P7: without a leading slash, and nothing of a host."""
    assert json.loads(body(pulled(0)).content)["subscription"] == SUBSCRIPTION


def test_empty_ids_times_and_attributes_are_left_out() -> None:
    message_ = Pulled(0, "", "", Fragment(b'"data":""'))

    assert json.loads(body(message_).content)["message"] == {"data": ""}


def test_an_ordering_key_is_in_the_message() -> None:
    shown = b'"message":{"messageId":"7","orderingKey":"bed 4","attributes":{"k":"v"},"data":"aGk="'
    decoded = b'"message":{"messageId":"7","orderingKey":"bed 4","attributes":{"k":"v"},"data":"hi"'

    for most in (1, 2):
        assert shown in body(pulled(7, "aGk=", {"k": "v"}, "bed 4"), max_messages=most).content
        assert decoded in body(pulled(7, "aGk=", {"k": "v"}, "bed 4"), max_messages=most, base64_decode=True).content
        assert decoded in body(pulled(7, "aG\nk=", {"k": "v"}, "bed 4"), max_messages=most, base64_decode=True).content


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


@given(st.text(alphabet='"\\:,ab=\n'), ATTRIBUTES)
def test_whatever_was_published_is_decoded_or_left_as_it_was(data: str, attributes: dict[str, str]) -> None:
    made = json.loads(body(pulled(3, data, attributes), base64_decode=True).content)["message"]

    try:
        expected = base64.b64decode(data.replace("\n", ""), validate=True).decode()
    except ValueError:
        expected = data
    assert made["data"] == expected
    assert made.get("attributes", {}) == attributes


@pytest.mark.parametrize("data", ["/w==", "gIA=", "7aCA", "no base64", "aGk", '"aGk=', ':"aGk='])
def test_what_is_no_text_is_sent_unchanged_and_counted(data: str) -> None:
    """P13: bytes that are no UTF-8 would be damaged in JSON; and what is no base64 has nothing to decode."""
    made = body(pulled(0, data), pulled(1, "aGk="), base64_decode=True, max_messages=10)

    assert [each["message"]["data"] for each in json.loads(made.content)["messages"]] == [data, "hi"]
    assert made.undecodable == 1


def test_line_breaks_in_base64_do_no_harm() -> None:
    made = body(pulled(0, "aG\r\nk="), base64_decode=True)

    assert json.loads(made.content)["message"]["data"] == "hi"


def test_mattermost_gets_the_text_of_one_message_and_nothing_empty() -> None:
    made = body(pulled(0, "aGk="), type=MATTERMOST, mattermost_url=HOOK, base64_decode=True)

    assert json.loads(made.content) == {"text": "hi"}


def test_mattermost_is_told_username_and_channel() -> None:
    made = body(pulled(0), type=MATTERMOST, mattermost_url=HOOK, mattermost_username="ams", mattermost_channel="ops")

    assert json.loads(made.content) == {"text": "aGk=", "username": "ams", "channel": "ops"}


def test_mattermost_gets_base64_where_there_is_no_text_and_it_is_counted() -> None:
    made = body(pulled(0, "/w=="), type=MATTERMOST, mattermost_url=HOOK, base64_decode=True)

    assert json.loads(made.content) == {"text": "/w=="}
    assert made.undecodable == 1


def test_a_fragment_of_elsewhere_is_joined_as_it_is() -> None:
    fragment = message("aGk=", {"ä": "ö"}).fragment

    assert fragment in body(Pulled(0, 'a"b', TIME, fragment)).content
    assert json.loads(body(Pulled(0, 'a"b', TIME, fragment)).content)["message"]["messageId"] == 'a"b'
