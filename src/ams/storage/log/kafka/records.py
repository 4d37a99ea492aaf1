"""Conversion of messages to Kafka records and back.

A record's value is the decoded data and its headers are the attributes in order, so that Spark and others can read our
topics. Data that is not canonical base64 (line breaks, odd last bits, other text) is stored as it is, with a header
that says so. Headers with the prefix `ams:` are ours. An attribute whose name has this prefix gets a second colon. A
read returns the published fragment byte for byte.

Records of other producers are converted as far as possible. The value becomes base64, a null value empty data. The key
is ignored. Headers become attributes: null as empty text, bytes that are not UTF-8 with replacement characters. The
last of several with one name counts. Transaction markers are skipped. An unreadable batch is skipped and logged.
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
OUR_PREFIX = "ams:"  # of our own headers
ESCAPED = OUR_PREFIX + ":"  # replaces `OUR_PREFIX` in names of attributes
TEXT = OUR_PREFIX + "text"  # header of a message whose value is its data as text
ORDERING_KEY = OUR_PREFIX + "orderingKey"  # header with the ordering key of a message, as UTF-8
HOLE = OUR_PREFIX + "hole"  # fills an offset that was left out when the topic was loaded
LAST_TIME = 253_402_300_799_999  # milliseconds: end of the year 9999, the maximum of our time format
Header = tuple[str, bytes | None]
UNREADABLE = (UnicodeDecodeError, KafkaError, RuntimeError)  # raised for unreadable batches of other producers
_PLAIN: Any = b'"data":"%b"'
_base64 = pybase64.b64encode
_decode = pybase64.b64decode
_offset_of, _value_of, _headers_of = map(attrgetter, ("offset", "value", "headers"))
_EVEN_OF_ONE, _EVEN_OF_TWO = "AQgw", "AEIMQUYcgkosw048"  # last characters of base64 without odd bits


def encode(sent: Sent) -> tuple[bytes, list[Header]]:
    """Convert a message to value and headers."""
    headers: list[Header] = []
    for name, value in sent.attributes.items() if sent.attributes else ():
        headers.append((ESCAPED + name[len(OUR_PREFIX) :] if name.startswith(OUR_PREFIX) else name, value.encode()))
    if sent.ordering_key:
        headers.append((ORDERING_KEY, sent.ordering_key.encode()))
    text = sent.data
    try:
        raw: bytes = _decode(text, None, True)
    except ValueError:
        return text.encode("utf-8", "surrogatepass"), [*headers, (TEXT, b"")]
    # Only base64 that ends in `=` may have odd last bits; the rest is canonical.
    if text[-1:] == "=" and not (text[-3] in _EVEN_OF_ONE if text[-2] == "=" else text[-2] in _EVEN_OF_TWO):
        return text.encode(), [*headers, (TEXT, b"")]
    return raw, headers


def fragment_of(value: bytes | None, headers: Sequence[Header]) -> Fragment:
    """Convert value and headers of a record to a message fragment."""
    if not headers:
        return Fragment(_PLAIN % _base64(value or b""))
    attributes: dict[str, str] = {}
    for name, value_ in headers:
        if name.startswith(ESCAPED):
            name = OUR_PREFIX + name[len(ESCAPED) :]
        elif name.startswith(OUR_PREFIX):
            continue
        attributes[name] = (value_ or b"").decode("utf-8", "replace")
    ours = {name: text for name, text in headers if name in (TEXT, ORDERING_KEY)}
    key = (ours.get(ORDERING_KEY) or b"").decode("utf-8", "replace")
    if TEXT in ours:
        try:
            text = (value or b"").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # by another producer
            text = (value or b"").decode("utf-8", "replace")
        return message(text, attributes, key).fragment
    return message(_base64(value or b"").decode(), attributes, key, plain=True).fragment


def batches(data: bytes) -> Iterator[Any]:
    """Yield the whole batches of a fetch response; a truncated last one is left out."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch


def pieces(partition: Partition, batch: Any, start: Offset, most: int) -> Iterator[Sequence[Run]]:
    """Yield the messages of a batch from `start` on, up to `most` at a time, maybe none. Raises `Damaged`."""
    if batch.is_control_batch:
        return
    if not batch.validate_crc():
        raise Damaged(f"Kafka topic {partition.name}: wrong checksum at offset {batch.base_offset}")
    try:
        records = iter(iter(batch).__next__, None)  # `islice` calls `iter`, which a batch allows only once
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
    else:  # `fragment_of` inlined for records without headers (hot path)
        fragments = [_PLAIN % _base64(value or b"") for value in map(_value_of, records)]
    if not records:
        return ()
    oldest, newest = records[0], records[-1]
    # With LogAppendTime all records of a batch have one time.
    if oldest.timestamp_type and newest.offset - oldest.offset == len(records) - 1:
        return (Run.of(Offset(oldest.offset + first), oldest.timestamp, fragments),)
    offsets: Any = [each + first for each in map(_offset_of, records)]
    times = [Milliseconds(min(max(each.timestamp, 0), LAST_TIME)) for each in records]
    return runs_of(list(map(Stored, offsets, times, fragments)))
