"""Messages in memory, for reads that need nothing from a broker: the tails of topics, and what was fetched ahead.

`TailCache` holds the newest messages of topics that are read at their tail. A topic is in it while calls read or
wait at its tail. What is held has no gap: what comes next is added, what comes after a gap replaces it or is left to
be fetched.

`ReadAhead` holds what was fetched beyond what a read asked for. A consumer that catches up reads a topic in pulls of
some hundred messages, one behind the other. A read that begins where one ended is taken for such, and fetches much more
than it needs; the pulls after it, and those of others at the same place, find it here. All of it has one budget of
bytes; what was not used for longest goes first.
"""

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from ams.core.messages import Stored
from ams.core.names import Offset, TopicId

OVERHEAD = 170
"""Bytes a message in memory takes beside its fragment."""
_offset_of = itemgetter(0)
UNUSED_FOR = 60.0
"""Seconds without a read of a topic after which it is let go."""
MAX_TOPICS = 20_000
SHARE = 4
"""One topic may take a fourth of the memory."""
MOST_AHEAD = 2**20
"""Bytes fetched at once for a consumer that reads on and on."""
LEAST_AHEAD = 2**16
REMEMBERED_FOR = 20.0
"""Seconds in which a read that begins where one ended counts as its sequel."""
MAX_ENDS = 10_000


def memory_of(messages: Sequence[Stored]) -> int:
    """Return the bytes of memory that messages take."""
    return sum([len(fragment) for _, _, fragment in messages]) + OVERHEAD * len(messages)


class PendingRead:
    """The result of a read, filled piece by piece: at least one message, of any size."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.messages: list[Stored] = []
        self.full = max_messages <= 0
        self.messages_left = max_messages
        """How many more messages it may take."""
        self.bytes_left = max_bytes
        """How many more bytes of fragments it may take."""

    def take(self, found: Sequence[Stored]) -> None:
        """Add messages in their order until one does not fit."""
        part = found[: self.messages_left]
        size = sum([len(fragment) for _, _, fragment in part])
        while size > self.bytes_left and len(self.messages) + len(part) > 1:
            part, size = self._fitting(part)
        self.messages += part
        self.messages_left -= len(part)
        self.bytes_left -= size
        self.full = len(part) < len(found) or self.messages_left <= 0 or (self.bytes_left <= 0 and bool(self.messages))

    def _fitting(self, found: Sequence[Stored]) -> tuple[Sequence[Stored], int]:
        """Return the messages that fit, or the first if there is none yet, and their size."""
        size = count = 0
        for each in found:
            if size + len(each.fragment) > self.bytes_left and (count or self.messages):
                break
            size += len(each.fragment)
            count += 1
        return found[:count], size


class MessageRun:
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

    def fill(self, pending: PendingRead, start: Offset) -> Offset:
        """Give a read what is here from `start` on; return where to go on."""
        index = self._index(start)
        # One more than may be taken: it shows whether there is more.
        pending.take(self.messages[index : index + pending.messages_left + 1])
        return Offset(pending.messages[-1].offset + 1) if pending.full and pending.messages else self.next

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


class TailCache:
    """Runs of messages at the tails of topics, within one budget of bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._runs: OrderedDict[TopicId, MessageRun] = OrderedDict()  # not an `LruCache`: runs grow in their place
        self.bytes = 0
        """Memory taken now."""

    def run(self, topic: TopicId) -> MessageRun | None:
        """Return what there is of a topic, for a read or a wait of it."""
        run = self._runs.get(topic)
        if run is not None:
            run.used = asyncio.get_running_loop().time()
            self._runs.move_to_end(topic)
        return run

    def accepts(self, topic: TopicId, start: Offset) -> bool:
        """Whether messages from `start` on would be kept of a topic, without a read at its tail."""
        run = self._runs.get(topic)
        return run is not None and run.start <= start <= run.next

    def ends_at(self, topic: TopicId, offset: Offset) -> bool:
        """Whether what is here of a topic ends just before `offset`."""
        run = self._runs.get(topic)
        return run is not None and run.next == offset

    def has(self, topic: TopicId, start: Offset, end: Offset) -> bool:
        """Whether all messages of a topic from `start` to before `end` are here."""
        run = self._runs.get(topic)
        return run is not None and run.start <= start and end <= run.next

    def newest(self, topic: TopicId) -> Offset:
        """Return the offset after the last message that is here of a topic, 0 when there is none."""
        run = self._runs.get(topic)
        return Offset(run.messages[-1].offset + 1) if run and run.messages else Offset(0)

    def add(self, topic: TopicId, start: Offset, next_: Offset, messages: Sequence[Stored]) -> None:
        """Add messages that were stored, where they follow on what is here; else leave them to be fetched."""
        run = self._runs.get(topic)
        if run is None or not run.start <= start <= run.next:
            return
        if asyncio.get_running_loop().time() > run.used + UNUSED_FOR:
            self.forget(topic)
            return
        before = run.bytes
        run.extend(next_, messages)
        run.trim(self._budget // SHARE)
        self.bytes += run.bytes - before
        self._evict()

    def begin(self, topic: TopicId, start: Offset, next_: Offset, messages: Sequence[Stored]) -> None:
        """Hold messages that are read or waited for at the tail, from `start` to before `next_`."""
        run = self.run(topic)
        if self.accepts(topic, start):
            self.add(topic, start, next_, messages)
            return
        if run is not None and next_ <= run.next:
            return
        self.forget(topic)
        self._runs[topic] = run = MessageRun(start, next_, list(messages), asyncio.get_running_loop().time())
        run.trim(self._budget // SHARE)
        self.bytes += run.bytes
        self._evict()

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Let messages go that are no longer kept."""
        run = self._runs.get(topic)
        if run is not None and run.start < oldest:
            before = run.bytes
            run.drop_before(oldest)
            self.bytes += run.bytes - before

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        run = self._runs.pop(topic, None)
        if run is not None:
            self.bytes -= run.bytes

    def _evict(self) -> None:
        while self._runs and (self.bytes > self._budget or len(self._runs) > MAX_TOPICS):
            _, run = self._runs.popitem(last=False)
            self.bytes -= run.bytes


class End(NamedTuple):
    """Where a read ended."""

    time: float
    sequel: bool
    """Whether that read began where one ended."""


class ReadAhead:
    """Runs of messages that were fetched ahead, and the ends of recent reads."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        # Not an `LruCache`: what is dropped leaves an index too.
        self._runs: OrderedDict[tuple[TopicId, Offset], MessageRun] = OrderedDict()
        self._of: dict[TopicId, list[MessageRun]] = {}
        # Nor here: ends are dropped by their age too, and `_sequels` counts with them.
        self._ends: OrderedDict[tuple[TopicId, Offset], End] = OrderedDict()
        self._sequels = 0
        self.bytes = 0
        """Memory taken now."""

    def run(self, topic: TopicId, offset: Offset) -> MessageRun | None:
        """Return what was fetched from `offset` on."""
        for run in self._of.get(topic, ()):
            if run.covers(offset):
                self._runs.move_to_end((topic, run.start))
                return run
        return None

    def keep(self, topic: TopicId, run: MessageRun) -> None:
        """Keep what was fetched, in place of what begins where it does."""
        self._drop(topic, run.start)
        self._runs[topic, run.start] = run
        self._of.setdefault(topic, []).append(run)
        self.bytes += run.bytes
        while self.bytes > self._budget and self._runs:
            self._drop(*next(iter(self._runs)))

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
        for run in [run for run in self._of.get(topic, ()) if run.start < oldest]:
            self._drop(topic, run.start)

    def forget(self, topic: TopicId) -> None:
        """Remove a topic."""
        for run in list(self._of.get(topic, ())):
            self._drop(topic, run.start)

    def _pop(self, key: tuple[TopicId, Offset]) -> bool:
        """Remove an end; return whether there was one."""
        end = self._ends.pop(key, None)
        self._sequels -= end is not None and end.sequel
        return end is not None

    def _drop(self, topic: TopicId, start: Offset) -> None:
        run = self._runs.pop((topic, start), None)
        if run is None:
            return
        self.bytes -= run.bytes
        self._of[topic].remove(run)
        if not self._of[topic]:
            del self._of[topic]
