"""Bytes ever published: counted here as they are stored, and added to the idempotency store about every second.

A process that is killed loses what it has not added yet, about a second of it; messages are counted by their offsets
and are always exact.
"""

import asyncio

from ams.core.errors import Unavailable
from ams.core.names import TopicId
from ams.storage.log.kafka.idempotency_store import IdempotencyStore


class Sizes:
    """Bytes by topic, some of them not in the idempotency store yet."""

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store
        self._added: dict[TopicId, int] = {}
        self._turn = asyncio.Lock()

    def add(self, topic: TopicId, data_bytes: int) -> None:
        """Count bytes that were published."""
        self._added[topic] = self._added.get(topic, 0) + data_bytes

    def forget(self, topic: TopicId) -> None:
        """Count no more for a topic that is gone."""
        self._added.pop(topic, None)

    async def of(self, topic: TopicId) -> int:
        """Return the bytes ever published to a topic, as far as they are in the store or were counted here."""
        async with self._turn:
            return await self._store.bytes_of(topic) + self._added.get(topic, 0)

    async def flush(self) -> None:
        """Add what was counted to the idempotency store; what it cannot take now is added the next time."""
        async with self._turn:
            counted, self._added = self._added, {}
            if not counted:
                return
            try:
                await self._store.add_bytes(counted)
            except Unavailable:
                for topic, data_bytes in counted.items():
                    self.add(topic, data_bytes)
