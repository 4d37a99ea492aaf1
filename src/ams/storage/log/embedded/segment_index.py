"""The index of a segment in memory: positions of each topic's records, and idempotency keys.

Open segments have `SegmentEntries`, and sealed ones until their index file (`ams.storage.log.embedded.index_file`) is
written. Numbers are in arrays: 28 bytes per record. Sealed segments have a `KeyFilter`, so that a new key needs no disk
read: `docs/reference/log-format.md`.
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

KEYS_PER_BUCKET = 32  # keys for each bucket, on average
_REST_BITS = 16
_REST_MASK = (1 << _REST_BITS) - 1
_PREFIX_BYTES = 6
_STRETCH = 8 * _PREFIX_BYTES - _REST_BITS


class KeyedResult(NamedTuple):
    """The answer to an append with an idempotency key."""

    appended: Appended
    content: bytes  # hash of its messages (`ams.storage.log.base.content_hash`)


KEYED_RESULT = struct.Struct("<QIQ16s")
"""Encoding of a `KeyedResult` in memory and in index files: very many objects would slow the garbage collector."""


def unpack_result(result: bytes | None) -> KeyedResult | None:
    """Decode a `KeyedResult`; None for None."""
    if result is None:
        return None
    first, count, time, content = KEYED_RESULT.unpack(result)
    return KeyedResult(Appended(Offset(first), count, Milliseconds(time)), content)


class Entries:
    """Records of one topic in one segment, in offset order, without damaged ones and those of another class."""

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

    def extend(self, *columns: Sequence[int]) -> None:
        """Add records as columns: first offsets, times, counts, positions and lengths."""
        own = (self.firsts, self.times, self.counts, self.positions, self.lengths)
        for column, more in zip(own, columns, strict=True):
            column.extend(more)

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

    def extend(self, topic: TopicId, *columns: Sequence[int]) -> None:
        """Add records of one topic as columns."""
        self.topics.setdefault(topic, Entries()).extend(*columns)
        self.note_time(Milliseconds(columns[1][-1]))

    def note_time(self, time: Milliseconds) -> None:
        """Update `newest` by the time of a record."""
        if time > self.newest:
            self.newest = time

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

    @property
    def bytes(self) -> int:
        """Memory size in bytes."""
        return 4 * len(self.starts) + 2 * len(self.rests)


def make_filter(hashes: Sequence[bytes]) -> KeyFilter:
    """Return the filter of keys, given their sorted hashes."""
    buckets = max(1, (len(hashes) + KEYS_PER_BUCKET - 1) // KEYS_PER_BUCKET)
    places = [_prefix_of(hashed) * buckets >> _STRETCH for hashed in hashes]
    starts = [bisect_left(places, bucket << _REST_BITS) for bucket in range(buckets + 1)]
    return KeyFilter(array("I", starts), array("H", [place & _REST_MASK for place in places]))


NO_KEYS = make_filter(())
