"""Large appends: written in slices, between which the groups of others are committed.

A group is synced as a whole, so an append of megabytes would keep everybody waiting for its bytes. It is written behind
the end of the open segment, a gap away, a slice at a time, each durable before the next. Meanwhile the groups of others
go into the gap. What is left of it at the end is closed by a mark of just that length, and with this one small write
the whole append is in the segment. Until then nothing of it is: a start cuts the segment where the gap begins, as no
record behind it knows the gap to be durable.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from ams.core.clock import Milliseconds
from ams.core.names import Offset, TopicId
from ams.storage.log.embedded.group_commit import Append, Control, Packed, pack
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import HEADER_BYTES, Header, Kind, encode
from ams.storage.log.embedded.segment import Open, Writer, seed_of

_SLICES = 2
"""An append of more slices than this is written slice by slice."""
_GAP_SHARE = 8
"""The gap is at most this part of the append: what is left of it is lost."""
_MOST_OF_MESSAGE, _MOST_OF_APPEND = HEADER_BYTES + 16, 4 * HEADER_BYTES
"""What records take at most beside fragments and key, for each message and each append."""


def is_sliced(append: Append, options: LogOptions) -> bool:
    """Whether an append is written in slices: it is large, and its sync would be waited for."""
    return options.sync == "always" and append.size > _SLICES * options.group_bytes and not append.loaded


def room_for(append: Append, options: LogOptions) -> int:
    """Return how many bytes the append takes at most, with its gap."""
    return most_bytes(append) + _gap(append, options)


def most_bytes(append: Append) -> int:
    """Return how many bytes the records of an append take at most."""
    return append.size + len(append.key) + _MOST_OF_APPEND + _MOST_OF_MESSAGE * len(append.fragments)


def _gap(append: Append, options: LogOptions) -> int:
    return max(min(options.group_bytes, append.size // _GAP_SHARE), HEADER_BYTES)


class LargeAppend:
    """A large append on its way. Used by the committer's thread alone; what writes may raise `OSError`.

    What writes raises `RuntimeError` when the segment it began in is no longer the open one: its slices were cut off
    then, and what follows must not go to the next segment, where none of it could be read.
    """

    def __init__(self, append: Append, writer: Writer, commit: int, now: Milliseconds, options: LogOptions) -> None:
        """Give the append its place behind a gap in the open segment; nothing is written yet."""
        segment = writer.open
        assert segment is not None
        self.append = append
        self.writer = writer
        self._segment: Open = segment
        self.now = now
        self.later: deque[Append | Control] = deque()
        """What else is asked for its topic: it waits."""
        self.begin = segment.length + _gap(append, options)
        """Where its records are."""
        self.packed: Packed = pack({append.topic: (append,)}, segment, commit, now, self.begin)
        self.is_written = False
        """Whether all slices are."""
        self._slices = _cut(self.packed.parts, options.group_bytes)
        self._place = self.begin

    def has_room(self, size: int) -> bool:
        """Whether so many bytes of others fit into the gap, and the mark that closes it behind them."""
        return self._segment.length + size + HEADER_BYTES <= self.begin

    def write_slice(self) -> None:
        """Write the next slice durably; there is one."""
        parts = next(self._slices)
        self._check_open()
        self.writer.write_behind(parts, self._place, self.packed.end)
        self._place += sum(map(len, parts))
        self.is_written = self._place == self.packed.end

    def join(self, commit: int) -> None:
        """Close the gap: when it returns, the append is in the segment. All slices are written."""
        self._check_open()
        segment = self._segment
        header = Header(
            Kind.MARK, True, TopicId(bytes(16)), Offset(0), self.now, commit, segment.durable, 0, 0
        )  # fmt: skip
        zeros = bytes(self.begin - segment.length - HEADER_BYTES)
        self.writer.join(encode(header, zeros, seed_of(segment.sequence)), self.packed.end)

    def _check_open(self) -> None:
        if self.writer.open is not self._segment:
            raise RuntimeError("the segment of a large append was closed before the append was in it")


def _cut(parts: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Yield the bytes of the parts in slices of so many bytes, the last of what is left."""
    slice_: list[bytes] = []
    room = size
    for part in parts:
        start = 0
        while len(part) - start >= room:
            yield [*slice_, part[start : start + room]]
            slice_, start, room = [], start + room, size
        slice_.append(part[start:])
        room -= len(part) - start
    if room < size:
        yield slice_
