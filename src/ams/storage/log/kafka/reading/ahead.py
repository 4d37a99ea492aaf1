"""What was fetched beyond what a read asked for, kept for the read that follows it.

Who catches up reads a topic in pulls of some hundred messages, one behind the other. A read that begins where one
ended is taken for such, and fetches much more than it needs; the pulls after it, and those of others at the same
place, find it here. All of it has one budget of bytes; what was not used for longest goes first.
"""

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from ams.core.names import Offset, TopicId
from ams.storage.log.kafka.reading.run import Run

MOST = 2**20
"""Bytes fetched at once for who reads on and on."""
LEAST = 2**16
REMEMBERED_FOR = 20.0
"""Seconds in which a read that begins where one ended counts as its sequel."""
MAX_ENDS = 10_000


class End(NamedTuple):
    """Where a read ended."""

    time: float
    sequel: bool
    """Whether that read began where one ended."""


class Ahead:
    """Runs of messages that were fetched ahead, and the ends of recent reads."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        # Not an `LruCache`: what is dropped leaves an index too.
        self._runs: OrderedDict[tuple[TopicId, Offset], Run] = OrderedDict()
        self._of: dict[TopicId, list[Run]] = {}
        self._ends: OrderedDict[tuple[TopicId, Offset], End] = OrderedDict()
        self._sequels = 0
        self.bytes = 0
        """Memory taken now."""

    def run(self, topic: TopicId, offset: Offset) -> Run | None:
        """Return what was fetched from `offset` on."""
        for run in self._of.get(topic, ()):
            if run.covers(offset):
                self._runs.move_to_end((topic, run.start))
                return run
        return None

    def keep(self, topic: TopicId, run: Run) -> None:
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
        while self._ends and (len(self._ends) > MAX_ENDS or self._oldest_end() < now - REMEMBERED_FOR):
            self._pop(next(iter(self._ends)))

    def size(self, topic: TopicId, start: Offset) -> int:
        """Return how many bytes a read from `start` on should fetch ahead; 0 when it is nobody's sequel."""
        if (topic, start) not in self._ends:
            return 0
        # Half of the memory for all who read on and on, so that one does not push out what another comes back for.
        return min(MOST, max(LEAST, self._budget // (4 * (self._sequels + 1))))

    def drop_before(self, topic: TopicId, oldest: Offset) -> None:
        """Let messages go that are no longer kept."""
        for run in [run for run in self._of.get(topic, ()) if run.start < oldest]:
            self._drop(topic, run.start)

    def forget(self, topic: TopicId) -> None:
        """Let a topic go."""
        for run in list(self._of.get(topic, ())):
            self._drop(topic, run.start)

    def _oldest_end(self) -> float:
        return next(iter(self._ends.values())).time

    def _pop(self, key: tuple[TopicId, Offset]) -> bool:
        """Forget an end; return whether there was one."""
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
