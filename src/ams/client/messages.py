"""Messages as programs see them: bytes, texts and times instead of what travels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from ams.client import wire


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish: it needs data, attributes, or both."""

    data: bytes = b""
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    """At most 1024 bytes of UTF-8; empty: none. Messages of one key can be handed on in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage(Message):
    """A message of a subscription. It may be published again, and then gets another id and time."""

    id: str
    """Its place in its topic, from 0."""
    publish_time: datetime
    """When the service stored it, in UTC."""
    ack_id: str
    """Acknowledges it; of an ordered subscription, all before it too."""
    delivery_attempt: int | None = None
    """The number of this delivery, from 1: how often it has failed, and one more. None: the subscription is ordered."""


Acknowledged: TypeAlias = ReceivedMessage | str | Sequence[ReceivedMessage | str]
"""A message that was received, or its ack id; or several of them."""


def ack_ids_of(messages: Acknowledged) -> list[str]:
    """Return the ack ids of one message or of several."""
    every = [messages] if isinstance(messages, ReceivedMessage | str) else messages
    return [each if isinstance(each, str) else each.ack_id for each in every]


def outgoing(message: Message) -> wire.Message:
    """Return a message as it is published; an id and a time are the service's to give."""
    return wire.message(message.data, message.attributes, message.ordering_key)


def incoming(received: wire.ReceivedMessage) -> ReceivedMessage:
    """Read a message as it came from a pull; raise `ValueError` for a time that is none."""
    message = received.message
    return ReceivedMessage(
        data=data_of(message),
        attributes=message.attributes,
        ordering_key=received.ordering_key,
        id=message.message_id,
        publish_time=datetime.fromisoformat(message.publish_time).astimezone(UTC),
        ack_id=received.ack_id,
        delivery_attempt=received.delivery_attempt,
    )


def data_of(message: wire.PulledMessage) -> bytes:
    """Return the data of a message as bytes."""
    try:
        return message.payload()
    except ValueError:
        # A service without strict_data keeps data that is not base64 as the text that came (clients.md, A17).
        return message.data.encode()
