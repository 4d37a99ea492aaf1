"""Big bodies: split into messages, and these counted, before anything is made of them (contract 12.2).

Whatever megabytes hold, no step takes longer than to pass over its text.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ams.core.errors import InvalidInput, TooLarge
from ams.http.bodies import Reader, count_members
from ams.wire.base import CamelRequest, Request

BIG_BODY = 256 * 1024
"""Bodies above this are read by a worker process, or one at a time, letting other requests in between."""
MAX_MESSAGES = 100_000
"""In a request; small ones cost more to read than to send."""
MAX_ATTRIBUTES = 100_000
"""Of a message, likewise."""
BREATH_MESSAGES = 256
BREATH_BYTES = 512 * 1024
"""Messages of a big body that are read, or taken from a worker, between two breaths, and bytes of them."""


class BigPublishBody(Request, frozen=True):
    """A big `PublishBody`, its messages left as they came."""

    messages: msgspec.Raw = msgspec.Raw(b"null")


class BigMessage(CamelRequest, frozen=True):
    """A big `PublishedMessage`, its fields left as they came."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    ordering_key: msgspec.Raw = msgspec.Raw(b"null")
    message_id: msgspec.Raw = msgspec.Raw(b"null")
    publish_time: msgspec.Raw = msgspec.Raw(b"null")


_big_publish = Reader(BigPublishBody, lambda: InvalidInput("Invalid Message Arguments"))
_big_message = Reader(BigMessage, lambda: InvalidInput("Invalid Message Arguments"))
_each = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def holds_few(body: bytes) -> bool:
    """Whether a body has surely no more messages, and none of them more attributes, than may be.

    A message is an object, and a name of an object has a colon behind it.
    """
    return body.count(b"{") <= MAX_MESSAGES and body.count(b":") <= MAX_ATTRIBUTES


def slices_of(body: bytes) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the messages of a publish body in slices that take a moment to read; the first is empty.

    Raises `InvalidInput` "Invalid Message Arguments", `TooLarge` for more than `MAX_MESSAGES`.
    """
    messages = _big_publish.read(body).messages
    yield ()
    yield from _slices(_split(messages))


def check_attributes(message: msgspec.Raw) -> None:
    """Raise `TooLarge` for a message of more than `MAX_ATTRIBUTES`, `InvalidInput` for what is none."""
    if len(memoryview(message)) <= BIG_BODY:
        return
    try:
        _count_attributes(_big_message.read(message).attributes)
    except (ValueError, RecursionError):  # no object of texts and no list of pairs
        raise InvalidInput("Invalid Message Arguments") from None


def _split(messages: msgspec.Raw) -> list[msgspec.Raw]:
    """Split a list of messages; raise `TooLarge` when there are too many."""
    try:
        if bytes(messages).count(b",") >= MAX_MESSAGES:  # perhaps too many; commas stand in texts too
            _count(messages, MAX_MESSAGES)
        return _each(messages) or []
    except (ValueError, RecursionError):
        raise InvalidInput("Invalid Message Arguments") from None


def _count(items: msgspec.Raw, most: int) -> None:
    """Raise `TooLarge` as soon as a list has an object too many, before anything is made of them."""
    numbers = iter(range(most))

    class Counted(msgspec.Struct):
        def __post_init__(self) -> None:
            if next(numbers, None) is None:
                raise TooLarge

    msgspec.json.decode(items, type=list[Counted] | None)


def _count_attributes(attributes: msgspec.Raw) -> None:
    text = bytes(attributes)
    if text.count(b",") < MAX_ATTRIBUTES:
        return
    if text.startswith(b"["):
        _count(attributes, MAX_ATTRIBUTES)
    elif text.startswith(b"{"):
        try:
            count_members(attributes, MAX_ATTRIBUTES)
        except ValueError:
            raise TooLarge from None


def _slices(messages: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the messages in slices that take a moment to read."""
    start = size = 0
    for number, each in enumerate(messages):
        size += len(memoryview(each))
        if number - start >= BREATH_MESSAGES or size >= BREATH_BYTES:
            yield messages[start : number + 1]
            start, size = number + 1, 0
    yield messages[start:]
