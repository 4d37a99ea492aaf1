"""The index in memory: where the records of each topic are in a segment, and the keys seen in it.

Kept for the segments being written, and for the short time until a sealed one has its index file. Numbers live in
arrays: a record costs 28 bytes however small its messages are.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended


class Answered(NamedTuple):
    """What an append with a key was answered."""

    appended: Appended
    content: bytes
    """16 bytes that stand for its messages (`ams.storage.log.keys.is_content`)."""


class Entries:
    """Records of one topic in one segment, in offset order.

    Between two of them offsets may be missing: damaged ones, or ones that are in another retention class because the
    topic changed its own.
    """

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
        """Return the number of the record that holds `offset`, or of the first one after it; `len` when past all."""
        number = bisect_right(self.firsts, offset)
        return number - 1 if number and offset < self.end_of(number - 1) else number

    def holds(self, offset: Offset) -> bool:
        """Whether `offset` is in one of the records."""
        number = self.at(offset)
        return number < len(self.firsts) and self.firsts[number] <= offset

    def since(self, time: Milliseconds) -> int:
        """Return the number of the first record published at `time` or later; `len` when there is none."""
        return bisect_left(self.times, time)


@dataclass(slots=True)
class SegmentEntries:
    """Everything known of one segment's content."""

    topics: dict[TopicId, Entries] = field(default_factory=dict)
    keys: dict[bytes, Answered] = field(default_factory=dict)
    """By `key_hash`."""
    keyed: dict[TopicId, int] = field(default_factory=dict)
    """How many keys of each topic are in `keys`."""
    newest: Milliseconds = Milliseconds(0)
    """Largest time of a record, creates and drops included."""

    def add(self, topic: TopicId, first: Offset, time: Milliseconds, count: int, position: int, length: int) -> None:
        """Take one more record."""
        entries = self.topics.get(topic)
        if entries is None:
            entries = self.topics[topic] = Entries()
        entries.add(first, time, count, position, length)
        self.note_time(time)

    def note_time(self, time: Milliseconds) -> None:
        """Take note of the time of a record."""
        if time > self.newest:
            self.newest = time

    def add_key(self, topic: TopicId, hashed: bytes, answered: Answered) -> None:
        """Take one more key."""
        self.keys[hashed] = answered
        self.keyed[topic] = self.keyed.get(topic, 0) + 1
