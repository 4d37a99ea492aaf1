"""Messages in memory, for reads that need nothing from a broker: the tails of topics, and what was fetched ahead.

`TailCache` holds the newest messages of topics while calls read or wait at their tails, without a gap: what follows or
reaches back is added; what comes after a gap replaces it or is left to be fetched.

`ReadAhead` holds what was fetched beyond what a read asked for: a read that begins where one ended fetches much more
than it needs, and the reads after it find it here. What was not used for longest goes first.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from ams.core.names import Offset, TopicId
from ams.core.runs import Run

OVERHEAD, RUN_OVERHEAD = 50, 300  # of memory, beside a message's fragment and a run's messages
_first_of = itemgetter(0)
UNUSED_FOR = 60.0  # seconds without a read of a topic after which it is let go
MAX_TOPICS = 20_000
SHARE = 4  # one topic may take a fourth of the memory
MOST_AHEAD = 2**20  # bytes fetched at once for a consumer that reads on and on
LEAST_AHEAD = 2**16
REMEMBERED_FOR = 20.0  # seconds in which a read that begins where one ended counts as its sequel
MAX_ENDS = 10_000


def memory_of(runs: Sequence[Run]) -> int:
    """Return the bytes of memory that messages take."""
    return sum([run.size + OVERHEAD * len(run.fragments) + RUN_OVERHEAD for run in runs])


class PendingRead:
    """The result of a read, filled piece by piece: at least one message, of any size."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.runs: list[Run] = []
        self.full = max_messages <= 0
        self.messages_left = max_messages  # how many more messages it may take
        self.bytes_left = max_bytes  # how many more bytes of fragments it may take

    def take(self, run: Run, start: Offset) -> None:
        """Add the messages of a run from `start` on, or all when that is before it, until one does not fit."""
        skip = max(start - run.first, 0)
        if self.runs and len(run.fragments[skip]) > self.bytes_left:
            self.full = True
            return
        part = run
        if skip or len(run.fragments) > self.messages_left or run.size > self.bytes_left:
            part = run.part(Offset(run.first + skip), self.messages_left, self.bytes_left)
        self.runs.append(part)
        self.messages_left -= len(part.fragments)
        self.bytes_left -= part.size
        self.full = part.end < run.end or self.messages_left <= 0 or self.bytes_left <= 0


class CachedRange:
    """All messages of a topic from offset `start` to before `next`; others may have left holes between them."""

    __slots__ = ("bytes", "next", "runs", "start", "used")

    def __init__(self, start: Offset, next_: Offset, runs: Sequence[Run], used: float = 0.0) -> None:
        self.start, self.next = start, next_
        self.runs = list(runs)
        self.bytes = memory_of(runs)
        self.used = used

    def covers(self, offset: Offset) -> bool:
        """Return whether the message at `offset`, if there is one, is here."""
        return self.start <= offset < self.next

    def fill(self, pending: PendingRead, start: Offset) -> Offset:
        """Give a read what is here from `start` on; return where to go on."""
        index = _index(self.runs, start)
        for run in self.runs[index : index + pending.messages_left]:
            pending.take(run, start)
            if pending.full:
                return pending.runs[-1].end
        return self.next

    def extend(self, next_: Offset, runs: Sequence[Run]) -> None:
        """Add what comes next; what is here already is left out."""
        if next_ <= self.next:
            return
        new = list(runs[_index(runs, self.next) :])
        if new and new[0].first < self.next:
            new[0] = _rest(new[0], self.next)
        self.runs += new
        self.bytes += memory_of(new)
        self.next = next_

    def trim(self, most: int) -> None:
        """Let the oldest messages go until at most `most` bytes are taken; whole runs, as a cut costs by message."""
        while self.bytes > most and len(self.runs) > 1:
            self.drop_before(self.runs[0].end)
        if self.bytes > most and self.runs:
            [run] = self.runs
            taken = list(accumulate([len(each) + OVERHEAD for each in run.fragments]))
            self.drop_before(Offset(min(run.first + bisect_left(taken, self.bytes - most) + 1, run.end)))

    def drop_before(self, offset: Offset) -> None:
        """Let the messages before an offset go."""
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
    """Return which run is the first that has a message at `offset` or later."""
    index = bisect_right(runs, offset, key=_first_of)
    return index - 1 if index and runs[index - 1].end > offset else index


def _rest(run: Run, start: Offset) -> Run:
    return run.part(start, len(run.fragments), run.size)


class TailCache:
    """Messages at the tails of topics, within one budget of bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[TopicId, CachedRange] = OrderedDict()  # not an `LruCache`: they grow in their place
        self.bytes = 0  # memory taken now

    def held(self, topic: TopicId) -> CachedRange | None:
        """Return what there is of a topic, for a read or a wait of it."""
        held = self._held.get(topic)
        if held is not None:
            held.used = asyncio.get_running_loop().time()
            self._held.move_to_end(topic)
        return held

    def accepts(self, topic: TopicId, start: Offset) -> bool:
        """Return whether messages from `start` on would be kept of a topic, without a read at its tail."""
        held = self._held.get(topic)
        return held is not None and held.start <= start <= held.next

    def ends_at(self, topic: TopicId, offset: Offset) -> bool:
        """Return whether what is here of a topic ends just before `offset`."""
        held = self._held.get(topic)
        return held is not None and held.next == offset

    def has(self, topic: TopicId, start: Offset, end: Offset) -> bool:
        """Return whether all messages of a topic from `start` to before `end` are here."""
        held = self._held.get(topic)
        return held is not None and held.start <= start and end <= held.next

    def newest(self, topic: TopicId) -> Offset:
        """Return the offset after the last message that is here of a topic, 0 when there is none."""
        held = self._held.get(topic)
        return held.runs[-1].end if held and held.runs else Offset(0)

    def add(self, topic: TopicId, start: Offset, next_: Offset, runs: Sequence[Run]) -> None:
        """Add messages that were stored, where they follow on what is here; else leave them to be fetched."""
        held = self._held.get(topic)
        if held is None or not held.start <= start <= held.next:
            return
        if asyncio.get_running_loop().time() > held.used + UNUSED_FOR:
            self.forget(topic)
            return
        before = held.bytes
        held.extend(next_, runs)
        held.trim(self._budget // SHARE)
        self.bytes += held.bytes - before
        self._evict()

    def begin(self, topic: TopicId, start: Offset, next_: Offset, runs: Sequence[Run]) -> None:
        """Hold messages that are read or waited for at the tail, from `start` to before `next_`."""
        held = self.held(topic)
        if self.accepts(topic, start):
            self.add(topic, start, next_, runs)
            return
        if held is not None and next_ < held.start:
            return
        began = CachedRange(start, next_, runs, asyncio.get_running_loop().time())
        if held is not None and start < held.start:  # one that was further behind: it and the others find all here
            began.extend(held.next, held.runs)
        self.forget(topic)
        began.trim(self._budget // SHARE)
        self._held[topic] = began
        self.bytes += began.bytes
        self._evict()

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Let messages go that are no longer kept."""
        held = self._held.get(topic)
        if held is not None and held.start < oldest:
            before = held.bytes
            held.drop_before(oldest)
            self.bytes += held.bytes - before

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        held = self._held.pop(topic, None)
        if held is not None:
            self.bytes -= held.bytes

    def _evict(self) -> None:
        while self._held and (self.bytes > self._budget or len(self._held) > MAX_TOPICS):
            _, held = self._held.popitem(last=False)
            self.bytes -= held.bytes


class End(NamedTuple):
    """Where a read ended."""

    time: float
    sequel: bool  # whether that read began where one ended


class ReadAhead:
    """Messages that were fetched ahead, and the ends of recent reads."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        # Not an `LruCache`: what is dropped leaves an index too.
        self._held: OrderedDict[tuple[TopicId, Offset], CachedRange] = OrderedDict()
        self._of: dict[TopicId, list[CachedRange]] = {}
        # Nor here: ends are dropped by their age too, and `_sequels` counts with them.
        self._ends: OrderedDict[tuple[TopicId, Offset], End] = OrderedDict()
        self._sequels = 0
        self.bytes = 0  # memory taken now

    def held(self, topic: TopicId, offset: Offset) -> CachedRange | None:
        """Return what was fetched from `offset` on."""
        for held in self._of.get(topic, ()):
            if held.covers(offset):
                self._held.move_to_end((topic, held.start))
                return held
        return None

    def keep(self, topic: TopicId, held: CachedRange) -> None:
        """Keep what was fetched, in place of what begins where it does."""
        self._drop(topic, held.start)
        self._held[topic, held.start] = held
        self._of.setdefault(topic, []).append(held)
        self.bytes += held.bytes
        while self.bytes > self._budget and self._held:
            self._drop(*next(iter(self._held)))

    def ended(self, topic: TopicId, start: Offset, end: Offset) -> None:
        """Note that a read from `start` on ended before `end`."""
        now = asyncio.get_running_loop().time()
        sequel = self._pop((topic, start))
        self._pop((topic, end))
        self._ends[topic, end] = End(now, sequel)
        self._sequels += sequel
        since = now - REMEMBERED_FOR
        while self._ends and (len(self._ends) > MAX_ENDS or next(iter(self._ends.values())).time < since):
            self._pop(next(iter(self._ends)))

    def size(self, topic: TopicId, start: Offset) -> int:
        """Return how many bytes a read from `start` on should fetch ahead; 0 when it is no sequel."""
        if (topic, start) not in self._ends:
            return 0
        # Half of the memory for all that read on and on, so that one does not push out what another comes back for.
        return min(MOST_AHEAD, max(LEAST_AHEAD, self._budget // (4 * (self._sequels + 1))))

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Let messages go that are no longer kept."""
        for held in [held for held in self._of.get(topic, ()) if held.start < oldest]:
            self._drop(topic, held.start)

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        for held in list(self._of.get(topic, ())):
            self._drop(topic, held.start)

    def _pop(self, key: tuple[TopicId, Offset]) -> bool:
        end = self._ends.pop(key, None)
        self._sequels -= end is not None and end.sequel
        return end is not None

    def _drop(self, topic: TopicId, start: Offset) -> None:
        held = self._held.pop((topic, start), None)
        if held is None:
            return
        self.bytes -= held.bytes
        self._of[topic].remove(held)
        if not self._of[topic]:
            del self._of[topic]
