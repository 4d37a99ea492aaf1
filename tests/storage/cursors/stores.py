"""A cursor store under test that can be closed and opened again, and what its tests have in common."""

from collections.abc import Awaitable, Callable

from ams.core.clock import ManualClock, Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.storage.cursors.acks import CursorStore

SUB = SubscriptionId("sub-1")
TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"o" * 16)
DEADLINE = Milliseconds(10_000)
END = Offset(1_000)


class Store:
    """A store under test that can be closed and opened again."""

    def __init__(self, opener: Callable[[ManualClock], Awaitable[CursorStore]]) -> None:
        self.clock = ManualClock()
        self._opener = opener
        self.cursors: CursorStore

    async def open(self) -> CursorStore:
        self.cursors = await self._opener(self.clock)
        return self.cursors

    async def restart(self) -> CursorStore:
        await self.cursors.close()
        return await self.open()
