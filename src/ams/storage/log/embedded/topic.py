"""A topic as the log holds it in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from ams.core.clock import Milliseconds
from ams.core.names import Offset, TopicId
from ams.storage.log.embedded.index_file import Row
from ams.storage.log.embedded.segment import RetentionClass


class Tail(msgspec.Struct, frozen=True, gc=False):
    """Where the durable messages of a topic end."""

    end: Offset = Offset(0)
    time: Milliseconds = Milliseconds(0)  # publish time of the last one
    published: int = 0  # data bytes, in all
    commit: int = 0  # the group commit that brought it here


class TopicState:
    """What changes about a topic. `kind` and `tail` are set by the committer alone, all else on the event loop."""

    __slots__ = (
        "age_due", "classes", "end", "held", "hint", "id", "kind", "leaving", "oldest", "quiet", "retention", "stored",
        "tail", "under_way", "waiter",
    )  # fmt: skip

    def __init__(self, topic: TopicId, retention: Milliseconds | None, kind: RetentionClass) -> None:
        self.id = topic
        self.kind = kind  # the class whose segments its next messages go to
        self.retention = retention  # None: the log's default
        self.tail = Tail()
        self.end = Offset(0)  # the end readers see: never ahead of what is durable
        self.stored = 0  # bytes of its records in all segments
        self.classes = 0  # bit n: messages of it may be in class n
        self.oldest = Offset(0)
        self.age_due = Milliseconds(0)  # wall time at which `oldest` may have moved
        self.hint = 0  # sequence of the segment a read last found messages in
        self.waiter: asyncio.Future[None] | None = None  # completes when the end moves or the topic goes
        self.leaving = False  # being dropped
        self.under_way = 0  # appends the committer has not decided
        self.quiet: asyncio.Future[None] | None = None  # completes when none is under way
        self.held: asyncio.Future[None] | None = None
        """While nothing may be appended; completes when something may again."""

    def begin_at(self, first: Offset, published: int) -> None:
        """Go on where a topic ended that was kept elsewhere."""
        self.oldest = self.end = first
        self.tail = Tail(first, published=published)

    def wake(self) -> None:
        """Let those that wait look again."""
        if self.waiter is not None:
            if not self.waiter.done():
                self.waiter.set_result(None)
            self.waiter = None

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Let nothing be appended in the block, which begins when no append is under way."""
        await self.released()
        self.held = held = asyncio.get_running_loop().create_future()
        try:
            if self.under_way:
                self.quiet = asyncio.get_running_loop().create_future()
                await asyncio.wait((self.quiet,))
            yield
        finally:
            self.held = None
            held.set_result(None)

    async def released(self) -> None:
        """Wait while something holds the topic."""
        while self.held is not None:
            await asyncio.wait((self.held,))

    def give_up(self) -> None:
        """End all waits: nothing comes to the topic any more."""
        self.wake()
        if self.quiet is not None and not self.quiet.done():
            self.quiet.set_result(None)
        self.quiet = None

    def settle(self) -> None:
        """Let what waits for it go on when no append is under way."""
        if self.quiet is not None and not self.under_way:
            self.quiet.set_result(None)
            self.quiet = None

    @property
    def is_spread(self) -> bool:
        """Whether its messages may be in more than one class."""
        return self.classes & (self.classes - 1) != 0

    def row(self) -> Row:
        """Return what must outlive the segments."""
        tail = self.tail
        return Row(
            self.id, tail.end, tail.time, tail.published, tail.commit, self.retention or 0, self.oldest,
            reach=Offset(0), reach_time=Milliseconds(0),
        )  # fmt: skip
