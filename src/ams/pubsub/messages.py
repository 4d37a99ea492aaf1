"""Converts messages: from published to stored, and from stored to received."""

from collections.abc import Iterable, Sequence

import pybase64

from ams.core import messages
from ams.core.errors import InvalidInput, TooLarge
from ams.core.messages import Message, Stored, is_ordering_key, parse
from ams.pubsub import protos
from ams.pubsub.fields import timestamp
from ams.service.parallel.pulls import LeaseBatch

MOST_MESSAGES = 1000
MOST_ATTRIBUTES, MOST_KEY, MOST_VALUE = 100, 256, 1024
MAX_RESPONSE_BYTES = 3_500_000  # bytes of messages in one answer: some clients take no answer of 4 MiB
_RESERVED = "goog"
_TRACING = frozenset({"googclient_traceparent", "googclient_tracestate", "googclient_OpenTelemetrySpanContext"})
"""Reserved names that Google's clients set themselves when tracing is on; the last by Node before 4.9."""


def messages_to_publish(request: protos.Message, most: int) -> Sequence[Message]:
    """Return a publish request's messages; raise `InvalidInput`, `TooLarge` beyond `most` bytes or Google's limits."""
    if not request.messages:
        raise InvalidInput("The value for message_count is too small. You must pass at least 1 message.")
    if len(request.messages) > MOST_MESSAGES:
        raise InvalidInput(
            f"The value for message_count is too large. You passed {len(request.messages)} in the request, but the"
            f" maximum value is {MOST_MESSAGES}."
        )
    size = request.ByteSize()
    if size > most:
        raise TooLarge(
            f"The value for request_size is too large. You passed {size} in the request, but the maximum value is"
            f" {most} (setting pubsub_max_message_bytes)."
        )
    if len({each.ordering_key for each in request.messages}) > 1:
        raise InvalidInput(
            "In a single publish request, all messages must have no ordering key or they must all have the same one."
        )
    return [_to_stored(each) for each in request.messages]


def _to_stored(message: protos.Message) -> Message:
    attributes = dict(message.attributes)
    if len(attributes) > MOST_ATTRIBUTES:
        raise InvalidInput(
            f"A message has too many attributes: it has {len(attributes)}, and at most {MOST_ATTRIBUTES} are allowed."
        )
    for key, value in attributes.items():
        if not 0 < len(key.encode()) <= MOST_KEY or len(value.encode()) > MOST_VALUE:
            raise _bad_attribute(len(key.encode()), len(value.encode()))
        if key[: len(_RESERVED)].lower() == _RESERVED and key not in _TRACING:
            raise InvalidInput(f"The attribute key {key} is reserved: keys must not begin with {_RESERVED}.")
    if not message.data and not attributes:
        raise InvalidInput("Some messages have neither data nor attributes: one of them must not be empty.")
    if not is_ordering_key(message.ordering_key):
        raise InvalidInput(f"The ordering key is too long: at most {messages.MAX_ORDERING_KEY} bytes are allowed.")
    data = pybase64.b64encode(message.data).decode()
    return messages.message(data, attributes, message.ordering_key, plain=True)


def _bad_attribute(key: int, value: int) -> InvalidInput:
    if not key:
        return InvalidInput("An attribute has an empty key: a key has at least 1 byte.")
    what, size, most = ("key", key, MOST_KEY) if key > MOST_KEY else ("value", value, MOST_VALUE)
    return InvalidInput(f"An attribute {what} is too long: it has {size} bytes, and at most {most} are allowed.")


def received_messages(lots: Sequence[LeaseBatch], *, with_attempt: bool) -> list[protos.Message]:
    """Return messages as they are received; `with_attempt` says of each how often it was delivered."""
    found = []
    for hand_out, delivery, stored in lots:
        attempt = delivery if with_attempt else 0
        tail = f"-{hand_out}"
        found += [
            protos.ReceivedMessage(ack_id=f"{each.offset}{tail}", message=_message(each), delivery_attempt=attempt)
            for each in stored
        ]
    return found


def _message(stored: Stored) -> protos.Message:
    offset, time, fragment = stored
    message = parse(fragment)
    return protos.PubsubMessage(
        data=messages.data_or_text(message.data),
        attributes=message.attributes,
        message_id=str(offset),
        publish_time=timestamp(time),
        ordering_key=message.ordering_key,
    )


def in_answers(messages: Iterable[protos.Message], most: int) -> list[list[protos.Message]]:
    """Return received messages in groups of at most so many bytes; one that is larger has a group of its own."""
    groups: list[list[protos.Message]] = []
    size = most
    for each in messages:
        length = each.ByteSize() + 8
        if size + length > most:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += length
    return groups
