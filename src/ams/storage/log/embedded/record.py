"""The record: one topic's messages of one group commit, or one control, as bytes (`docs/reference/log-format.md`).

Both checksums start with the low 32 bits of the segment's sequence number. So bytes of another segment never match.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment
from ams.core.names import Offset, TopicId
from ams.core.runs import Run

try:
    from isal.isal_zlib import crc32
except ImportError:  # not available for this machine
    from zlib import crc32

MAGIC = b"\xffAMS"
HEADER_BYTES = 68
RECORD_BYTES = 64 * 1024  # target size of a record's messages; a larger message makes a larger record
MAX_REQUESTS = 0xFFFF
HEAD = 3  # numbers per request in `encode_messages`
NO_TOPIC, NO_FIRST = TopicId(bytes(16)), Offset(0)  # of records without a topic, and without an offset
_HEADER = struct.Struct("<4sIII16sQQQIIHBB")
_START, _CHECKED = struct.Struct("<4sI"), struct.Struct("<II16sQQQIIHBB")  # header: magic and checksum; checked part
_REQUEST = struct.Struct("<IIHH")
_NOTE = struct.Struct("<QI16s")
_NUMBER = struct.Struct("<Q")
_LAST, _ORDERING_KEYS = 1, 2  # the flags
_SLICE = 5 * 1024
_SMALL = 1024  # fragments of fewer bytes on average are joined: a separate part costs as much as the copy


class RecordKind(IntEnum):
    """Type of a record."""

    MESSAGES = 1
    CREATE = 2
    DROP = 3  # tombstone of a topic
    RETENTION = 4
    MARK = 5
    OLDEST = 6
    CURSORS = 7


_MESSAGES = int(RecordKind.MESSAGES)


class RecordHeader(NamedTuple):
    """The head of a record, its checksum verified."""

    kind: int
    last: bool
    topic: TopicId
    first: Offset
    time: Milliseconds
    commit: int
    durable: int
    messages: int
    requests: int
    body_bytes: int = 0
    body_checksum: int = 0
    has_ordering_keys: bool = False

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return HEADER_BYTES + self.body_bytes

    @property
    def end(self) -> Offset:
        """The offset after its last message."""
        return Offset(self.first + self.messages)


class Stamp(NamedTuple):
    """Common fields of the records of one group commit in one segment; `seed` starts the checksums."""

    commit: int
    durable: int
    seed: int


def checksum(data: bytes | memoryview, seed: int) -> int:
    """Return the CRC-32 of `data`, started with `seed`.

    Data up to a record's size is processed in slices so small that the library does not release the GIL. Getting the
    GIL back can cost a busy service a hundred times the checksum.
    """
    if len(data) <= _SLICE or len(data) > 2 * RECORD_BYTES:
        return crc32(data, seed)
    view = memoryview(data)
    for start in range(0, len(data), _SLICE):
        seed = crc32(view[start : start + _SLICE], seed)
    return seed


def encode_control(
    kind: RecordKind, body: bytes, time: Milliseconds, stamp: Stamp, topic: TopicId = NO_TOPIC, first: Offset = NO_FIRST
) -> bytes:
    """Encode a record without messages."""
    commit, durable, seed = stamp
    checked = _CHECKED.pack(len(body), checksum(body, seed), topic, first, time, commit, durable, 0, 0, kind, _LAST)
    return _START.pack(MAGIC, crc32(checked, seed)) + checked + body


def encode_messages(
    parts: list[bytes], stamp: Stamp, topic: TopicId, first: Offset, time: Milliseconds, heads: Sequence[int],
    notes: Sequence[bytes], fragments: Sequence[Fragment], last: bool, has_ordering_keys: bool,
) -> int:  # fmt: skip
    """Append the encoded messages record to `parts`; return its length.

    Args:
        heads: three numbers per request: its messages in this record, their data bytes, length of its key note.
        notes: key notes (`encode_note`).
    """
    commit, durable, seed = stamp
    messages = len(fragments)
    if messages == 1 and len(heads) == HEAD and not notes:  # usual where there are many topics
        size = len(fragments[0])
        before = _one_message(*heads, size)
    else:
        lengths = [*map(len, fragments)]
        size = sum(lengths)
        if notes:
            before = b"".join((_numbers(len(heads)).pack(*heads), *notes, _numbers(messages).pack(*lengths)))
        else:
            before = _numbers(len(heads) + messages).pack(*heads, *lengths)
        if size < _SMALL * messages:
            fragments = (Fragment(b"".join(fragments)),)
    body = crc32(before, seed) if len(before) <= _SLICE else checksum(before, seed)
    for part in fragments:
        body = crc32(part, body) if len(part) <= _SLICE else checksum(part, body)
    flags = last * _LAST | has_ordering_keys * _ORDERING_KEYS
    requests, size = len(heads) // HEAD, len(before) + size
    checked = _CHECKED.pack(size, body, topic, first, time, commit, durable, messages, requests, _MESSAGES, flags)
    parts.append(b"".join((_START.pack(MAGIC, crc32(checked, seed)), checked, before)))
    parts += fragments
    return HEADER_BYTES + size


def encode_note(key: bytes, content: bytes, first: Offset, messages: int) -> bytes:
    """Encode the idempotency key of an append, the 16-byte hash of its content, and the place of its messages."""
    return _NOTE.pack(first, messages, content) + key


_one_message = struct.Struct(f"<{HEAD + 1}I").pack


@lru_cache
def _numbers(count: int) -> struct.Struct:
    """Return the format of `count` 4-byte numbers. A note's length has 2 bytes, followed by 2 zero bytes."""
    return struct.Struct(f"<{count}I")


def decode_header(data: bytes, seed: int, position: int = 0) -> RecordHeader | None:
    """Return the header at `position`, or None if the bytes are not a valid header."""
    if len(data) < position + HEADER_BYTES:
        return None
    magic, claimed, size, body, topic, first, time, commit, durable, messages, requests, kind, flags = (
        _HEADER.unpack_from(data, position)
    )
    if magic != MAGIC or crc32(data[position + _START.size : position + HEADER_BYTES], seed) != claimed:
        return None
    last, has_keys = bool(flags & _LAST), bool(flags & _ORDERING_KEYS)
    return RecordHeader(kind, last, topic, first, time, commit, durable, messages, requests, size, body, has_keys)


def control_body(kind: RecordKind, retention: Milliseconds | None, published: int) -> bytes:
    """Return the body of a control record; `published`: earlier data bytes of a topic that is moved here."""
    if kind not in (RecordKind.CREATE, RecordKind.RETENTION):
        return b""
    body = _NUMBER.pack(retention or 0)
    return body + _NUMBER.pack(published) if kind == RecordKind.CREATE and published else body


def read_control(body: bytes) -> tuple[Milliseconds | None, int]:
    """Decode the body of a control record: the topic's own retention, and its earlier data bytes."""
    retention, published = (int.from_bytes(part, "little") for part in (body[:8], body[8:]))
    return Milliseconds(retention) if retention else None, published


def data_bytes_and_notes(header: RecordHeader, body: bytes) -> tuple[int, Sequence[tuple[bytes, bytes, Offset, int]]]:
    """Decode the data bytes of a record, and what `encode_note` encoded; for recovery."""
    if header.requests == 1:
        _, data_bytes, note_bytes, _ = _REQUEST.unpack_from(body)
        if not note_bytes:
            return data_bytes, ()
    position = header.requests * _REQUEST.size
    published, notes = 0, []
    for _, data_bytes, note_bytes, _ in _REQUEST.iter_unpack(body[:position]):
        published += data_bytes
        if note_bytes:
            first, count, content = _NOTE.unpack_from(body, position)
            notes.append((body[position + _NOTE.size : position + note_bytes], content, first, count))
            position += note_bytes
    return published, notes


def run_of(header: RecordHeader, data: bytes, body: int) -> Run:
    """Return the messages of a record whose body begins at `body` in `data`."""
    heads = struct.unpack_from(f"<{header.requests * 6}H", data, body)
    position = body + header.requests * _REQUEST.size + sum(heads[4::6])  # behind the key notes
    lengths = struct.unpack_from(f"<{header.messages}I", data, position)
    ends = list(accumulate(lengths, initial=position + header.messages * 4))
    fragments = [data[begin:end] for begin, end in pairwise(ends)]
    size = ends[-1] - ends[0]
    return Run(header.first, header.time, cast("list[Fragment]", fragments), size, header.has_ordering_keys)
