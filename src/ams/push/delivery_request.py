"""Deliveries: body, headers and signatures of requests to endpoints.

The JSON of a message is made when it is published; bodies join it unchanged (push contract 10 and 11). Messages are
parsed only to decode data, and for Mattermost. The headers (P20) are:

    Content-Type            application/json
    Authorization           the configuration's value as it is, when there is one
    webhook-id              the messages, the same at each retry: P.S.TOPIC.<first>-<last>, their offsets;
                            of a parallel subscription .<sum of all offsets> follows where some between are missing
    webhook-timestamp       seconds since the epoch, of this attempt
    webhook-signature       when there are secrets
    ams-delivery-attempt    from 1: how often a delivery that begins with the same message was sent; of a parallel
                            subscription how often its messages have failed, and one more

`ams.outgoing.requests` adds headers of every request, such as `Host` and `User-Agent`. Mattermost gets only the first
header (push contract 11), as it does not know the others. The body has all message ids; a header with all of them could
grow without bound.

Signatures prove the sender to receivers, by Standard Webhooks (https://www.standardwebhooks.com). A secret is `whsec_`
and base64 of 24 to 64 bytes. While a secret is replaced a delivery is signed with both secrets, so that receivers may
change theirs at any time.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pybase64

from ams.core.messages import Fragment, Message, data_or_text, decoded_data, parse, split_ordering_key
from ams.core.push_config import MATTERMOST, GoogleForm
from ams.push.sender import Headers, NotAsked
from ams.push.upstream import Pulled, Target

PREFIX = "whsec_"
SECRET_BYTES = 32  # of a new secret
_LEAST_BYTES, _MOST_BYTES = 24, 64
_TOPIC_CHARACTERS = 8  # of a topic's identity in `webhook-id`: a topic made anew begins at offset 0 again
_encode = msgspec.json.Encoder().encode
_COLON = ord(":")
MOST_SECONDS = 30.0  # for one delivery, as in the reference (push contract 10)
LEAST_SECONDS = 1.0  # for one delivery, however short the acknowledgement's deadline
_MARGIN_SECONDS, _MARGIN = 1.0, 0.2  # reserved for the acknowledgement: seconds, or this part if that is less
GOOGLE_MOST_SECONDS = 590.0  # for one delivery: its lease, of at most ten minutes, has to outlive it
NO_TOKEN = "There is no token for the delivery: the signing key cannot be read"  # noqa: S105 - a text, and no token
_NO_TOKEN_SECONDS = 30.0  # until it is tried again
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WITHHELD = frozenset({
    "authorization", "connection", "content-length", "cookie", "date", "expect", "forwarded", "host", "keep-alive",
    "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
})  # fmt: skip
_WITHHELD_BEGINNINGS = ("proxy-", "x-forwarded-", "x-goog-")


def new_secret() -> str:
    """Return a fresh secret."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def key(secret: str) -> bytes:
    """Return the bytes to sign with. Raises `ValueError` for a bad secret, without showing it."""
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except ValueError:
        found = b""
    if not _LEAST_BYTES <= len(found) <= _MOST_BYTES:
        raise ValueError(f"a signing secret must be {PREFIX} and base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes")
    return found


def signatures(keys: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each key; `timestamp` is in seconds."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.digest(each, signed, "sha256")).decode() for each in keys)


class Body(NamedTuple):
    """The body of one delivery."""

    content: bytes
    undecodable: int  # messages whose data is no text, so that it stays base64 although it should be decoded (P13)


class Delivery(NamedTuple):
    """One request to an endpoint."""

    headers: Headers
    body: bytes
    undecodable: int


class Deliveries:
    """Makes the deliveries of one target; raises `ValueError` for a bad target."""

    def __init__(self, target: Target) -> None:
        config = target.config
        self._mattermost = config if config.type == MATTERMOST else None
        self._decodes = config.base64_decode
        self._single = config.max_messages == 1
        self._is_parallel = target.is_parallel
        self._tail = b'},"subscription":%b}' % _encode(target.path.removeprefix("/"))
        self._fixed = [("Content-Type", "application/json")]
        if config.header_value and self._mattermost is None:
            if not (config.header_value.isascii() and config.header_value.isprintable()):
                raise ValueError("the authorization header has characters that no header can carry")
            self._fixed.append(("Authorization", config.header_value))
        self._keys = [key(each) for each in target.secrets]
        self._prefix = _prefix(target)
        self.url = config.endpoint if self._mattermost is None else config.mattermost_url
        is_alone = self._mattermost is not None or config.google is not None
        self.most = 1 if is_alone else max(1, config.max_messages)  # messages of one delivery (P12)

    def delivery(self, messages: Sequence[Pulled], *, attempt: int, now: int) -> Delivery:
        """Return the delivery of these messages; `attempt` from 1, `now` in seconds since the epoch."""
        content, undecodable = self.body(messages)
        return Delivery(self.headers(messages, content, attempt=attempt, now=now), content, undecodable)

    def headers(self, messages: Sequence[Pulled], body: bytes, *, attempt: int, now: int) -> Headers:
        """Return the headers of a delivery of these messages, in order; `now` in seconds."""
        if self._mattermost is not None:
            return self._fixed
        webhook_id = f"{self._prefix}{messages[0].offset}-{messages[-1].offset}"
        if self._is_parallel and messages[-1].offset - messages[0].offset >= len(messages):
            # Distinguishes deliveries with the same first and last message.
            offsets = ",".join([str(each.offset) for each in messages])
            webhook_id += f".{hashlib.blake2b(offsets.encode(), digest_size=6).hexdigest()}"
        made = [
            *self._fixed,
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(now)),
            ("ams-delivery-attempt", str(attempt)),
        ]
        if self._keys:
            made.append(("webhook-signature", signatures(self._keys, webhook_id, now, body)))
        return made

    def body(self, messages: Sequence[Pulled]) -> Body:
        """Return the body for these messages: exactly one for Mattermost and for `max_messages` 1."""
        if self._mattermost is not None:
            return self._post(messages[0])
        undecodable = 0
        if self._decodes:
            decoded = [_decode(each) for each in messages]
            messages = [each for each, _ in decoded]
            undecodable = sum(not good for _, good in decoded)
        if self._single:
            return Body(b"".join(self._item(messages[0], b"")), undecodable)
        parts, separator = [b'{"messages":['], b""
        for each in messages:
            parts += self._item(each, separator)
            separator = b","
        parts.append(b"]}")
        return Body(b"".join(parts), undecodable)

    def _item(self, message: Pulled, separator: bytes) -> tuple[bytes, ...]:
        _, message_id, publish_time, fragment = message
        shown_id = b'"messageId":%b,' % _encode(message_id) if message_id else b""
        shown_time = b',"publishTime":%b' % _encode(publish_time) if publish_time else b""
        return separator, b'{"message":{', shown_id, fragment, shown_time, self._tail

    def _post(self, message: Pulled) -> Body:
        assert self._mattermost is not None
        sent = parse(message.fragment)
        text = _text(sent) if self._decodes else None
        shown = sent.data if text is None else text
        if not shown.strip():  # Mattermost refuses a blank post: post the attributes instead
            lines = "\n".join(f"{name}: {value}" for name, value in (sent.attributes or {}).items())
            shown = lines if lines.strip() else f"Message {message.message_id} has no text"
        post = {"text": shown}
        if self._mattermost.mattermost_username:
            post["username"] = self._mattermost.mattermost_username
        if self._mattermost.mattermost_channel:
            post["channel"] = self._mattermost.mattermost_channel
        return Body(_encode(post), int(self._decodes and text is None))


def _prefix(target: Target) -> str:
    """Return the prefix of the target's webhook ids. Names have no dots (HTTP contract 2), so it is unambiguous."""
    match target.path.split("/"):
        case ["", "projects", project, "subscriptions", subscription]:
            topic = f"{target.topic_id[:_TOPIC_CHARACTERS]}." if target.topic_id else ""
            return f"{project}.{subscription}.{topic}"
    raise ValueError("the resource name is not that of a subscription")


def _decode(message: Pulled) -> tuple[Pulled, bool]:
    fragment = message.fragment
    # Data is the last member. Quotes in a string are escaped, so the last quote behind a colon begins the data.
    opening = fragment.rfind(b'"', 0, -1)
    try:
        if fragment[opening - 1] != _COLON:
            return _parse_and_decode(message)
        text = pybase64.b64decode(fragment[opening + 1 : -1], validate=True).decode()
    except ValueError:
        return _parse_and_decode(message)
    return message._replace(fragment=Fragment(fragment[:opening] + _encode(text))), True


def _parse_and_decode(message: Pulled) -> tuple[Pulled, bool]:
    sent = parse(message.fragment)
    text = _text(sent)
    if text is None:
        return message, False
    key, _ = split_ordering_key(message.fragment)
    attributes = b'"attributes":%b,' % _encode(sent.attributes) if sent.attributes else b""
    return message._replace(fragment=Fragment(b'%b%b"data":%b' % (key, attributes, _encode(text)))), True


def _text(message: Message) -> str | None:
    """Return the data as text; None if it is not UTF-8 in base64, which JSON cannot carry (P13)."""
    try:
        return decoded_data(message.data).decode()
    except ValueError:
        return None


def seconds(patience: float | None) -> float:
    """Return the time limit of a delivery whose messages must be acknowledged within `patience` seconds (P15)."""
    if patience is None:
        return MOST_SECONDS
    return min(MOST_SECONDS, max(LEAST_SECONDS, patience - min(_MARGIN_SECONDS, patience * _MARGIN)))


class GoogleDeliveries:
    """Makes the deliveries of one target in Google's form."""

    def __init__(self, target: Target, form: GoogleForm) -> None:
        self._form = form
        self._subscription = target.path.removeprefix("/")
        self._counts_attempts = target.counts_attempts

    def delivery(self, pulled: Pulled, *, attempt: int, token: str) -> Delivery:
        """Return the delivery of a message; `attempt` from 1. Raises `NotAsked` if it needs a token and has none."""
        message = parse(pulled.fragment)
        headers = [("User-Agent", "CloudPubSub-Google")]
        if self._form.service_account:
            if not token:
                raise NotAsked(NO_TOKEN, _NO_TOKEN_SECONDS)
            headers.append(("Authorization", f"Bearer {token}"))
        if self._form.is_wrapped:
            headers.append(("Content-Type", "application/json"))
            return Delivery(headers, self._wrap(pulled, message, attempt), 0)
        headers += self._metadata(pulled, message) if self._form.write_metadata else []
        if all(name.lower() != "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/octet-stream"))
        return Delivery(headers, data_or_text(message.data), 0)

    def _wrap(self, pulled: Pulled, message: Message, attempt: int) -> bytes:
        shown: dict[str, object] = {
            "data": pybase64.b64encode(data_or_text(message.data)).decode(),
            "messageId": pulled.message_id,
            "message_id": pulled.message_id,
            "publishTime": pulled.publish_time,
            "publish_time": pulled.publish_time,
        }
        if message.attributes:
            shown["attributes"] = message.attributes
        if message.ordering_key:
            shown["orderingKey"] = message.ordering_key
        body: dict[str, object] = {"message": shown, "subscription": self._subscription}
        if self._counts_attempts:
            body["deliveryAttempt"] = attempt
        return _encode(body)

    def _metadata(self, pulled: Pulled, message: Message) -> Iterator[tuple[str, str]]:
        yield "x-goog-pubsub-subscription-name", self._subscription
        yield "x-goog-pubsub-message-id", pulled.message_id
        yield "x-goog-pubsub-publish-time", pulled.publish_time
        given = [("x-goog-pubsub-ordering-key", message.ordering_key)]
        for name, value in (message.attributes or {}).items():
            low = name.lower()
            if _NAME.fullmatch(name) and low not in _WITHHELD and not low.startswith(_WITHHELD_BEGINNINGS):
                given.append((name, value))
        for name, value in given:
            if value and value.isascii() and value.isprintable() and value == value.strip():
                yield name, value


def google_seconds(target: Target) -> float:
    """Return the time limit of a delivery: the acknowledgement deadline of the subscription."""
    return min(float(target.ack_deadline_seconds), GOOGLE_MOST_SECONDS)
