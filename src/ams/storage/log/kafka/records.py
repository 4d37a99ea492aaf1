"""Messages as Kafka records, and back.

A record's value is the message's decoded data, its headers are the attributes in their order, so that Spark and others
read our topics as they are. Data that is not the one way to write its bytes in base64 (line breaks, odd last bits, or
no base64 at all) is the value as it stands, and a header says so. Headers that begin with `ams:` are ours; an attribute
whose name begins so gets another colon after that. The fragment of a message read is byte for byte the one published.

Records of others are shown as they can be: a value in base64, none as empty data; no key. Headers are attributes: none
as an empty text, bytes that are no UTF-8 with replacement characters, of several with one name the last. Markers of
transactions are no messages; a batch that cannot be read at all is skipped and logged.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import pybase64
import structlog
from aiokafka.errors import KafkaError
from aiokafka.record.memory_records import MemoryRecords

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged
from ams.core.messages import Fragment, Sent, Stored, message
from ams.core.names import Offset
from ams.core.runs import Run, runs_of
from ams.storage.log.kafka.partition import Partition

logger = structlog.get_logger("ams.log")

OURS = "ams:"  # what the names of our own headers begin with
ESCAPED = OURS + ":"  # what an attribute's name begins with when it would begin with `OURS`
TEXT = OURS + "text"  # header of a message whose value is its data as text
ORDERING_KEY = OURS + "orderingKey"  # header with the ordering key of a message, as UTF-8
HOLE = OURS + "hole"  # fills an offset that was left out when the topic was loaded

Header = tuple[str, bytes | None]

UNREADABLE = (UnicodeDecodeError, KafkaError, RuntimeError)  # raised by a batch of others that cannot be read here

_PLAIN: Any = b'"data":"%b"'
_base64 = pybase64.b64encode
_decode = pybase64.b64decode
_offset_of, _value_of, _headers_of = map(attrgetter, ("offset", "value", "headers"))

_EVEN_OF_ONE, _EVEN_OF_TWO = "AQgw", "AEIMQUYcgkosw048"  # last characters of base64 without odd bits

LAST_TIME = 253_402_300_799_999  # milliseconds: the end of the year 9999, beyond which a time cannot be written


def encode(sent: Sent) -> tuple[bytes, list[Header]]:
    """Return the value and the headers of a message."""
    headers: list[Header] = []
    for name, value in sent.attributes.items() if sent.attributes else ():
        headers.append((ESCAPED + name[len(OURS) :] if name.startswith(OURS) else name, value.encode()))
    if sent.ordering_key:
        headers.append((ORDERING_KEY, sent.ordering_key.encode()))
    text = sent.data
    try:
        raw: bytes = _decode(text, None, True)
    except ValueError:
        return text.encode("utf-8", "surrogatepass"), [*headers, (TEXT, b"")]
    # Only base64 that ends in `=` may have odd last bits; what is before them has one way to be written.
    if text[-1:] == "=" and not (text[-3] in _EVEN_OF_ONE if text[-2] == "=" else text[-2] in _EVEN_OF_TWO):
        return text.encode(), [*headers, (TEXT, b"")]
    return raw, headers


def fragment_of(value: bytes | None, headers: Sequence[Header]) -> Fragment:
    """Return the fragment of a record with this value and these headers."""
    if not headers:
        return Fragment(_PLAIN % _base64(value or b""))
    attributes: dict[str, str] = {}
    for name, value_ in headers:
        if name.startswith(ESCAPED):
            name = OURS + name[len(ESCAPED) :]
        elif name.startswith(OURS):
            continue
        attributes[name] = (value_ or b"").decode("utf-8", "replace")
    ours = {name: text for name, text in headers if name in (TEXT, ORDERING_KEY)}
    key = (ours.get(ORDERING_KEY) or b"").decode("utf-8", "replace")
    if TEXT in ours:
        try:
            text = (value or b"").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # not by us
            text = (value or b"").decode("utf-8", "replace")
        return message(text, attributes, key).fragment
    return message(_base64(value or b"").decode(), attributes, key, plain=True).fragment


def batches(data: bytes) -> Iterator[Any]:
    """Return the whole batches in the answer to a fetch; what is cut off at its end is left out."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch


def pieces(partition: Partition, batch: Any, start: Offset, most: int) -> Iterator[Sequence[Run]]:
    """Return the messages of a batch from `start` on, `most` at a time; pieces may be empty. Raises `Damaged`."""
    if batch.is_control_batch:
        return
    if not batch.validate_crc():
        raise Damaged(f"Kafka topic {partition.name}: wrong checksum at offset {batch.base_offset}")
    try:
        records = iter(iter(batch).__next__, None)  # a batch may be begun once, and a slice begins what it is given
        while piece := list(islice(records, most)):
            yield _runs(piece, partition.first, start)
    except UNREADABLE as error:
        logger.warning("log.skipped", topic=partition.name, offset=batch.base_offset, reason=type(error).__name__)


def _runs(records: list[Any], first: Offset, start: Offset) -> Sequence[Run]:
    if records[0].offset + first < start:
        records = [each for each in records if each.offset + first >= start]
    if any(map(_headers_of, records)):
        records = [each for each in records if not (each.headers and each.headers[0][0] == HOLE)]
        fragments = [fragment_of(each.value, each.headers) for each in records]
    else:  # `fragment_of` as it is without headers, written out: this is done for every message that is read
        fragments = [_PLAIN % _base64(value or b"") for value in map(_value_of, records)]
    if not records:
        return ()
    oldest, newest = records[0], records[-1]
    # Times are given by the broker, one for a batch, or by the writer.
    if oldest.timestamp_type and newest.offset - oldest.offset == len(records) - 1:
        return (Run.of(Offset(oldest.offset + first), oldest.timestamp, fragments),)
    offsets: Any = [each + first for each in map(_offset_of, records)]
    times = [Milliseconds(min(max(each.timestamp, 0), LAST_TIME)) for each in records]
    return runs_of(list(map(Stored, offsets, times, fragments)))
