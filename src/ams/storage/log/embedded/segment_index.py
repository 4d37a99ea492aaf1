"""The index of a segment in memory: where the records of each topic are in it, and which keys it holds.

`SegmentEntries` is kept for the segments being written, and for the short time until a sealed one has its index file
(`ams.storage.log.embedded.index_file`). Numbers live in arrays: a record costs 28 bytes however small its messages are.
`KeyFilter` is kept for sealed segments, so that a new key need not ask the disk: `docs/reference/log-format.md`.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended

BUCKET = 32  # keys for each bucket, on average
_REST_BITS = 16
_REST = (1 << _REST_BITS) - 1
_PREFIX_BYTES = 6
_STRETCH = 8 * _PREFIX_BYTES - _REST_BITS


class KeyedResult(NamedTuple):
    """What an append with a key was answered."""

    appended: Appended
    content: bytes  # 16 bytes that stand for its messages (`ams.storage.log.base.is_content`)


KEYED_RESULT = struct.Struct("<QIQ16s")
"""A `KeyedResult` as it is in memory and in index files: very many of them, as objects, would take long to collect."""


def unpacked(result: bytes | None) -> KeyedResult | None:
    """Read what was kept of a `KeyedResult`, if anything was."""
    if result is None:
        return None
    first, count, time, content = KEYED_RESULT.unpack(result)
    return KeyedResult(Appended(Offset(first), count, Milliseconds(time)), content)


class Entries:
    """Records of one topic in one segment, in offset order; damaged ones, or those of another class, are missing."""

    __slots__ = ("counts", "firsts", "lengths", "positions", "times")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.times = array("Q")
        self.counts = array("I")
        self.positions = array("I")
        self.lengths = array("I")

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def bytes(self) -> int:
        """Bytes of the records."""
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

    def extend(self, *columns: Sequence[int]) -> None:
        """Take more records: first offsets, times, counts, positions and lengths."""
        own = (self.firsts, self.times, self.counts, self.positions, self.lengths)
        for column, more in zip(own, columns, strict=True):
            column.extend(more)

    def at(self, offset: Offset) -> int:
        """Return the number of the record that holds `offset`, or of the first one after it; `len` when past all."""
        number = bisect_right(self.firsts, offset)
        return number - 1 if number and offset < self.end_of(number - 1) else number

    def holds(self, offset: Offset) -> bool:
        """Return whether `offset` is in one of the records."""
        number = self.at(offset)
        return number < len(self.firsts) and self.firsts[number] <= offset

    def since(self, time: Milliseconds) -> int:
        """Return the number of the first record published at `time` or later; `len` when there is none."""
        return bisect_left(self.times, time)


@dataclass(slots=True)
class SegmentEntries:
    """Everything known of one segment's content."""

    topics: dict[TopicId, Entries] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)  # by `key_hash`, what was answered (`KEYED_RESULT`)
    keyed: dict[TopicId, int] = field(default_factory=dict)  # how many keys of each topic are in `keys`
    newest: Milliseconds = Milliseconds(0)  # largest time of a record, creates and drops included

    def add(self, topic: TopicId, first: Offset, time: Milliseconds, count: int, position: int, length: int) -> None:
        """Take one more record."""
        entries = self.topics.get(topic)
        if entries is None:
            entries = self.topics[topic] = Entries()
        entries.add(first, time, count, position, length)
        if time > self.newest:
            self.newest = time

    def extend(self, topic: TopicId, *columns: Sequence[int]) -> None:
        """Take more records of one topic."""
        self.topics.setdefault(topic, Entries()).extend(*columns)
        self.note_time(Milliseconds(columns[1][-1]))

    def note_time(self, time: Milliseconds) -> None:
        """Take note of the time of a record."""
        if time > self.newest:
            self.newest = time

    def add_key(self, topic: TopicId, hashed: bytes, appended: Appended, content: bytes) -> None:
        """Take one more key, and what was answered to it."""
        self.keys[hashed] = KEYED_RESULT.pack(*appended, content)
        self.keyed[topic] = self.keyed.get(topic, 0) + 1


def _prefix_of(hashed: bytes) -> int:
    return int.from_bytes(hashed[:_PREFIX_BYTES])


class KeyFilter(NamedTuple):
    """Says of a key that it is not in a segment, or may be."""

    starts: "array[int]"  # number of the first key of each bucket, and after the last one the number of keys
    rests: "array[int]"  # of each key, in the order of their hashes: 16 bits of its fingerprint

    def may_hold(self, hashed: bytes) -> bool:
        """Return whether a key with this hash may be among the keys; False is certain."""
        starts, rests = self
        if not rests:
            return False
        place = _prefix_of(hashed) * (len(starts) - 1) >> _STRETCH
        bucket, rest = place >> _REST_BITS, place & _REST
        stop = starts[bucket + 1]
        at = bisect_left(rests, rest, starts[bucket], stop)
        return at < stop and rests[at] == rest

    @property
    def bytes(self) -> int:
        """Bytes of memory it takes."""
        return 4 * len(self.starts) + 2 * len(self.rests)


def make_filter(hashes: Sequence[bytes]) -> KeyFilter:
    """Return the filter of keys, given their hashes in order."""
    buckets = max(1, (len(hashes) + BUCKET - 1) // BUCKET)
    places = [_prefix_of(hashed) * buckets >> _STRETCH for hashed in hashes]
    starts = [bisect_left(places, bucket << _REST_BITS) for bucket in range(buckets + 1)]
    return KeyFilter(array("I", starts), array("H", [place & _REST for place in places]))


NO_KEYS = make_filter(())
