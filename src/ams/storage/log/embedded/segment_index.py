"""The index of a segment: positions of each topic's records, and idempotency keys; in memory, and as a file.

Open segments have `SegmentEntries`, and sealed ones until their index file is written. Numbers are in arrays: 28 bytes
per record. Sealed segments have a `KeyFilter`, so that a new key needs no disk read. The format of the file is in
`docs/reference/log-format.md`. Its table of all topics keeps the end of every topic after its segments are deleted, so
that offsets never start again at 0.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.errors import Damaged, Unusable
from ams.core.names import Offset, TopicId
from ams.storage.files import Disk, open_file
from ams.storage.log.base import Appended

INDEX_MAGIC = b"\xffAMSidx\n"
VERSION = 1
HEAD_BYTES = 96
ENTRIES_PER_BLOCK = 128
KEYS_PER_BLOCK = 64
KEYS_PER_BUCKET = 32  # keys for each bucket, on average
_REST_BITS = 16
_REST_MASK = (1 << _REST_BITS) - 1
_PREFIX_BYTES = 6
_STRETCH = 8 * _PREFIX_BYTES - _REST_BITS
_HEAD = struct.Struct("<8sBB6xQQQQIIIIQQI8x")
_ROW = struct.Struct("<16sQQQQQQQQIIII")
_ENTRY_BYTES = 28
_CHECKSUM_BYTES = 4
_HEAD_PART = "index header"
KEYED_RESULT = struct.Struct("<QIQ16s")
"""The answer to an append with an idempotency key (`Appended`), and the `content_hash` of its messages.

Encoded also in memory: very many objects would slow the garbage collector.
"""
_KEY = struct.Struct(f"<16s{KEYED_RESULT.size}s")


class Entries:
    """Records of one topic in one segment, in offset order, without damaged ones and those of another class."""

    __slots__ = ("counts", "firsts", "lengths", "positions", "times")

    def __init__(self) -> None:
        self.firsts, self.times = array("Q"), array("Q")
        self.counts, self.positions, self.lengths = array("I"), array("I"), array("I")

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def columns(self) -> "tuple[array[int], ...]":
        """First offsets, times, counts, positions and lengths."""
        return (self.firsts, self.times, self.counts, self.positions, self.lengths)

    @property
    def bytes(self) -> int:
        """Size of the records in bytes."""
        return sum(self.lengths)

    @property
    def end(self) -> Offset:
        """The offset after the last record's messages."""
        return self.end_of(-1)

    def end_of(self, number: int) -> Offset:
        """Return the offset after a record's messages."""
        return Offset(self.firsts[number] + self.counts[number])

    def add(self, first: Offset, time: Milliseconds, count: int, position: int, length: int) -> None:
        """Take one more record."""
        self.firsts.append(first)
        self.times.append(time)
        self.counts.append(count)
        self.positions.append(position)
        self.lengths.append(length)

    def at(self, offset: Offset) -> int:
        """Return the number of the record with `offset`, or of the next one; `len` if all records are before."""
        number = bisect_right(self.firsts, offset)
        return number - 1 if number and offset < self.end_of(number - 1) else number

    def holds(self, offset: Offset) -> bool:
        """Return whether a record contains `offset`."""
        number = self.at(offset)
        return number < len(self.firsts) and self.firsts[number] <= offset

    def since(self, time: Milliseconds) -> int:
        """Return the number of the first record published at `time` or later; `len` if all are earlier."""
        return bisect_left(self.times, time)


@dataclass(slots=True)
class SegmentEntries:
    """The whole index of one segment."""

    topics: dict[TopicId, Entries] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)  # answers (`KEYED_RESULT`) by `key_hash`
    keyed: dict[TopicId, int] = field(default_factory=dict)  # number of keys of each topic
    newest: Milliseconds = Milliseconds(0)  # largest time of a record, creates and drops included

    def add(self, topic: TopicId, first: Offset, time: Milliseconds, count: int, position: int, length: int) -> None:
        """Take one more record."""
        entries = self.topics.get(topic)
        if entries is None:
            entries = self.topics[topic] = Entries()
        entries.add(first, time, count, position, length)
        if time > self.newest:
            self.newest = time

    def note_time(self, time: Milliseconds) -> None:
        """Update `newest` by the time of a record."""
        if time > self.newest:
            self.newest = time

    def keep_topics(self, known: Collection[TopicId]) -> None:
        """Drop the records of other topics."""
        self.topics = {topic: entries for topic, entries in self.topics.items() if topic in known}

    def add_key(self, topic: TopicId, hashed: bytes, appended: Appended, content: bytes) -> None:
        """Add a key and its answer."""
        self.keys[hashed] = KEYED_RESULT.pack(*appended, content)
        self.keyed[topic] = self.keyed.get(topic, 0) + 1


def _prefix_of(hashed: bytes) -> int:
    return int.from_bytes(hashed[:_PREFIX_BYTES])


class KeyFilter(NamedTuple):
    """Approximate set of the keys of a segment, with false positives (like a Bloom filter)."""

    starts: "array[int]"  # number of the first key of each bucket, then the number of keys
    rests: "array[int]"  # 16-bit fingerprint of each key, in the order of the hashes

    def may_hold(self, hashed: bytes) -> bool:
        """Return False if the key with this hash is certainly not in the set."""
        starts, rests = self
        if not rests:
            return False
        place = _prefix_of(hashed) * (len(starts) - 1) >> _STRETCH
        bucket, rest = place >> _REST_BITS, place & _REST_MASK
        stop = starts[bucket + 1]
        at = bisect_left(rests, rest, starts[bucket], stop)
        return at < stop and rests[at] == rest


def make_filter(hashes: Sequence[bytes]) -> KeyFilter:
    """Return the filter of keys, given their sorted hashes."""
    buckets = max(1, (len(hashes) + KEYS_PER_BUCKET - 1) // KEYS_PER_BUCKET)
    places = [_prefix_of(hashed) * buckets >> _STRETCH for hashed in hashes]
    starts = [bisect_left(places, bucket << _REST_BITS) for bucket in range(buckets + 1)]
    return KeyFilter(array("I", starts), array("H", [place & _REST_MASK for place in places]))


class IndexHead(NamedTuple):
    """The head of an index file."""

    class_code: int
    sequence: int
    length: int
    commit: int
    newest: Milliseconds
    rows: int
    blocks: int
    key_blocks: int
    directory_checksum: int
    keys: int
    keys_position: int
    filter_bytes: int

    @property
    def directory_bytes(self) -> int:
        """Length of the directory, which follows the head."""
        return self.rows * _ROW.size + self.blocks * 24 + self.key_blocks * 16

    @property
    def filter_position(self) -> int:
        """Where the filter is, after the keys."""
        return self.keys_position + self.keys * _KEY.size + self.key_blocks * _CHECKSUM_BYTES

    @property
    def size(self) -> int:
        """Length of the whole file."""
        return self.filter_position + self.filter_bytes


class TopicRow(NamedTuple):
    """A topic that existed when the segment was sealed: its end, and its part of the segment."""

    topic: TopicId
    end: Offset
    time: Milliseconds  # of its last message
    published: int  # data bytes, in total
    commit: int  # of its last record; later commits are not in these figures
    retention: int  # milliseconds; 0 = the log's default
    oldest: Offset
    reach: Offset = Offset(0)  # end of its messages in this retention class up to and including this segment
    reach_time: Milliseconds = Milliseconds(0)
    entries: int = 0  # records in this segment
    block: int = 0  # number of its first block of entries
    keys: int = 0  # in this segment
    bytes: int = 0  # of its records in this segment; 0 with entries: unknown


class TopicExtent(NamedTuple):
    """End of a topic's messages in a class, and the time of the last one."""

    end: Offset
    time: Milliseconds


NO_EXTENT = TopicExtent(Offset(0), Milliseconds(0))


def encode_index(
    class_code: int, sequence: int, length: int, commit: int, table: Iterable[TopicRow], content: SegmentEntries,
    reach: Mapping[TopicId, TopicExtent],
) -> tuple[bytes, IndexHead, KeyFilter]:  # fmt: skip
    """Return index file, head and key filter of a segment; `reach`: ends of topics in the class, with this segment."""
    rows, blocks = _rows_and_blocks(sorted(table), content, reach)
    hashes = sorted(content.keys)
    key_blocks = [hashes[start : start + KEYS_PER_BLOCK] for start in range(0, len(hashes), KEYS_PER_BLOCK)]
    directory = _directory(rows, blocks, key_blocks)
    entries = b"".join(data for _, _, data in blocks)
    keys_filter = make_filter(hashes)
    encoded_filter = encode_filter(keys_filter) if hashes else b""
    head = IndexHead(
        class_code, sequence, length, commit, content.newest, len(rows), len(blocks), len(key_blocks),
        zlib.crc32(directory), len(hashes), HEAD_BYTES + len(directory) + len(entries), len(encoded_filter),
    )  # fmt: skip
    keys = [_add_crc(b"".join([part for key in block for part in (key, content.keys[key])])) for block in key_blocks]
    encoded_head = _add_crc(_HEAD.pack(INDEX_MAGIC, VERSION, *head))
    return b"".join((encoded_head, directory, entries, *keys, encoded_filter)), head, keys_filter


def decode_head(data: bytes) -> IndexHead:
    """Return the head of an index file. Raises `Damaged`, and `Unusable` for another version."""
    content = _strip_crc(data, _HEAD_PART)
    if len(content) != _HEAD.size or not content.startswith(INDEX_MAGIC):
        raise Damaged(f"{_HEAD_PART} checksum")
    _, version, *fields = _HEAD.unpack(content)
    if version != VERSION:
        raise Unusable(f"an index of the log has format {version}, this program reads {VERSION}; upgrade it")
    return IndexHead(*fields)


class Directory:
    """The directory of an index file, in memory."""

    def __init__(self, head: IndexHead, data: bytes) -> None:
        if len(data) != head.directory_bytes or zlib.crc32(data) != head.directory_checksum:
            raise Damaged("directory checksum")
        self.head, self._data = head, data
        fences = head.rows * _ROW.size
        size = head.blocks * 8
        self._firsts = _little_endian(array("Q", data[fences : fences + size]))
        self._times = _little_endian(array("Q", data[fences + size : fences + 2 * size]))
        self._positions = _little_endian(array("Q", data[fences + 2 * size : fences + 3 * size]))
        self._key_fences = fences + 3 * size

    def rows(self) -> Iterator[TopicRow]:
        """Yield every row."""
        for fields in _ROW.iter_unpack(self._data[: self.head.rows * _ROW.size]):
            yield TopicRow(*fields)

    def find(self, topic: TopicId) -> TopicRow | None:
        """Return the row of a topic."""
        number = bisect_left(range(self.head.rows), topic, key=self._topic)
        if number == self.head.rows or self._topic(number) != topic:
            return None
        return TopicRow(*_ROW.unpack_from(self._data, number * _ROW.size))

    def block_with(self, row: TopicRow, offset: Offset) -> int:
        """Return the number of the block with `offset`, or the one before; the row has entries."""
        return max(bisect_right(self._firsts, offset, row.block, self.last_block(row) + 1) - 1, row.block)

    def block_since(self, row: TopicRow, time: Milliseconds) -> int:
        """Return the number of the block with the first record of `time` or later, or of the block before that."""
        return max(bisect_left(self._times, time, row.block, self.last_block(row) + 1) - 1, row.block)

    def last_block(self, row: TopicRow) -> int:
        """Return the number of the topic's last block."""
        return row.block + (row.entries + ENTRIES_PER_BLOCK - 1) // ENTRIES_PER_BLOCK - 1

    def place(self, row: TopicRow, block: int) -> tuple[int, int]:
        """Return size and position of a block of entries in the file."""
        count = min(ENTRIES_PER_BLOCK, row.entries - (block - row.block) * ENTRIES_PER_BLOCK)
        return count * _ENTRY_BYTES + _CHECKSUM_BYTES, self._positions[block]

    def key_place(self, hashed: bytes) -> tuple[int, int] | None:
        """Return size and position of the only block that can hold a key, or None."""
        data, fences = self._data, self._key_fences
        starts = range(fences, fences + 16 * self.head.key_blocks, 16)
        number = bisect_right(starts, hashed, key=lambda start: data[start : start + 16]) - 1
        if number < 0:
            return None
        count = min(KEYS_PER_BLOCK, self.head.keys - number * KEYS_PER_BLOCK)
        full = KEYS_PER_BLOCK * _KEY.size + _CHECKSUM_BYTES
        return count * _KEY.size + _CHECKSUM_BYTES, self.head.keys_position + number * full

    def _topic(self, number: int) -> TopicId:
        return TopicId(self._data[number * _ROW.size : number * _ROW.size + 16])


def decode_entries(data: bytes) -> Entries:
    """Decode a block of entries; raises `Damaged`."""
    content, entries, end = _strip_crc(data, "entries"), Entries(), 0
    count = len(content) // _ENTRY_BYTES
    for column in entries.columns:
        begin, end = end, end + count * column.itemsize
        column.extend(_little_endian(array(column.typecode, content[begin:end])))
    return entries


def key_in(data: bytes, hashed: bytes) -> bytes | None:
    """Return the stored result of a key (`KEYED_RESULT`) from its block, or None; raises `Damaged`."""
    for found, result in _KEY.iter_unpack(_strip_crc(data, "keys")):
        if found == hashed:
            return result  # type: ignore[no-any-return]
    return None


def _rows_and_blocks(
    table: Sequence[TopicRow], content: SegmentEntries, reach: Mapping[TopicId, TopicExtent]
) -> tuple[list[TopicRow], list[tuple[int, int, bytes]]]:
    rows: list[TopicRow] = []
    blocks: list[tuple[int, int, bytes]] = []
    nothing = Entries()
    for row in table:
        entries, (end, time) = content.topics.get(row.topic, nothing), reach.get(row.topic, NO_EXTENT)
        here = row._replace(reach=end, reach_time=time, entries=len(entries), block=len(blocks), bytes=entries.bytes)
        rows.append(here._replace(keys=content.keyed.get(row.topic, 0)))
        for start in range(0, len(entries), ENTRIES_PER_BLOCK):
            columns = [_little_endian(column[start : start + ENTRIES_PER_BLOCK]) for column in entries.columns]
            blocks.append((entries.firsts[start], entries.times[start], _add_crc(b"".join(columns))))
    return rows, blocks


def _directory(
    rows: Sequence[TopicRow], blocks: Sequence[tuple[int, int, bytes]], key_blocks: Sequence[Sequence[bytes]]
) -> bytes:
    start = HEAD_BYTES + len(rows) * _ROW.size + len(blocks) * 24 + len(key_blocks) * 16
    positions = accumulate((len(data) for _, _, data in blocks), initial=start)
    return b"".join(
        (
            *(_ROW.pack(*row) for row in rows),
            _little_endian(array("Q", (first for first, _, _ in blocks))),
            _little_endian(array("Q", (time for _, time, _ in blocks))),
            _little_endian(array("Q", islice(positions, len(blocks)))),
            *(block[0] for block in key_blocks),
        )
    )


def _add_crc(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")


def _strip_crc(data: bytes, what: str) -> bytes:
    content, claimed = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little") != claimed:
        raise Damaged(f"{what} checksum")
    return content


def encode_filter(keys: KeyFilter) -> bytes:
    """Encode a filter: starts (4 bytes each), rests (2 bytes each), checksum (4 bytes)."""
    return _add_crc(b"".join(map(_little_endian, keys)))


def decode_filter(data: bytes, keys: int) -> KeyFilter:
    """Decode the filter of a number of keys; raises `Damaged`."""
    if not keys:
        return make_filter(())
    content = _strip_crc(data, "key filter")
    starts = len(content) - 2 * keys
    return KeyFilter(_little_endian(array("I", content[:starts])), _little_endian(array("H", content[starts:])))


def read_head(files: Disk, path: str, class_code: int, sequence: int) -> IndexHead:
    """Return the head of a segment's index file; raises `Damaged`, also if it is of another segment."""
    head = decode_head(read_at(files, path, HEAD_BYTES, 0))
    if (head.class_code, head.sequence) != (class_code, sequence):
        raise Damaged(f"{_HEAD_PART} checksum")
    return head


def read_directory(files: Disk, path: str, head: IndexHead) -> Directory:
    """Return the directory of an index file; raises `Damaged`."""
    return Directory(head, read_at(files, path, head.directory_bytes, HEAD_BYTES))


def read_filter(files: Disk, path: str, head: IndexHead) -> KeyFilter:
    """Return the key filter of an index file; raises `Damaged`."""
    return decode_filter(read_at(files, path, head.filter_bytes, head.filter_position), head.keys)


def read_at(files: Disk, path: str, size: int, position: int) -> bytes:
    """Open a file, read bytes, and close it."""
    with open_file(files, path) as handle:
        return files.read(handle, size, position)


def _little_endian(numbers: "array[int]") -> "array[int]":
    """Convert numbers from or to the order of bytes in files."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
