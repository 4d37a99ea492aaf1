"""Holding topics: nothing is appended by this process while somebody decides about one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ams.core.names import TopicId


class Holds:
    """Which topics are held."""

    def __init__(self) -> None:
        self._held: dict[TopicId, asyncio.Future[None]] = {}

    def is_held(self, topic: TopicId) -> bool:
        """Whether somebody holds a topic."""
        return topic in self._held

    async def released(self, topic: TopicId) -> None:
        """Wait while somebody holds a topic."""
        while (held := self._held.get(topic)) is not None:
            await asyncio.wait((held,))

    @contextlib.asynccontextmanager
    async def hold(self, topic: TopicId) -> AsyncIterator[None]:
        """Hold a topic until the block ends; it begins when nobody else does."""
        await self.released(topic)
        held = self._held[topic] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._held[topic]
            held.set_result(None)
