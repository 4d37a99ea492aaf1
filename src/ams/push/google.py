"""Deliveries in the form of Google's Pub/Sub: one message each, wrapped in JSON or as its data alone.

    Authorization           Bearer and an OpenID Connect token, where there is a service account
    User-Agent              CloudPubSub-Google, as receivers are used to
    Content-Type            application/json with the wrapper; without, application/octet-stream
    x-goog-pubsub-...       without the wrapper and with `write_metadata`: subscription, id, time, ordering key; and a
                            header for each attribute that can be one

An attribute is left out of the headers if it has no name or no value of a header, and if what it is called is for the
connection, or for who sends, to say: otherwise a publisher could write it.
"""

import re
from collections.abc import Iterator

import msgspec
import pybase64

from ams.core.messages import Message, data_or_text, parse
from ams.core.push_config import GoogleForm
from ams.push.delivery import Delivery
from ams.push.sender import Headers, NotAsked
from ams.push.upstream import Pulled, Target

MOST_SECONDS = 590.0  # for one delivery: its lease, of at most ten minutes, has to outlive it
NO_TOKEN = "There is no token for the delivery: the signing key cannot be read"  # noqa: S105 - a text, and no token
_NO_TOKEN_SECONDS = 30.0  # until it is tried again

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WITHHELD = frozenset({
    "authorization", "connection", "content-length", "cookie", "date", "expect", "forwarded", "host", "keep-alive",
    "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
})  # fmt: skip
_WITHHELD_BEGINNINGS = ("proxy-", "x-forwarded-", "x-goog-")

_encode = msgspec.json.Encoder().encode


class GoogleDeliveries:
    """Makes the deliveries of one target."""

    def __init__(self, target: Target, form: GoogleForm) -> None:
        self.url = target.config.endpoint
        self._form = form
        self._subscription = target.path.removeprefix("/")
        self._counts_attempts = target.counts_attempts

    def delivery(self, pulled: Pulled, *, attempt: int, token: str) -> Delivery:
        """Return the delivery of a message; `attempt` from 1. Raises `NotAsked` without a token that it needs."""
        message = parse(pulled.fragment)
        headers = [*self._sender(token)]
        if self._form.is_wrapped:
            headers.append(("Content-Type", "application/json"))
            return Delivery(headers, self._wrapped(pulled, message, attempt), 0)
        headers += self._metadata(pulled, message) if self._form.write_metadata else []
        if all(name.lower() != "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/octet-stream"))
        return Delivery(headers, data_or_text(message.data), 0)

    def _sender(self, token: str) -> Headers:
        agent = ("User-Agent", "CloudPubSub-Google")
        if not self._form.service_account:
            return [agent]
        if not token:
            raise NotAsked(NO_TOKEN, _NO_TOKEN_SECONDS)
        return [agent, ("Authorization", f"Bearer {token}")]

    def _wrapped(self, pulled: Pulled, message: Message, attempt: int) -> bytes:
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
        key = "x-goog-pubsub-ordering-key", message.ordering_key
        for name, value in [key, *(each for each in (message.attributes or {}).items() if _is_free(each[0]))]:
            if value and _is_value(value):
                yield name, value


def seconds(target: Target) -> float:
    """Return how long a delivery may take: as long as the acknowledgement's deadline."""
    return min(float(target.ack_deadline_seconds), MOST_SECONDS)


def _is_free(name: str) -> bool:
    low = name.lower()
    return bool(_NAME.fullmatch(name)) and low not in _WITHHELD and not low.startswith(_WITHHELD_BEGINNINGS)


def _is_value(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()
