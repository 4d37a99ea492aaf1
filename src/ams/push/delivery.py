"""Deliveries: what one looks like: its body, made of pulled messages, its headers and its signatures.

A message's JSON is ready since it was published, and bodies are joined of it as it is (push contract 10 and 11).
Messages are looked into only where data shall be decoded, and for Mattermost. The headers (P20) are:

    Content-Type            application/json
    Authorization           the configuration's value as it is, when there is one
    webhook-id              which messages these are, the same at each retry: P.S.TOPIC.<first>-<last>, their offsets;
                            of a parallel subscription .<sum of all offsets> follows where some between are missing
    webhook-timestamp       seconds since the epoch, of this attempt
    webhook-signature       when there are secrets
    ams-delivery-attempt    from 1: how often a delivery that begins with the same message was sent; of a parallel
                            subscription how often its messages have failed, and one more

What every request has, as `Host` and `User-Agent`, is added where requests are made (`ams.outgoing.requests`).
Mattermost gets the first of them only (push contract 11): it knows none of the others. The ids of messages are in the
body, and the first and last offset in `webhook-id`; a header with all of them could grow without bound.

Receivers know who sent a delivery by its signatures, after Standard Webhooks (https://www.standardwebhooks.com). A
secret is `whsec_` and base64 of 24 to 64 bytes. While a secret is replaced there are two, and a delivery has a
signature by each, so that receivers may change theirs at any time in between.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pybase64

from ams.core.messages import Fragment, Message, decoded_data, parse, split_ordering_key
from ams.core.push_config import MATTERMOST
from ams.push.sender import Headers
from ams.push.upstream import Pulled, Target

PREFIX = "whsec_"
SECRET_BYTES = 32  # of a new secret
_LEAST_BYTES, _MOST_BYTES = 24, 64


def new_secret() -> str:
    """Return a fresh secret."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def key(secret: str) -> bytes:
    """Return the bytes to sign with; raise `ValueError`, which does not show it, for what is no secret."""
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


_TOPIC_CHARACTERS = 8
"""Of a topic's identity in `webhook-id`: its messages begin at offset 0 again when it is made anew, and are others."""


class DeliveryHeaders:
    """Makes the headers of one target's deliveries; raises `ValueError` for what no header can be made of."""

    def __init__(self, target: Target) -> None:
        config = target.config
        self._plain = config.type == MATTERMOST
        self._fixed = [("Content-Type", "application/json")]
        if config.header_value and not self._plain:
            self._fixed.append(_authorization(config.header_value))
        self._keys = [key(each) for each in target.secrets]
        self._prefix = _prefix(target)
        self._is_parallel = target.is_parallel

    def headers(self, messages: Sequence[Pulled], body: bytes, *, attempt: int, now: int) -> Headers:
        """Return the headers of a delivery of these messages, in order; `now` in seconds."""
        if self._plain:
            return self._fixed
        webhook_id = f"{self._prefix}{messages[0].offset}-{messages[-1].offset}"
        if self._is_parallel and messages[-1].offset - messages[0].offset >= len(messages):
            webhook_id += f".{_sum(messages)}"
        made = [
            *self._fixed,
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(now)),
            ("ams-delivery-attempt", str(attempt)),
        ]
        if self._keys:
            made.append(("webhook-signature", signatures(self._keys, webhook_id, now, body)))
        return made


def _sum(messages: Sequence[Pulled]) -> str:
    """Return a text that tells deliveries apart which begin and end with the same messages."""
    offsets = ",".join([str(each.offset) for each in messages])
    return hashlib.blake2b(offsets.encode(), digest_size=6).hexdigest()


def _authorization(value: str) -> tuple[str, str]:
    if not (value.isascii() and value.isprintable()):
        raise ValueError("the authorization header has characters that no header can carry")
    return "Authorization", value


def _prefix(target: Target) -> str:
    """Return what every id of the target begins with: names have no dots (HTTP contract 2), so parts are clear."""
    match target.path.split("/"):
        case ["", "projects", project, "subscriptions", subscription]:
            topic = f"{target.topic_id[:_TOPIC_CHARACTERS]}." if target.topic_id else ""
            return f"{project}.{subscription}.{topic}"
    raise ValueError("the resource name is not that of a subscription")


_encode = msgspec.json.Encoder().encode
_COLON = ord(":")


class Body(NamedTuple):
    """The body of one delivery."""

    content: bytes
    undecodable: int  # messages whose data should have been decoded and is no text, so that it is base64 still (P13)


class Bodies:
    """Makes the bodies of one target."""

    def __init__(self, target: Target) -> None:
        config = target.config
        self._mattermost = config if config.type == MATTERMOST else None
        self._single = config.max_messages == 1
        self._decodes = config.base64_decode
        subscription = _encode(target.path.removeprefix("/"))
        self._tail = b'},"subscription":%b}' % subscription

    @property
    def is_mattermost(self) -> bool:
        """Whether a body holds one message, whatever the configuration allows (P12)."""
        return self._mattermost is not None

    def body(self, messages: Sequence[Pulled]) -> Body:
        """Return the body that carries these messages: at least one, and no more for Mattermost or `max_messages` 1."""
        if self._mattermost is not None:
            return self._post(messages[0])
        undecodable = 0
        if self._decodes:
            decoded = [_decoded(each) for each in messages]
            messages = [each for each, _ in decoded]
            undecodable = sum(not good for _, good in decoded)
        if self._single:
            return Body(b"".join(self._item(messages[0], b"")), undecodable)
        return Body(self._list(messages), undecodable)

    def _list(self, messages: Sequence[Pulled]) -> bytes:
        parts, separator = [b'{"messages":['], b""
        for each in messages:
            parts += self._item(each, separator)
            separator = b","
        parts.append(b"]}")
        return b"".join(parts)

    def _item(self, message: Pulled, separator: bytes) -> tuple[bytes, ...]:
        _, message_id, publish_time, fragment = message
        shown_id = b'"messageId":%b,' % _encode(message_id) if message_id else b""
        shown_time = b',"publishTime":%b' % _encode(publish_time) if publish_time else b""
        return separator, b'{"message":{', shown_id, fragment, shown_time, self._tail

    def _post(self, message: Pulled) -> Body:
        assert self._mattermost is not None
        sent = parse(message.fragment)
        text = _text(sent) if self._decodes else None
        post = {"text": _post_text(message, sent, sent.data if text is None else text)}
        if self._mattermost.mattermost_username:
            post["username"] = self._mattermost.mattermost_username
        if self._mattermost.mattermost_channel:
            post["channel"] = self._mattermost.mattermost_channel
        return Body(_encode(post), int(self._decodes and text is None))


def _post_text(message: Pulled, sent: Message, text: str) -> str:
    """Return a post's text. Mattermost refuses a blank one each time, so the attributes are posted then."""
    if text.strip():
        return text
    lines = [f"{name}: {value}" for name, value in (sent.attributes or {}).items()]
    return "\n".join(lines) if any(map(str.strip, lines)) else f"Message {message.message_id} has no text"


def _decoded(message: Pulled) -> tuple[Pulled, bool]:
    """Return a message with its data as text, and whether it is text; else as it was."""
    fragment = message.fragment
    # Data comes last. A quote within it has a backslash before it, so a colon before one says that it begins there.
    opening = fragment.rfind(b'"', 0, -1)
    try:
        if fragment[opening - 1] != _COLON:
            return _parsed_and_decoded(message)
        text = pybase64.b64decode(fragment[opening + 1 : -1], validate=True).decode()
    except ValueError:
        return _parsed_and_decoded(message)
    return message._replace(fragment=Fragment(fragment[:opening] + _encode(text))), True


def _parsed_and_decoded(message: Pulled) -> tuple[Pulled, bool]:
    sent = parse(message.fragment)
    text = _text(sent)
    if text is None:
        return message, False
    key, _ = split_ordering_key(message.fragment)
    attributes = b'"attributes":%b,' % _encode(sent.attributes) if sent.attributes else b""
    return message._replace(fragment=Fragment(b'%b%b"data":%b' % (key, attributes, _encode(text)))), True


def _text(message: Message) -> str | None:
    """Return the data as text; None when it is not UTF-8 in base64, which JSON could not carry undamaged (P13)."""
    try:
        return decoded_data(message.data).decode()
    except ValueError:
        return None


MOST_SECONDS = 30.0  # for one delivery, as in the reference (push contract 10)
LEAST_SECONDS = 1.0  # below this nothing could be delivered at all, whatever the acknowledgement's deadline
_MARGIN_SECONDS, _MARGIN = 1.0, 0.2
"""Kept for the acknowledgement: so much, or this part of what there is when that is less."""


class Delivery(NamedTuple):
    """One request to an endpoint."""

    headers: Headers
    body: bytes
    undecodable: int


class Deliveries:
    """Makes the deliveries of one target; raises `ValueError` when there is something wrong with it."""

    def __init__(self, target: Target) -> None:
        self._bodies = Bodies(target)
        self._headers = DeliveryHeaders(target)
        config = target.config
        self.url = config.mattermost_url if self._bodies.is_mattermost else config.endpoint
        self.most = 1 if self._bodies.is_mattermost else max(1, config.max_messages)  # messages of one delivery (P12)

    def delivery(self, messages: Sequence[Pulled], *, attempt: int, now: int) -> Delivery:
        """Return the delivery of these messages; `attempt` from 1, `now` in seconds since the epoch."""
        content, undecodable = self._bodies.body(messages)
        headers = self._headers.headers(messages, content, attempt=attempt, now=now)
        return Delivery(headers, content, undecodable)


def seconds(patience: float | None) -> float:
    """Return how long a delivery may take when its messages must be acknowledged within `patience` seconds (P15)."""
    if patience is None:
        return MOST_SECONDS
    return min(MOST_SECONDS, max(LEAST_SECONDS, patience - min(_MARGIN_SECONDS, patience * _MARGIN)))
