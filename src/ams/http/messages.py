"""Messages on the wire: reading what is published and pulled for, writing what is delivered (contract 10 and 12).

A worker process reads big requests. Where there is none they are read here, by the same functions, in slices with
breaths in between.
"""

import asyncio
import contextlib
import re
import struct
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, cast

import msgspec
import pybase64

from ams.core.ack_ids import AckIds, ack_ids_of
from ams.core.clock import publish_time
from ams.core.errors import InvalidInput
from ams.core.messages import (
    MAX_ORDERING_KEY,
    Batch,
    Fragment,
    Message,
    Parsed,
    Stored,
    batch_of,
    batch_of_base64,
    batch_of_base64_and_keys,
    decoded_data,
    is_ordering_key,
    message,
    split_ordering_key,
)
from ams.core.names import Offset, ack_offsets
from ams.core.runs import runs_of
from ams.http.bodies import BIG_BODY, BREATH_BYTES, BREATH_MESSAGES, Reader, check_attributes, holds_few, slices_of
from ams.service.parallel.pulling import Lot
from ams.wire.base import CamelRequest, Request
from ams.wire.messages import AckBody, AttributePair, PublishBody, PublishedMessage, PullBody
from ams.workers import NoWorker, Pool, TaskFailed

IDEMPOTENCY_KEY = b"idempotency-key"  # the name of the header field that has the key of a publish
_KEY = re.compile(rb"[ -~]{1,255}")  # what may be an idempotency key, blanks around it cut off by the parser
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_BREATH_IDS = 4096  # ack ids of a big body that are read between two breaths
_SECONDS = 10.0  # for a worker to read a body; after that it is read here
_ORDERING_KEY = b'"orderingKey"'
_COUNTS = struct.Struct("<QQQQ")
"""Of a `Batch`: bytes of the fragments and of the largest of them, data bytes, messages that are not base64."""
_ids: Callable[[memoryview], list[str] | None] = msgspec.msgpack.Decoder(list[str] | None).decode

_publish = Reader(PublishBody, lambda: InvalidInput("Invalid Message Arguments"))
_one = Reader(PublishedMessage, lambda: InvalidInput("Invalid Message Arguments"))
_pull = Reader(PullBody, lambda: InvalidInput("Invalid Pull Parameters Arguments"))
_acknowledge = Reader(AckBody, lambda: InvalidInput("Invalid ack parameter"))


class MessageReader:
    """Reads publish and acknowledge requests: big ones by a worker of `pool`, or here, one at a time."""

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool
        self._one_at_a_time = asyncio.Lock()

    async def read(self, body: bytes, *, lenient: bool = False, project: Hashable = None) -> Batch:
        """Return the messages of a publish body; `lenient` takes data that is not base64 (contract 17.1, M7).

        Raises `InvalidInput` "Invalid Message Arguments", with the place of a bad message, counted from 0 as schemas do
        (contract 15.3), and `TooLarge` for more than `MAX_MESSAGES`, or `MAX_ATTRIBUTES` of one.
        """
        if len(body) <= BIG_BODY:
            return self.read_small(body, lenient=lenient)
        if self._pool is not None and self._pool.is_ready(len(body)):
            parts = b"lenient" if lenient else b"", body
            with contextlib.suppress(NoWorker, TaskFailed):
                async with self._pool.done(project, read_messages, parts, seconds=_SECONDS) as made:
                    return await _taken(*made)
        async with self._one_at_a_time:
            messages: list[Message] = []
            found = _Found(lenient)
            for slice_ in slices_of(body):
                await asyncio.sleep(0)
                messages += _read_slice(slice_, len(messages), found)
            return batch_of(messages, not_base64=found.not_base64)

    def read_small(self, body: bytes, *, lenient: bool = False) -> Batch:
        """Do what `read` does, of a body of at most `BIG_BODY` bytes and without a wait."""
        usual = _usual(body)
        return _unusual(body, lenient) if usual is None else usual

    async def ack_ids(self, prefix: str, body: bytes, *, project: Hashable = None) -> list[str] | None:
        """Read an acknowledge body; None when the ids are absent. Raises `InvalidInput` "Invalid ack parameter".

        Of a big one only the largest id is left, or nothing when one of them is invalid.
        """
        if len(body) <= BIG_BODY:
            return ack_ids(body)
        if self._pool is not None and self._pool.is_ready(len(body)):
            parts = prefix.encode(), body
            with contextlib.suppress(NoWorker, TaskFailed):
                async with self._pool.done(project, read_ack_ids, parts, seconds=_SECONDS) as [found]:
                    return _ids(found)
        async with self._one_at_a_time:
            ids = ack_ids(body)
            while ids and len(ids) > _BREATH_IDS:
                await asyncio.sleep(0)
                largest = _largest(prefix, ids[-_BREATH_IDS:])
                if largest is None:
                    return None
                ids[-_BREATH_IDS:] = largest
            return _largest(prefix, ids)

    async def each_ack_id(self, prefix: str, body: bytes) -> AckIds:
        """Do what `each_ack_id` does, of a body of any size."""
        if len(body) <= BIG_BODY:
            return each_ack_id(prefix, body)
        async with self._one_at_a_time:
            return await ack_ids_in_turns(prefix, _some(ack_ids(body)))


async def ack_ids_in_turns(prefix: str, ids: Sequence[str]) -> AckIds:
    """Do what `ack_ids_of` does; of many ids in slices with breaths in between."""
    if len(ids) <= _BREATH_IDS:
        return ack_ids_of(prefix, ids)
    found: dict[str, list[Offset]] = {}
    for start in range(0, len(ids), _BREATH_IDS):
        await asyncio.sleep(0)
        for hand_out, offsets in ack_ids_of(prefix, ids[start : start + _BREATH_IDS]).items():
            found.setdefault(hand_out, []).extend(offsets)
    return found


def each_ack_id(prefix: str, body: bytes) -> AckIds:
    """Read each id of a parallel subscription; raise `InvalidInput` "Invalid ack parameter", or "Invalid ack id"."""
    return ack_ids_of(prefix, _some(ack_ids(body)))


def _some(ids: list[str] | None) -> list[str]:
    if not ids:
        raise InvalidInput("Invalid ack id")
    return ids


def read_messages(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Read a big publish body, after whether to be lenient; a job of a worker. Raises as `MessageReader.read`.

    Returns counts (`_COUNTS`), the lengths of the fragments, 4 bytes each, and the fragments.
    """
    lenient, body = map(bytes, parts)
    batch = _usual(body) if holds_few(body) else None
    if batch is None:
        messages: list[Message] = []
        found = _Found(bool(lenient))
        for slice_ in slices_of(body):
            messages += _read_slice(slice_, len(messages), found)
        batch = batch_of(messages, not_base64=found.not_base64)
    counts = _COUNTS.pack(batch.size, batch.largest, batch.data_bytes, batch.not_base64)
    return counts, array("I", map(len, batch.fragments)).tobytes(), b"".join(batch.fragments)


async def _taken(counts: memoryview, lengths: memoryview, blob: memoryview) -> Batch:
    fragments: list[Fragment] = []
    size = 0
    for start, end in pairwise(accumulate(array("I", bytes(lengths)), initial=0)):
        fragments.append(Fragment(bytes(blob[start:end])))
        size += end - start
        if len(fragments) % BREATH_MESSAGES == 0 or size >= BREATH_BYTES:
            await asyncio.sleep(0)
            size = 0
    return Batch(Parsed(fragments), fragments, *_COUNTS.unpack(counts))


class _Found:
    """Counts messages of a request that are not base64; raises `InvalidInput` for one unless it is to be lenient."""

    __slots__ = ("_is_lenient", "not_base64")

    def __init__(self, is_lenient: bool) -> None:
        self._is_lenient = is_lenient
        self.not_base64 = 0

    def check(self, data: str, place: int) -> None:
        try:
            decoded_data(data)
        except ValueError:
            if not self._is_lenient:
                raise InvalidInput(
                    f"Invalid Message Arguments: the data of message {place}, counted from 0, is not base64, as"
                    " strict_data demands: encode it"
                ) from None
            self.not_base64 += 1


def _read_slice(raw: Sequence[msgspec.Raw], place: int, found: _Found) -> list[Message]:
    """Read messages, of which the first is at a place of its request."""
    messages = []
    for number, each in enumerate(raw, place):
        check_attributes(each)
        messages.append(_message(_one.read(each), number, found))
    return messages


class UsualMessage(CamelRequest, frozen=True, gc=False):
    """A `PublishedMessage` as nearly all clients write it: without an ordering key."""

    ordering_key: ClassVar[None] = None
    data: str = ""
    attributes: dict[str, str] | None = None
    message_id: str | None = None
    publish_time: str | None = None


class UsualBody(Request, frozen=True):
    """A `PublishBody` of such messages."""

    messages: list[UsualMessage] | None = None


class KeyedMessage(CamelRequest, frozen=True, gc=False):
    """The same of a message that may have an ordering key."""

    data: str = ""
    attributes: dict[str, str] | None = None
    ordering_key: str | None = None
    message_id: str | None = None
    publish_time: str | None = None


class KeyedBody(Request, frozen=True):
    """A `PublishBody` of such messages."""

    messages: list[KeyedMessage] | None = None


_usual_body = msgspec.json.Decoder(UsualBody).decode
_keyed_body = msgspec.json.Decoder(KeyedBody).decode


def _usual(body: bytes) -> Batch | None:
    try:
        return batch_of_base64(_usual_body(body).messages or ())
    except (ValueError, RecursionError):
        return _usual_with_keys(body) if _ORDERING_KEY in body else None


def _usual_with_keys(body: bytes) -> Batch | None:
    try:
        return batch_of_base64_and_keys(_keyed_body(body).messages or ())
    except (ValueError, RecursionError):
        return None


def _unusual(body: bytes, lenient: bool) -> Batch:
    every = _publish.read(body).messages or ()
    found = _Found(lenient)
    messages = [_message(each, place, found) for place, each in enumerate(every)]
    return batch_of(messages, not_base64=found.not_base64)


def read_ack_ids(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Read a big acknowledge body; a job of a worker: from prefix and body to what `MessageReader.ack_ids` returns."""
    prefix, body = map(bytes, parts)
    return [msgspec.msgpack.encode(_largest(prefix.decode(), ack_ids(body)))]


def _largest(prefix: str, ids: list[str] | None) -> list[str] | None:
    """Return the id with the largest number, None when one of them is invalid; no ids are returned as they are."""
    if not ids:
        return ids
    try:
        return [f"{prefix}{max(ack_numbers(prefix, ids))}"]
    except InvalidInput:
        return None


def _message(published: PublishedMessage | None, place: int, found: _Found) -> Message:
    if published is None:
        raise _empty(place)
    data, key = published.data or "", published.ordering_key or ""
    attributes = _attributes(published.attributes)
    if not attributes and not data.strip("\r\n"):  # line breaks are no data (contract 17.1, M7)
        raise _empty(place)
    if not is_ordering_key(key):
        raise InvalidInput(
            f"Invalid Message Arguments: the ordering key of message {place}, counted from 0, has more than"
            f" {MAX_ORDERING_KEY} bytes"
        )
    try:
        pybase64.b64decode(data, validate=True)
    except ValueError:  # more than standard, padded base64
        found.check(data, place)
        return message(data, attributes, key, plain=False)
    return message(data, attributes, key, plain=True)


def _attributes(given: dict[str, str | None] | list[AttributePair] | None) -> dict[str, str]:
    if not given:
        return {}
    if isinstance(given, list):
        return {pair.key or "": pair.value or "" for pair in given}
    if None in given.values():
        return {name: value or "" for name, value in given.items()}
    return cast("dict[str, str]", given)


def _empty(place: int) -> InvalidInput:
    return InvalidInput(f"Invalid Message Arguments: message {place}, counted from 0, has neither data nor attributes")


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the key of a publish, None without the header; the key is its value as it is, quotes included.

    Raises `InvalidInput` unless it is given once, as 1 to 255 visible ASCII characters, blanks inside allowed: what
    else a header may carry is read differently by proxies and libraries, so that equal keys could become unequal.
    """
    found = [value for name, value in headers if name == IDEMPOTENCY_KEY] if headers else ()
    if not found:
        return None
    if len(found) > 1:
        raise InvalidInput("Idempotency-Key is given more than once")
    key = found[0].strip(b" \t")
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
    wanted, wait = request.max_messages, request.return_immediately in (None, False, "false")
    if isinstance(wanted, str) and not _INTEGER.fullmatch(wanted):
        return 1, wait
    return max(int(wanted or 1), 1), wait


_RECEIVED = b'{"receivedMessages":['


def pulled(ack_prefix: str, messages: Sequence[Stored], behind: str = '"') -> bytes:
    """Write the answer of a pull: one join of all its parts, so that a fragment is copied once.

    `behind` stands between the number of an ack id and the next member: what the id ends with, and further members.
    """
    if not messages:
        return _RECEIVED + b"]}"
    head = f'{{"ackId":"{ack_prefix}'
    middle = f'{behind},"message":{{"messageId":"'.encode()
    parts, end = [_RECEIVED, head.encode()], b""
    for first, time, fragments, _, has_keys in runs_of(messages):
        end = f',"publishTime":"{publish_time(time)}"}}}}'.encode()
        between = b"%b,%b" % (end, parts[1])
        if has_keys:
            parts += _with_keys(first, fragments, behind.encode(), between)
            continue
        for offset, fragment in enumerate(fragments, first):
            number = b"%d" % offset
            parts += (number, middle, number, b'",', fragment, between)
    parts[-1] = end + b"]}"
    return b"".join(parts)


def _with_keys(first: Offset, fragments: Sequence[Fragment], behind: bytes, between: bytes) -> Iterator[bytes]:
    """Yield the parts of messages of which some have ordering keys; these stand beside `message` (contract A6)."""
    for offset, fragment in enumerate(fragments, first):
        number = b"%d" % offset
        key, message = split_ordering_key(fragment)
        yield from (number, behind, b",", key, b'"message":{"messageId":"', number, b'",', message, between)


def leased(ack_prefix: str, lots: Sequence[Lot]) -> bytes:
    """Write the answer of a pull of a parallel subscription; attempts stand beside `message`, as keys do (A6)."""
    answers = [
        pulled(ack_prefix, each.messages, f'-{each.hand_out}","deliveryAttempt":{each.attempt}') for each in lots
    ]
    if len(answers) == 1:
        return answers[0]
    return b"%b%b%b" % (_RECEIVED, b",".join([each[len(_RECEIVED) : -2] for each in answers]), b"]}")


def ack_ids(body: bytes) -> list[str] | None:
    """Read an acknowledge body; None when the field is absent. Raises `InvalidInput` "Invalid ack parameter"."""
    return _acknowledge.read(body).ack_ids


def ack_numbers(prefix: str, ids: list[str] | None) -> list[int]:
    """Return the numbers of ack ids that all begin with `prefix`; raise `InvalidInput` "Invalid ack id"."""
    if ids is None:
        raise InvalidInput("Invalid ack id")
    return ack_offsets(prefix, ids)
