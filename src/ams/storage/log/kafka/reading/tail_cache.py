"""The newest messages of topics that are read at their tail: pulls there need no message from a broker.

A topic is here while somebody reads or waits at its tail. What is held has no gap: what comes next is added, what
comes after a gap replaces it or is left to be fetched.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from ams.core.messages import Stored
from ams.core.names import Offset, TopicId
from ams.storage.log.kafka.reading.run import Run

UNUSED_FOR = 60.0
"""Seconds nobody read a topic here after which it is let go."""
MAX_TOPICS = 20_000
SHARE = 4
"""One topic may take a fourth of the memory."""


class TailCache:
    """Runs of messages at the tails of topics, within one budget of bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._runs: OrderedDict[TopicId, Run] = OrderedDict()  # not an `LruCache`: runs grow in their place
        self.bytes = 0
        """Memory taken now."""

    def run(self, topic: TopicId) -> Run | None:
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
        """Hold messages that somebody reads or waits for at the tail, from `start` to before `next_`."""
        run = self.run(topic)
        if self.accepts(topic, start):
            self.add(topic, start, next_, messages)
            return
        if run is not None and next_ <= run.next:
            return
        self.forget(topic)
        self._runs[topic] = run = Run(start, next_, list(messages), asyncio.get_running_loop().time())
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
        """Let a topic go."""
        run = self._runs.pop(topic, None)
        if run is not None:
            self.bytes -= run.bytes

    def _evict(self) -> None:
        while self._runs and (self.bytes > self._budget or len(self._runs) > MAX_TOPICS):
            _, run = self._runs.popitem(last=False)
            self.bytes -= run.bytes
