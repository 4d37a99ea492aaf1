"""Messages on the wire: reading what is published and pulled for, writing what is delivered (contract 10 and 12).

A big publish body is split into messages, and these are counted, before anything is made of them (contract 12.2):
whatever megabytes hold, no step takes longer than to pass over its text.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
import pybase64

from ams.core.clock import publish_time
from ams.core.errors import InvalidInput, TooLarge
from ams.core.messages import Batch, Message, Stored, batch_of, batch_of_base64, decoded_data, message
from ams.core.names import ack_offset
from ams.core.runs import runs_of
from ams.http.bodies import Reader, count_members
from ams.wire.base import CamelRequest, Request
from ams.wire.messages import AckBody, AttributePair, PublishBody, PublishedMessage, PullBody

_KEY = re.compile(rb"[ -~]{1,255}")
"""What may be an idempotency key, blanks around it cut off by the parser."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_BREATH_IDS = 4096
"""Ack ids of a big body that are read between two breaths."""


_publish = Reader(PublishBody, lambda: InvalidInput("Invalid Message Arguments"))
_one = Reader(PublishedMessage, lambda: InvalidInput("Invalid Message Arguments"))
_pull = Reader(PullBody, lambda: InvalidInput("Invalid Pull Parameters Arguments"))
_acknowledge = Reader(AckBody, lambda: InvalidInput("Invalid ack parameter"))


class MessageReader:
    """Reads what may be big: publish and acknowledge requests, the big ones one at a time, others in between.

    `lenient` stores data that is not base64 as it is (contract 17.1, M7).
    """

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient
        self._one_at_a_time = asyncio.Lock()

    async def read(self, body: bytes, *, lenient: bool = False) -> Batch:
        """Return the messages of a publish body; raise `InvalidInput` "Invalid Message Arguments".

        Of a message that is empty or no base64 the text goes on with its place, counted from 0 as schemas do
        (contract 15.3).

        Raises `TooLarge` for more than `MAX_MESSAGES` of them, or `MAX_ATTRIBUTES` of one.

        `lenient` leaves data that is not base64 to be refused by the topic's schema, with its text (contract 15.3).
        """
        if len(body) <= BIG_BODY:
            return self.read_small(body, lenient=lenient)
        lenient = lenient or self._lenient
        async with self._one_at_a_time:
            messages: list[Message] = []
            for slice_ in _slices_of(body):
                await asyncio.sleep(0)
                places = enumerate(slice_, start=len(messages))
                messages += [_message(_read_one(each), place, lenient) for place, each in places]
            return batch_of(messages)

    def read_small(self, body: bytes, *, lenient: bool = False) -> Batch:
        """Do what `read` does, of a body of at most `BIG_BODY` bytes and without a wait."""
        usual = _usual(body)
        return _unusual(body, lenient or self._lenient) if usual is None else usual

    async def ack_ids(self, prefix: str, body: bytes) -> list[str] | None:
        """Read an acknowledge body; None when the ids are absent. Raises `InvalidInput` "Invalid ack parameter".

        Of a big one only the largest id is left, or nothing when one of them is invalid.
        """
        if len(body) <= BIG_BODY:
            return ack_ids(body)
        async with self._one_at_a_time:
            ids = ack_ids(body)
            return ids and await _largest(prefix, ids)


class UsualMessage(CamelRequest, frozen=True, gc=False):
    """A `PublishedMessage` as nearly all clients write it."""

    data: str = ""
    attributes: dict[str, str] | None = None
    message_id: str | None = None
    publish_time: str | None = None


class UsualBody(Request, frozen=True):
    """A `PublishBody` of such messages."""

    messages: list[UsualMessage] | None = None


_usual_body = msgspec.json.Decoder(UsualBody).decode


def _usual(body: bytes) -> Batch | None:
    """Return the messages of a body that needs no closer look; None of any other."""
    try:
        return batch_of_base64(_usual_body(body).messages or ())
    except (ValueError, RecursionError):
        return None


def _unusual(body: bytes, lenient: bool) -> Batch:
    """Return the messages of any small body; see `MessageReader.read`."""
    every = _publish.read(body).messages or ()
    return batch_of([_message(each, place, lenient) for place, each in enumerate(every)])


def _read_one(raw: msgspec.Raw) -> PublishedMessage:
    _check_attributes(raw)
    return _one.read(raw)


async def _largest(prefix: str, ids: list[str]) -> list[str] | None:
    found: list[int] = []
    for start in range(0, len(ids), _BREATH_IDS):
        await asyncio.sleep(0)
        try:
            found.append(max(ack_numbers(prefix, ids[start : start + _BREATH_IDS])))
        except InvalidInput:
            return None
    return [f"{prefix}{max(found)}"]


def _message(published: PublishedMessage | None, place: int, lenient: bool) -> Message:
    if published is None:
        raise _empty(place)
    data = published.data or ""
    attributes = _attributes(published.attributes)
    if not attributes and not data.strip("\r\n"):  # line breaks are no data (contract 17.1, M7)
        raise _empty(place)
    plain = _is_base64(data)
    if not plain and not lenient:
        _must_decode(data, place)
    return message(data, attributes, plain=plain)


def _attributes(given: dict[str, str | None] | list[AttributePair] | None) -> dict[str, str]:
    if not given:
        return {}
    if isinstance(given, list):
        return {pair.key or "": pair.value or "" for pair in given}
    if None in given.values():
        return {name: value or "" for name, value in given.items()}
    return cast("dict[str, str]", given)


def _is_base64(data: str) -> bool:
    """Whether this is standard, padded base64 and nothing else."""
    try:
        pybase64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def _empty(place: int) -> InvalidInput:
    return InvalidInput(f"Invalid Message Arguments: message {place}, counted from 0, has neither data nor attributes")


def _must_decode(data: str, place: int) -> None:
    try:
        decoded_data(data)
    except ValueError:
        raise InvalidInput(
            f"Invalid Message Arguments: the data of message {place}, counted from 0, is not base64: encode it, or run"
            " the service with the setting lenient_data"
        ) from None


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the key of a publish, None without the header; the key is its value as it is, quotes included.

    Raises `InvalidInput` unless it is given once, as 1 to 255 visible ASCII characters, blanks inside allowed: what
    else a header may carry is read differently by proxies and libraries, so that equal keys could become unequal.
    """
    for name, value in headers:
        if name == b"idempotency-key":
            return _key(value, headers)
    return None


def _key(value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str:
    if [name for name, _ in headers].count(b"idempotency-key") > 1:
        raise InvalidInput("Idempotency-Key is given more than once")
    key = value.strip(b" \t")
    if not _KEY.fullmatch(key):
        raise InvalidInput("Idempotency-Key must have 1 to 255 visible ASCII characters")
    return key.decode("ascii")


# The answers of hot routes are joined by hand, as `ams.wire.messages` describes them.


def published(first: int, count: int) -> bytes:
    """Write the answer of a publish: the ids in request order."""
    if count == 1:
        return b'{"messageIds":["%d"]}' % first
    ids = b",".join([b'"%d"' % number for number in range(first, first + count)])
    return b'{"messageIds":[%b]}' % ids


def pull_request(body: bytes) -> tuple[int, bool]:
    """Read a pull body: how many messages, and whether to wait for a first one (contract 10.1)."""
    request = _pull.read(body)
    wait = request.return_immediately in (None, False, "false")
    return _wanted(request.max_messages), wait


def _wanted(value: str | int | None) -> int:
    """Return the number asked for; absent, not an integer, zero or negative is 1."""
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        return 1
    return max(int(value or 1), 1)


def pulled(ack_prefix: str, messages: Sequence[Stored]) -> bytes:
    """Write the answer of a pull: one join of all its parts, so that a fragment is copied once."""
    if not messages:
        return b'{"receivedMessages":[]}'
    head = f'{{"ackId":"{ack_prefix}'
    parts, end = [b'{"receivedMessages":[', head.encode()], b""
    for first, time, fragments, _ in runs_of(messages):
        end = f',"publishTime":"{publish_time(time)}"}}}}'.encode()
        between = b"%b,%b" % (end, parts[1])
        for offset, fragment in enumerate(fragments, first):
            number = b"%d" % offset
            parts += (number, b'","message":{"messageId":"', number, b'",', fragment, between)
    parts[-1] = end + b"]}"
    return b"".join(parts)


def ack_ids(body: bytes) -> list[str] | None:
    """Read an acknowledge body; None when the field is absent. Raises `InvalidInput` "Invalid ack parameter"."""
    return _acknowledge.read(body).ack_ids


def ack_numbers(prefix: str, ids: list[str] | None) -> list[int]:
    """Return the numbers of ack ids that all begin with `prefix`; raise `InvalidInput` "Invalid ack id"."""
    if ids is None:
        raise InvalidInput("Invalid ack id")
    return [ack_offset(prefix, each) for each in ids]


BIG_BODY = 256 * 1024
"""Bodies above this are decoded one at a time, letting other requests in between."""
MAX_MESSAGES = 100_000
"""In a request; small ones cost more to read than to send."""
MAX_ATTRIBUTES = 100_000
"""Of a message, likewise."""
_BREATH_MESSAGES = 256
_BREATH_BYTES = 512 * 1024
"""Messages of a big body that are read between two breaths, and how much of it."""


class BigPublishBody(Request, frozen=True):
    """A big `PublishBody`, its messages left as they came."""

    messages: msgspec.Raw = msgspec.Raw(b"null")


class BigMessage(CamelRequest, frozen=True):
    """A big `PublishedMessage`, its fields left as they came."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    attributes: msgspec.Raw = msgspec.Raw(b"null")
    message_id: msgspec.Raw = msgspec.Raw(b"null")
    publish_time: msgspec.Raw = msgspec.Raw(b"null")


_big_publish = Reader(BigPublishBody, lambda: InvalidInput("Invalid Message Arguments"))
_big_message = Reader(BigMessage, lambda: InvalidInput("Invalid Message Arguments"))
_each = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def _slices_of(body: bytes) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield the messages of a publish body in slices that take a moment to read; the first is empty.

    Raises `InvalidInput` "Invalid Message Arguments", `TooLarge` for more than `MAX_MESSAGES`.
    """
    messages = _big_publish.read(body).messages
    yield ()
    yield from _slices(_split(messages))


def _check_attributes(message: msgspec.Raw) -> None:
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
        if number - start >= _BREATH_MESSAGES or size >= _BREATH_BYTES:
            yield messages[start : number + 1]
            start, size = number + 1, 0
    yield messages[start:]
