"""Caches of messages: the tails of topics, and read-ahead.

`TailCache` has the newest messages of topics that are read at their tails, without gaps. Adjacent or overlapping
messages are added. Messages behind a gap replace the old ones, or are not cached.

`ReadAhead` has prefetched messages: a read that continues an earlier one fetches more than it needs, for the next
reads. Eviction is least recently used first.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from ams.core.names import Offset, TopicId
from ams.core.runs import Run
from ams.storage.log.base import PendingRead

MESSAGE_OVERHEAD, RUN_OVERHEAD = 50, 300  # memory in bytes per message and per run
_first_of = itemgetter(0)
UNUSED_FOR = 60.0  # seconds without a read after which a topic is dropped
MAX_TOPICS = 20_000
TOPIC_SHARE = 4  # one topic may take 1/4 of the memory
MAX_AHEAD_BYTES = 2**20  # prefetch for a sequential consumer
MIN_AHEAD_BYTES = 2**16
SEQUEL_SECONDS = 20.0  # time in which a read at another's end counts as its continuation
MAX_ENDS = 10_000


def memory_of(runs: Sequence[Run]) -> int:
    """Return the memory size of messages in bytes."""
    return sum([run.size + MESSAGE_OVERHEAD * len(run.fragments) + RUN_OVERHEAD for run in runs])


class CachedRange:
    """All messages of a topic from offset `start` to before `next`; there may be holes (records of others)."""

    __slots__ = ("bytes", "next", "runs", "start", "used")

    def __init__(self, start: Offset, next_: Offset, runs: Sequence[Run], used: float = 0.0) -> None:
        self.start, self.next = start, next_
        self.runs = list(runs)
        self.bytes = memory_of(runs)
        self.used = used

    def covers(self, offset: Offset) -> bool:
        """Return whether `offset` is in the range."""
        return self.start <= offset < self.next

    def fill(self, pending: PendingRead) -> None:
        """Fill a read until it is full, or the next offset is behind the range."""
        index = _index(self.runs, pending.offset)
        for run in self.runs[index : index + pending.messages_left]:
            pending.take(run)
            if pending.full:
                return
        pending.offset = self.next

    def extend(self, next_: Offset, runs: Sequence[Run]) -> None:
        """Append messages, without those that are here already."""
        if next_ <= self.next:
            return
        new = list(runs[_index(runs, self.next) :])
        if new and new[0].first < self.next:
            new[0] = _rest(new[0], self.next)
        self.runs += new
        self.bytes += memory_of(new)
        self.next = next_

    def trim(self, most: int) -> None:
        """Drop the oldest messages down to `most` bytes: whole runs if possible, because a cut costs per message."""
        while self.bytes > most and len(self.runs) > 1:
            self.drop_before(self.runs[0].end)
        if self.bytes > most and self.runs:
            [run] = self.runs
            taken = list(accumulate([len(each) + MESSAGE_OVERHEAD for each in run.fragments]))
            self.drop_before(Offset(min(run.first + bisect_left(taken, self.bytes - most) + 1, run.end)))

    def drop_before(self, offset: Offset) -> None:
        """Drop the messages before an offset."""
        index = _index(self.runs, offset)
        self.bytes -= memory_of(self.runs[:index])
        del self.runs[:index]
        if self.runs and self.runs[0].first < offset:
            kept = _rest(self.runs[0], offset)
            self.bytes -= memory_of(self.runs[:1]) - memory_of((kept,))
            self.runs[0] = kept
        self.start = max(self.start, offset)
        self.next = max(self.next, offset)


def _index(runs: Sequence[Run], offset: Offset) -> int:
    index = bisect_right(runs, offset, key=_first_of)
    return index - 1 if index and runs[index - 1].end > offset else index


def _rest(run: Run, start: Offset) -> Run:
    return run.part(start, len(run.fragments), run.size)


class TailCache:
    """Messages at the tails of topics, within one budget of bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[TopicId, CachedRange] = OrderedDict()  # not an `LruCache`: ranges grow in place
        self.bytes = 0  # memory taken now

    def cached_range(self, topic: TopicId) -> CachedRange | None:
        """Return the cached range of a topic, for a read or wait; marks it as used."""
        cached_range = self._held.get(topic)
        if cached_range is not None:
            cached_range.used = asyncio.get_running_loop().time()
            self._held.move_to_end(topic)
        return cached_range

    def accepts(self, topic: TopicId, start: Offset) -> bool:
        """Return whether `add` would take messages from `start` on."""
        cached_range = self._held.get(topic)
        return cached_range is not None and cached_range.start <= start <= cached_range.next

    def ends_at(self, topic: TopicId, offset: Offset) -> bool:
        """Return whether the cached range of a topic ends just before `offset`."""
        cached_range = self._held.get(topic)
        return cached_range is not None and cached_range.next == offset

    def has(self, topic: TopicId, start: Offset, end: Offset) -> bool:
        """Return whether all messages of a topic from `start` to before `end` are cached."""
        cached_range = self._held.get(topic)
        return cached_range is not None and cached_range.start <= start and end <= cached_range.next

    def newest(self, topic: TopicId) -> Offset:
        """Return the offset after the last cached message of a topic, or 0."""
        cached_range = self._held.get(topic)
        return cached_range.runs[-1].end if cached_range and cached_range.runs else Offset(0)

    def add(self, topic: TopicId, start: Offset, next_: Offset, runs: Sequence[Run]) -> None:
        """Add newly stored messages if they are adjacent to the cached range; else ignore them."""
        cached_range = self._held.get(topic)
        if cached_range is None or not cached_range.start <= start <= cached_range.next:
            return
        if asyncio.get_running_loop().time() > cached_range.used + UNUSED_FOR:
            self.forget(topic)
            return
        before = cached_range.bytes
        cached_range.extend(next_, runs)
        cached_range.trim(self._budget // TOPIC_SHARE)
        self.bytes += cached_range.bytes - before
        self._evict()

    def begin(self, topic: TopicId, start: Offset, next_: Offset, runs: Sequence[Run]) -> None:
        """Cache messages of a read or wait at the tail, from `start` to before `next_`."""
        cached_range = self.cached_range(topic)
        if self.accepts(topic, start):
            self.add(topic, start, next_, runs)
            return
        if cached_range is not None and next_ < cached_range.start:
            return
        began = CachedRange(start, next_, runs, asyncio.get_running_loop().time())
        if cached_range is not None and start < cached_range.start:  # a slower reader: join both ranges for all readers
            began.extend(cached_range.next, cached_range.runs)
        self.forget(topic)
        began.trim(self._budget // TOPIC_SHARE)
        self._held[topic] = began
        self.bytes += began.bytes
        self._evict()

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Drop expired messages."""
        cached_range = self._held.get(topic)
        if cached_range is not None and cached_range.start < oldest:
            before = cached_range.bytes
            cached_range.drop_before(oldest)
            self.bytes += cached_range.bytes - before

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        cached_range = self._held.pop(topic, None)
        if cached_range is not None:
            self.bytes -= cached_range.bytes

    def _evict(self) -> None:
        while self._held and (self.bytes > self._budget or len(self._held) > MAX_TOPICS):
            _, cached_range = self._held.popitem(last=False)
            self.bytes -= cached_range.bytes


class ReadAhead:
    """Prefetched messages, and the ends of recent reads."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        # Not an `LruCache`: evictions update the index `_of`.
        self._held: OrderedDict[tuple[TopicId, Offset], CachedRange] = OrderedDict()
        self._of: dict[TopicId, list[CachedRange]] = {}
        # When reads ended, and whether each continued an earlier one. Not an `LruCache`: ends expire, and are counted.
        self._ends: OrderedDict[tuple[TopicId, Offset], tuple[float, bool]] = OrderedDict()
        self._sequels = 0
        self.bytes = 0  # memory taken now

    def cached_range(self, topic: TopicId, offset: Offset) -> CachedRange | None:
        """Return the prefetched range with `offset`, or None."""
        for cached_range in self._of.get(topic, ()):
            if cached_range.covers(offset):
                self._held.move_to_end((topic, cached_range.start))
                return cached_range
        return None

    def keep(self, topic: TopicId, cached_range: CachedRange) -> None:
        """Cache a prefetched range; replaces one with the same start."""
        self._drop(topic, cached_range.start)
        self._held[topic, cached_range.start] = cached_range
        self._of.setdefault(topic, []).append(cached_range)
        self.bytes += cached_range.bytes
        while self.bytes > self._budget and self._held:
            self._drop(*next(iter(self._held)))

    def note_end(self, topic: TopicId, start: Offset, end: Offset) -> None:
        """Note that a read from `start` on ended before `end`."""
        now = asyncio.get_running_loop().time()
        sequel = self._pop((topic, start))
        self._pop((topic, end))
        self._ends[topic, end] = (now, sequel)
        self._sequels += sequel
        since = now - SEQUEL_SECONDS
        while self._ends and (len(self._ends) > MAX_ENDS or next(iter(self._ends.values()))[0] < since):
            self._pop(next(iter(self._ends)))

    def size(self, topic: TopicId, start: Offset) -> int:
        """Return how many bytes a read from `start` on should prefetch; 0 if it continues no earlier read."""
        if (topic, start) not in self._ends:
            return 0
        # Half of the memory for all sequential readers, so that they do not evict each other's ranges.
        return min(MAX_AHEAD_BYTES, max(MIN_AHEAD_BYTES, self._budget // (4 * (self._sequels + 1))))

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Drop ranges with expired messages."""
        for cached_range in [cached_range for cached_range in self._of.get(topic, ()) if cached_range.start < oldest]:
            self._drop(topic, cached_range.start)

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        for cached_range in list(self._of.get(topic, ())):
            self._drop(topic, cached_range.start)

    def _pop(self, key: tuple[TopicId, Offset]) -> bool:
        end = self._ends.pop(key, None)
        self._sequels -= end is not None and end[1]
        return end is not None

    def _drop(self, topic: TopicId, start: Offset) -> None:
        cached_range = self._held.pop((topic, start), None)
        if cached_range is None:
            return
        self.bytes -= cached_range.bytes
        self._of[topic].remove(cached_range)
        if not self._of[topic]:
            del self._of[topic]
