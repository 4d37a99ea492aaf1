"""Messages: published, pulled, acknowledged, and read by their ids (contract 10 and 12)."""

import base64
from collections.abc import Mapping, Sequence

from ams.wire.base import CamelObject, CamelRequest, Request, Text


class AttributePair(Request, frozen=True):
    """An attribute in the old spelling of `attributes` as a list (contract 12.1)."""

    key: str | None = None
    value: str | None = None


class PublishedMessage(CamelRequest, frozen=True):
    """A message to publish; id and time of a pulled one are ignored (contract 12.1)."""

    data: str | None = None
    attributes: dict[str, str | None] | list[AttributePair] | None = None
    ordering_key: str | None = None  # at most 1024 bytes of UTF-8; empty is none
    message_id: str | None = None
    publish_time: str | None = None


class PublishBody(Request, frozen=True):
    """Messages to publish, in order."""

    messages: list[PublishedMessage | None] | None = None


class PullBody(CamelRequest, frozen=True):
    """How many messages are wanted, and whether to answer at once (contract 10.1)."""

    max_messages: str | int | None = None
    return_immediately: str | bool | None = None


class AckBody(CamelRequest, frozen=True):
    """Ids to acknowledge; everything up to the largest is."""

    ack_ids: list[str] | None = None


class Published(CamelObject, frozen=True):
    """Ids of the messages that were published, in request order."""

    message_ids: list[str]


class PulledMessage(CamelObject, frozen=True, kw_only=True):
    """A message as it is delivered (contract 10.2): these fields and no others, as clients fail at any other."""

    message_id: Text = ""
    attributes: Mapping[str, str] = {}
    data: Text = ""  # base64 text as it travels; or other text, as it was published
    publish_time: Text = ""

    def payload(self) -> bytes:
        """Return the data decoded, line breaks within tolerated as the service does; `ValueError` if not base64."""
        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError:
            return base64.b64decode(self.data.replace("\r", "").replace("\n", ""), validate=True)


class Message(PulledMessage, frozen=True, kw_only=True):
    """A message (contract 12.1); id and time are the service's, and empty in one to be published."""

    ordering_key: str = ""  # messages of one key are handed on in their order where that is asked for; empty: none


def message(payload: bytes, attributes: Mapping[str, str] | None = None, ordering_key: str = "") -> Message:
    """Make a message to publish."""
    data = base64.b64encode(payload).decode("ascii")
    return Message(data=data, attributes=attributes or {}, ordering_key=ordering_key)


class ReceivedMessage(CamelObject, frozen=True, kw_only=True):
    """A message, its ordering key if it has one, and the id that acknowledges it, of an ordered subscription all
    before it too.
    """

    ack_id: str
    delivery_attempt: int | None = None  # of a parallel subscription, from 1: how often it has failed, plus one
    ordering_key: str = ""
    message: PulledMessage


class Received(CamelObject, frozen=True):
    """The messages of a pull; an empty list when there are none."""

    received_messages: Sequence[ReceivedMessage]


class ReadMessage(Message, frozen=True, kw_only=True):
    """One line of a range of messages."""

    offset: int  # its id as a number
