"""What deliveries in Google's form carry."""

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.google_push import GoogleForm
from ams.core.messages import Fragment
from ams.push.delivery import Delivery
from ams.push.details import Details
from ams.push.google import NO_TOKEN, GoogleDeliveries, seconds
from ams.push.sender import NotAsked, _encoded
from ams.push.upstream import Pulled
from tests.push.keepers import pulled, target

WRAPPED, PLAIN = GoogleForm(), GoogleForm(is_wrapped=False, write_metadata=True)
SIGNED = GoogleForm(service_account="a@P.iam.gserviceaccount.com")


def delivery(message: Pulled, form: GoogleForm, *, token: str = "", counts: bool = False) -> Delivery:
    there = replace(target(google=form), counts_attempts=counts)
    return GoogleDeliveries(there, form).delivery(message, attempt=3, token=token)


def test_a_wrapped_one_says_all_of_its_message() -> None:
    made = delivery(pulled(7, "aGk=", {"k": "v"}, "key"), WRAPPED, counts=True)

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
    assert "deliveryAttempt" not in json.loads(delivery(pulled(7), WRAPPED).body), "with a dead letter policy only"


def test_data_that_is_no_base64_goes_out_as_the_text_it_is() -> None:
    message = pulled(7)._replace(fragment=Fragment(b'"data":"no base64!"'))

    assert delivery(message, PLAIN).body == b"no base64!"
    assert base64.b64decode(json.loads(delivery(message, WRAPPED).body)["message"]["data"]) == b"no base64!"


def test_without_metadata_headers_say_nothing_of_the_message() -> None:
    made = delivery(pulled(7, "aGk=", {"k": "v"}), GoogleForm(is_wrapped=False))

    assert dict(made.headers) == {"User-Agent": "CloudPubSub-Google", "Content-Type": "application/octet-stream"}
    assert made.body == b"hi"


def test_an_attribute_may_say_what_the_data_is() -> None:
    made = delivery(pulled(7, "aGk=", {"content-type": "text/plain"}), PLAIN)

    assert [value for name, value in made.headers if name.lower() == "content-type"] == ["text/plain"]


@pytest.mark.parametrize(
    "name", ["Host", "authorization", "Transfer-Encoding", "Content-Length", "X-Forwarded-For", "x-goog-iap", "a b",
             "ü", "a:b", "", "Connection", "cookie", "User-Agent"],
)  # fmt: skip
def test_a_publisher_does_not_write_what_the_sender_says(name: str) -> None:
    made = delivery(pulled(7, "aGk=", {name: "other"}), PLAIN)

    assert "other" not in [value for _, value in made.headers]


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.text(max_size=9))
def test_headers_of_any_message_can_be_sent(attributes: dict[str, str], key: str) -> None:
    made = delivery(pulled(7, "aGk=", attributes, key), PLAIN)

    encoded = _encoded(made.headers)
    assert not any({10, 13} & set(name + value) for name, value in encoded)


def test_a_token_is_shown_and_without_it_nothing_is_sent() -> None:
    assert ("Authorization", "Bearer eyJ.a.b") in delivery(pulled(7), SIGNED, token="eyJ.a.b").headers
    with pytest.raises(NotAsked, match=NO_TOKEN):
        delivery(pulled(7), SIGNED)


def test_an_endpoint_that_repeats_its_token_is_not_quoted() -> None:
    details = Details(target(google=SIGNED))

    assert details.detail("no: Bearer eyJhbGciOiJS.eyJpc3MiOiJo.c2lnbmF0dXJl is old") == "no: Bearer *** is old"
    assert details.detail("no: eyJhbGciOiJS.eyJpc3M") == "no: ***"


def test_a_delivery_takes_as_long_as_the_deadline_and_its_lease_outlives_it() -> None:
    assert seconds(target(deadline=45)) == 45
    assert seconds(target(deadline=600)) == 590
