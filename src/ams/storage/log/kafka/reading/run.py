"""Messages of one topic held in memory without a gap, and what a read wants of them."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

from ams.core.messages import Stored
from ams.core.names import Offset

OVERHEAD = 170
"""Bytes a message in memory takes beside its fragment."""
_offset_of = itemgetter(0)


def memory_of(messages: Sequence[Stored]) -> int:
    """Return the bytes of memory that messages take."""
    return sum([len(fragment) for _, _, fragment in messages]) + OVERHEAD * len(messages)


class Wish:
    """What a read may answer, filled up piece by piece: at least one message, whatever its size."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.messages: list[Stored] = []
        self.full = max_messages <= 0
        self._places = max_messages
        self._bytes = max_bytes

    @property
    def places(self) -> int:
        """How many more messages it may take."""
        return self._places

    @property
    def bytes(self) -> int:
        """How many more bytes of fragments it may take."""
        return self._bytes

    def take(self, found: Sequence[Stored]) -> None:
        """Add messages in their order until one does not fit."""
        part = found[: self._places]
        size = sum([len(fragment) for _, _, fragment in part])
        while size > self._bytes and len(self.messages) + len(part) > 1:
            part, size = self._fitting(part)
        self.messages += part
        self._places -= len(part)
        self._bytes -= size
        self.full = len(part) < len(found) or self._places <= 0 or (self._bytes <= 0 and bool(self.messages))

    def _fitting(self, found: Sequence[Stored]) -> tuple[Sequence[Stored], int]:
        """Return the messages that fit, or the first if there is none yet, and their size."""
        size = count = 0
        for each in found:
            if size + len(each.fragment) > self._bytes and (count or self.messages):
                break
            size += len(each.fragment)
            count += 1
        return found[:count], size


class Run:
    """All messages of a topic from offset `start` to before `next`; others may have left holes between them."""

    __slots__ = ("bytes", "messages", "next", "start", "used")

    def __init__(self, start: Offset, next_: Offset, messages: list[Stored], used: float = 0.0) -> None:
        self.start = start
        self.next = next_
        self.messages = messages
        self.bytes = memory_of(messages)
        self.used = used

    def covers(self, offset: Offset) -> bool:
        """Whether the message at `offset`, if there is one, is here."""
        return self.start <= offset < self.next

    def fill(self, wish: Wish, start: Offset) -> Offset:
        """Give a wish what is here from `start` on; return where to go on."""
        index = self._index(start)
        # One more than may be taken, so that the wish knows whether there is more.
        wish.take(self.messages[index : index + wish.places + 1])
        return Offset(wish.messages[-1].offset + 1) if wish.full and wish.messages else self.next

    def extend(self, next_: Offset, messages: Sequence[Stored]) -> None:
        """Add what comes next; what is here already is left out."""
        if next_ <= self.next:
            return
        new = messages[bisect_left(messages, self.next, key=_offset_of) :]
        self.messages += new
        self.bytes += memory_of(new)
        self.next = next_

    def trim(self, most: int) -> None:
        """Let the oldest messages go until at most `most` bytes are taken."""
        count, size = 0, self.bytes
        while size > most and count < len(self.messages):
            size -= len(self.messages[count].fragment) + OVERHEAD
            count += 1
        if count:
            self.drop_before(Offset(self.messages[count - 1].offset + 1))

    def drop_before(self, offset: Offset) -> None:
        """Let the messages before an offset go."""
        gone = self.messages[: self._index(offset)]
        del self.messages[: len(gone)]
        self.bytes -= memory_of(gone)
        self.start = max(self.start, offset)
        self.next = max(self.next, offset)

    def _index(self, offset: Offset) -> int:
        return bisect_left(self.messages, offset, key=_offset_of)
