"""Signatures that receivers verify with the public package of Standard Webhooks."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ams.core.push_config import MATTERMOST
from ams.push.delivery import PREFIX, DeliveryHeaders, key, new_secret, signatures
from tests.push.keepers import pulled, target

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


def test_while_a_secret_is_replaced_receivers_verify_by_the_old_and_the_new_one() -> None:
    """P20."""
    old, new = new_secret(), new_secret()
    made = headers(new, old)

    assert len(made["webhook-signature"].split(" ")) == 2
    for each in (old, new):
        Webhook(each).verify(BODY, made)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, made)


def test_a_changed_body_is_found_out() -> None:
    secret = new_secret()

    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY + b" ", headers(secret))


def test_secrets_are_not_shown_with_their_target() -> None:
    secret = new_secret()

    assert secret not in repr(target(secrets=[secret], header_value="a-header-value"))
    assert "a-header-value" not in repr(target(header_value="a-header-value"))


def test_every_delivery_says_what_it_is_and_which() -> None:
    """P20: receivers can tell messages they had before, without a change of the body."""
    made = headers(header_value="not a scheme word")

    assert made["Content-Type"] == "application/json"
    assert made["Authorization"] == "not a scheme word"
    assert made["webhook-id"] == "P.S.3-7"
    assert made["ams-delivery-attempt"] == "2"
    assert abs(int(made["webhook-timestamp"]) - time.time()) < 60


def test_there_is_no_signature_without_a_secret_and_no_authorization_without_a_value() -> None:
    made = headers()

    assert "webhook-signature" not in made
    assert "Authorization" not in made


def test_mattermost_gets_none_of_them() -> None:
    made = headers(new_secret(), type=MATTERMOST, mattermost_url="https://chat.example/hooks/x", header_value="value")

    assert set(made) == {"Content-Type"}


def test_messages_of_a_topic_that_was_made_anew_have_other_ids() -> None:
    first, second = (
        dict(
            DeliveryHeaders(target(topic_id=each)).headers([pulled(0)], BODY, attempt=1, now=1)
        )["webhook-id"]
        for each in ("0123456789abcdef", "fedcba9876543210")
    )  # fmt: skip

    assert first == "P.S.01234567.0-0"
    assert second == "P.S.fedcba98.0-0"


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,255}", fullmatch=True), st.from_regex(r"[a-zA-Z0-9_-]{1,255}", fullmatch=True))
def test_ids_of_deliveries_are_visible_ascii_and_tell_subscriptions_apart(project: str, name: str) -> None:
    made = DeliveryHeaders(target(f"/projects/{project}/subscriptions/{name}"))
    webhook_id = dict(made.headers([pulled(0)], BODY, attempt=1, now=1))["webhook-id"]

    assert webhook_id.isascii()
    assert webhook_id.isprintable()
    assert webhook_id.split(".") == [project, name, "0-0"]


@pytest.mark.parametrize("value", ["two\nlines", "ä", "\x00"])
def test_a_value_that_no_header_can_carry_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="authorization header") as raised:
        DeliveryHeaders(target(header_value=value))

    assert value not in str(raised.value)


@pytest.mark.parametrize("path", ["", "S", "/projects/P/topics/T", "projects/P/subscriptions/S"])
def test_what_is_not_the_name_of_a_subscription_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="resource name"):
        DeliveryHeaders(target(path))
