"""Bytes ever published: counted here as they are stored, and added to the books about every second.

A process that is killed loses what it has not added yet, about a second of it; messages are counted by their offsets
and are always exact.
"""

import asyncio

from ams.core.errors import Unavailable
from ams.core.names import TopicId
from ams.storage.log.kafka.books import Books


class Sizes:
    """Bytes by topic, some of them not in the books yet."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._added: dict[TopicId, int] = {}
        self._turn = asyncio.Lock()

    def add(self, topic: TopicId, data_bytes: int) -> None:
        """Count bytes that were published."""
        self._added[topic] = self._added.get(topic, 0) + data_bytes

    def forget(self, topic: TopicId) -> None:
        """Count no more for a topic that is gone."""
        self._added.pop(topic, None)

    async def of(self, topic: TopicId) -> int:
        """Return the bytes ever published to a topic, as far as they are in the books or were counted here."""
        async with self._turn:
            return await self._books.bytes_of(topic) + self._added.get(topic, 0)

    async def flush(self) -> None:
        """Add what was counted to the books; what they cannot take now is added the next time."""
        async with self._turn:
            counted, self._added = self._added, {}
            if not counted:
                return
            try:
                await self._books.add_bytes(counted)
            except Unavailable:
                for topic, data_bytes in counted.items():
                    self.add(topic, data_bytes)
