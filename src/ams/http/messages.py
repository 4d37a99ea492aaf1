"""Messages on the wire: parses publish and pull requests, writes deliveries (contract 10 and 12).

A worker process parses big requests. Without one the same functions parse them here, in slices that yield to the event
loop in between.
"""

import asyncio
import contextlib
import re
import struct
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, Generic, TypeVar, cast

import msgspec
import pybase64

from ams.core import messages
from ams.core.ack_ids import AckIds, ack_ids_of
from ams.core.clock import publish_time
from ams.core.errors import InvalidInput, refuse_if
from ams.core.messages import Batch, Fragment, Stored
from ams.core.names import Offset, ack_offsets
from ams.core.runs import runs_of
from ams.http.bodies import BIG_BODY, YIELD_BYTES, YIELD_MESSAGES, BodyReader, check_attributes, holds_few, slices_of
from ams.service.parallel.pulls import LeaseBatch
from ams.wire.base import CamelRequest, Request
from ams.wire.messages import AckBody, AttributePair, PublishBody, PublishedMessage, PullBody
from ams.workers.pool import NoWorker, Pool, TaskFailed

M = TypeVar("M")

IDEMPOTENCY_KEY = b"idempotency-key"  # header field with the key of a publish
_VALID_KEY = re.compile(rb"[ -~]{1,255}")  # valid keys; the parser has cut off blanks around them
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_IDS_PER_YIELD = 4096  # ack ids of a big body parsed between two yields to the event loop
_WORKER_SECONDS = 10.0  # for a worker to parse a body; after that it is parsed here
_COUNTS = struct.Struct("<QQQQ")
"""Of a `Batch`: bytes of the fragments and of the largest of them, data bytes, messages that are not base64."""
_ids: Callable[[memoryview], list[str] | None] = msgspec.msgpack.Decoder(list[str] | None).decode

_publish = BodyReader(PublishBody, "Invalid Message Arguments")
_one = BodyReader(PublishedMessage, "Invalid Message Arguments")
_EMPTY = PublishedMessage()
_pull = BodyReader(PullBody, "Invalid Pull Parameters Arguments")
_acknowledge = BodyReader(AckBody, "Invalid ack parameter")


class MessageReader:
    """Parses publish and acknowledge requests: big ones by a worker of `pool`, or here, one at a time."""

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool
        self._one_at_a_time = asyncio.Lock()

    async def read(self, body: bytes, *, lenient: bool = False, project: Hashable = None) -> Batch:
        """Return the messages of a publish body; `lenient` accepts data that is not base64 (contract 17.1, M7).

        Raises `InvalidInput` "Invalid Message Arguments", with the index of a bad message from 0, as schemas do
        (contract 15.3), and `TooLarge` for more than `MAX_MESSAGES`, or `MAX_ATTRIBUTES` in one.
        """
        if len(body) <= BIG_BODY:
            return self.read_small(body, lenient=lenient)
        if self._pool is not None and self._pool.is_ready(len(body)):
            parts = b"lenient" if lenient else b"", body
            with contextlib.suppress(NoWorker, TaskFailed):
                async with self._pool.run_job(project, read_messages, parts, seconds=_WORKER_SECONDS) as made:
                    return await _take_batch(*made)
        async with self._one_at_a_time:
            unusual = _UnusualMessages(lenient)
            for slice_ in slices_of(body):
                await asyncio.sleep(0)
                unusual.read(slice_)
            return unusual.batch()

    def read_small(self, body: bytes, *, lenient: bool = False) -> Batch:
        """Parse a body of at most `BIG_BODY` bytes, as `read`, without waiting."""
        usual = _read_usual(body)
        if usual is not None:
            return usual
        unusual = _UnusualMessages(lenient)
        for each in _publish.read(body).messages or ():
            unusual.add(each)
        return unusual.batch()

    async def ack_ids(self, prefix: str, body: bytes, *, project: Hashable = None) -> list[str] | None:
        """Parse an acknowledge body; None if the ids are absent. Raises `InvalidInput` "Invalid ack parameter".

        Returns only the largest id of a big body, or none if one of them is invalid.
        """
        if len(body) <= BIG_BODY:
            return ack_ids(body)
        if self._pool is not None and self._pool.is_ready(len(body)):
            parts = prefix.encode(), body
            with contextlib.suppress(NoWorker, TaskFailed):
                async with self._pool.run_job(project, read_ack_ids, parts, seconds=_WORKER_SECONDS) as [found]:
                    return _ids(found)
        async with self._one_at_a_time:
            ids = ack_ids(body)
            while ids and len(ids) > _IDS_PER_YIELD:
                await asyncio.sleep(0)
                largest = _largest_id(prefix, ids[-_IDS_PER_YIELD:])
                if largest is None:
                    return None
                ids[-_IDS_PER_YIELD:] = largest
            return _largest_id(prefix, ids)

    async def each_ack_id(self, prefix: str, body: bytes) -> AckIds:
        """Parse each id of a body of any size, as the function `each_ack_id`."""
        if len(body) <= BIG_BODY:
            return each_ack_id(prefix, body)
        async with self._one_at_a_time:
            return await ack_ids_in_turns(prefix, _require_ids(ack_ids(body)))


async def ack_ids_in_turns(prefix: str, ids: Sequence[str]) -> AckIds:
    """Parse ack ids as `ack_ids_of`, many of them in slices that yield to the event loop."""
    if len(ids) <= _IDS_PER_YIELD:
        return ack_ids_of(prefix, ids)
    found: dict[str, list[Offset]] = {}
    for start in range(0, len(ids), _IDS_PER_YIELD):
        await asyncio.sleep(0)
        for hand_out, offsets in ack_ids_of(prefix, ids[start : start + _IDS_PER_YIELD]).items():
            found.setdefault(hand_out, []).extend(offsets)
    return found


def each_ack_id(prefix: str, body: bytes) -> AckIds:
    """Parse each id of a parallel subscription. Raises `InvalidInput` "Invalid ack parameter", or "Invalid ack id"."""
    return ack_ids_of(prefix, _require_ids(ack_ids(body)))


def _require_ids(ids: list[str] | None) -> list[str]:
    if not ids:
        raise InvalidInput("Invalid ack id")
    return ids


def read_messages(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Parse a big publish body in a worker. The first part is whether to be lenient. Raises as `MessageReader.read`.

    Returns counts (`_COUNTS`), the lengths of the fragments, 4 bytes each, and the fragments.
    """
    lenient, body = map(bytes, parts)
    batch = _read_usual(body) if holds_few(body) else None
    if batch is None:
        unusual = _UnusualMessages(bool(lenient))
        for slice_ in slices_of(body):
            unusual.read(slice_)
        batch = unusual.batch()
    counts = _COUNTS.pack(batch.size, batch.largest, batch.data_bytes, batch.not_base64)
    return counts, array("I", map(len, batch.fragments)).tobytes(), b"".join(batch.fragments)


async def _take_batch(counts: memoryview, lengths: memoryview, blob: memoryview) -> Batch:
    fragments: list[Fragment] = []
    size = 0
    for start, end in pairwise(accumulate(array("I", bytes(lengths)), initial=0)):
        fragments.append(Fragment(bytes(blob[start:end])))
        size += end - start
        if len(fragments) % YIELD_MESSAGES == 0 or size >= YIELD_BYTES:
            await asyncio.sleep(0)
            size = 0
    return Batch(messages.ParsedMessages(fragments), fragments, *_COUNTS.unpack(counts))


class _UnusualMessages:
    """Messages of a request, in any form that clients use. Raises `InvalidInput` for a bad one."""

    def __init__(self, is_lenient: bool) -> None:
        self._is_lenient = is_lenient  # True: data that is not base64 is counted; False: it is refused
        self._messages: list[messages.Message] = []
        self._not_base64 = 0

    def read(self, raw: Sequence[msgspec.Raw]) -> None:
        for each in raw:
            check_attributes(each)
            self.add(_one.read(each))

    def add(self, published: PublishedMessage | None) -> None:
        sent, place = published or _EMPTY, len(self._messages)
        data, key, attributes = sent.data or "", sent.ordering_key or "", _attributes(sent.attributes)
        if not attributes and not data.strip("\r\n"):  # line breaks do not count as data (contract 17.1, M7)
            raise _bad_message("message", place, "has neither data nor attributes")
        if not messages.is_ordering_key(key):
            raise _bad_message("the ordering key of message", place, f"has more than {messages.MAX_ORDERING_KEY} bytes")
        is_plain = True
        try:
            pybase64.b64decode(data, validate=True)
        except ValueError:  # not standard, padded base64
            is_plain = False
            self._check_base64(data, place)
        self._messages.append(messages.message(data, attributes, key, plain=is_plain))

    def batch(self) -> Batch:
        return messages.batch_of(self._messages, not_base64=self._not_base64)

    def _check_base64(self, data: str, place: int) -> None:
        try:
            messages.decoded_data(data)
        except ValueError:
            if not self._is_lenient:
                text = "is not base64, as strict_data demands: encode it"
                raise _bad_message("the data of message", place, text) from None
            self._not_base64 += 1


def _bad_message(what: str, place: int, text: str) -> InvalidInput:
    return InvalidInput(f"Invalid Message Arguments: {what} {place}, counted from 0, {text}")


class UsualMessage(CamelRequest, frozen=True, gc=False):
    """A `PublishedMessage` as nearly all clients write it: without an ordering key."""

    ordering_key: ClassVar[None] = None
    data: str = ""
    attributes: dict[str, str] | None = None
    message_id: str | None = None
    publish_time: str | None = None


class KeyedMessage(CamelRequest, frozen=True, gc=False):
    """A usual message that may have an ordering key."""

    data: str = ""
    attributes: dict[str, str] | None = None
    ordering_key: str | None = None
    message_id: str | None = None
    publish_time: str | None = None


class BodyOf(Request, Generic[M], frozen=True):
    """A `PublishBody` of such messages."""

    messages: list[M] | None = None


_usual_body = msgspec.json.Decoder(BodyOf[UsualMessage]).decode
_keyed_body = msgspec.json.Decoder(BodyOf[KeyedMessage]).decode


def _read_usual(body: bytes) -> Batch | None:
    try:
        return messages.batch_of_base64(_usual_body(body).messages or ())
    except (ValueError, RecursionError):
        if b'"orderingKey"' not in body:
            return None
    try:
        return messages.batch_of_base64_and_keys(_keyed_body(body).messages or ())
    except (ValueError, RecursionError):
        return None


def read_ack_ids(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Parse a big acknowledge body in a worker: from prefix and body to the result of `MessageReader.ack_ids`."""
    prefix, body = map(bytes, parts)
    return [msgspec.msgpack.encode(_largest_id(prefix.decode(), ack_ids(body)))]


def _largest_id(prefix: str, ids: list[str] | None) -> list[str] | None:
    """Return the id with the largest number, None if one is invalid; no ids are returned as they are."""
    if not ids:
        return ids
    try:
        return [f"{prefix}{max(ack_numbers(prefix, ids))}"]
    except InvalidInput:
        return None


def _attributes(given: dict[str, str | None] | list[AttributePair] | None) -> dict[str, str]:
    if not given:
        return {}
    if isinstance(given, list):
        return {pair.key or "": pair.value or "" for pair in given}
    if None in given.values():
        return {name: value or "" for name, value in given.items()}
    return cast("dict[str, str]", given)


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the idempotency key of a publish, None without the header. The value is kept as it is, quotes included.

    Raises `InvalidInput` unless it is given once, as 1 to 255 visible ASCII characters or inner blanks. Proxies and
    libraries read other characters differently, so equal keys could become unequal.
    """
    found = [value for name, value in headers if name == IDEMPOTENCY_KEY] if headers else ()
    if not found:
        return None
    refuse_if(len(found) > 1, "Idempotency-Key is given more than once")
    key = found[0].strip(b" \t")
    refuse_if(not _VALID_KEY.fullmatch(key), "Idempotency-Key must have 1 to 255 visible ASCII characters")
    return key.decode("ascii")


# The answers of hot routes are joined by hand, as described in `ams.wire.messages`.


def encode_published(first: int, count: int) -> bytes:
    """Return the answer of a publish: the ids in request order."""
    if count == 1:
        return b'{"messageIds":["%d"]}' % first
    ids = b",".join([b'"%d"' % number for number in range(first, first + count)])
    return b'{"messageIds":[%b]}' % ids


def pull_request(body: bytes) -> tuple[int, bool]:
    """Parse a pull body. Returns the number of messages, and whether to wait for the first (contract 10.1)."""
    request = _pull.read(body)
    wanted, wait = request.max_messages, request.return_immediately in (None, False, "false")
    if isinstance(wanted, str) and not _INTEGER.fullmatch(wanted):
        return 1, wait
    return max(int(wanted or 1), 1), wait


_PULL_ANSWER_START = b'{"receivedMessages":['


def pull_answer(ack_prefix: str, stored: Sequence[Stored], behind: str = '"') -> bytes:
    """Return the answer of a pull: a single join of all parts, so each fragment is copied once.

    `behind` follows the number in an ack id: the end of the id, and further members.
    """
    if not stored:
        return _PULL_ANSWER_START + b"]}"
    head = f'{{"ackId":"{ack_prefix}'
    middle = f'{behind},"message":{{"messageId":"'.encode()
    parts, end = [_PULL_ANSWER_START, head.encode()], b""
    for first, time, fragments, _, has_keys in runs_of(stored):
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
    """Yield the parts of messages with ordering keys, which are beside `message` (contract A6)."""
    for offset, fragment in enumerate(fragments, first):
        number = b"%d" % offset
        key, message = messages.split_ordering_key(fragment)
        yield from (number, behind, b",", key, b'"message":{"messageId":"', number, b'",', message, between)


def lease_answer(ack_prefix: str, lots: Sequence[LeaseBatch]) -> bytes:
    """Return the answer of a pull of a parallel subscription; attempts are beside `message`, like keys (A6)."""
    answers = [
        pull_answer(ack_prefix, each.messages, f'-{each.hand_out}","deliveryAttempt":{each.attempt}') for each in lots
    ]
    if len(answers) == 1:
        return answers[0]
    return b"%b%b%b" % (_PULL_ANSWER_START, b",".join([each[len(_PULL_ANSWER_START) : -2] for each in answers]), b"]}")


def ack_ids(body: bytes) -> list[str] | None:
    """Parse an acknowledge body; None if the field is absent. Raises `InvalidInput` "Invalid ack parameter"."""
    return _acknowledge.read(body).ack_ids


def ack_numbers(prefix: str, ids: list[str] | None) -> list[int]:
    """Return the numbers of ack ids, which must begin with `prefix`. Raises `InvalidInput` "Invalid ack id"."""
    if ids is None:
        raise InvalidInput("Invalid ack id")
    return ack_offsets(prefix, ids)
