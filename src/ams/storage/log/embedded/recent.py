"""Records that are read again and again, kept in memory: all consumers of a topic read the newest ones.

What is read once, as by a lone consumer or a copy of a whole topic, is not worth its memory: a record is kept when it
is read for the second time within the span of what could be kept. A record of which a read took the first part only is
kept until the next read, which begins in it.
"""

from ams.core.cache import LruCache
from ams.core.runs import Run

RECENT_BYTES = 16 * 1024 * 1024
"""Of memory for records that are kept; the places of what was met take less than half of it besides."""
BEGUN_BYTES = RECENT_BYTES // 4
"""The same, for records of which the first part was read. Little, as memory that is used again soon is fast."""
_MESSAGE_OVERHEAD = 50
"""Bytes that a message takes in memory beside its own."""
_RECORD_OVERHEAD = 450
"""Bytes that a record takes in memory beside its messages: its place, its run, and the entry that leads to it.

It bounds how many are met too, whose places take up to 225 bytes each.
"""

RecordPlace = tuple[int, int]
"""The sequence of a segment, and the position of a record in it, which never becomes another record's."""


class RecentRecords:
    """The messages of records that were read twice lately, or by half, checked and cut."""

    __slots__ = ("_begun", "_budget", "_kept", "_met", "_met_before", "_met_bytes")

    def __init__(self, budget: int = RECENT_BYTES) -> None:
        """Keep records of up to `budget` bytes of memory."""
        self._budget = budget
        self._kept: LruCache[RecordPlace, Run] = LruCache(budget, _weight)
        self._begun: LruCache[RecordPlace, Run] = LruCache(BEGUN_BYTES, _weight)
        self._met: set[RecordPlace] = set()
        """What was read lately; two halves, the older of which goes as a whole, cost less than an order of all."""
        self._met_before: set[RecordPlace] = set()
        self._met_bytes = 0

    def get(self, place: RecordPlace) -> Run | None:
        """Return the messages of a record; None when it is not kept."""
        run = self._kept.get(place)
        if run is None and (run := self._begun.peek(place)) is not None:
            self._begun.discard(place)
        return run

    def note_begun(self, place: RecordPlace, run: Run) -> None:
        """Take note that the first part of a record was read, and the rest was not."""
        if self._kept.peek(place) is None:
            self._begun.put(place, run)

    def note(self, place: RecordPlace, run: Run) -> None:
        """Take note that a record was read; keep it if it was lately read before."""
        if place in self._met or place in self._met_before:
            self._kept.put(place, run)
            return
        self._met.add(place)
        self._met_bytes += _weight(run)
        if self._met_bytes > self._budget // 2:
            self._met_before, self._met, self._met_bytes = self._met, set(), 0


def _weight(run: Run) -> int:
    return run.size + _MESSAGE_OVERHEAD * len(run.fragments) + _RECORD_OVERHEAD
