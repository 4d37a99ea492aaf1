"""What Kafka cannot keep for the log: claims of idempotency keys, and the number of bytes published in all.

The registry's database keeps it (`ams.storage.registry.idempotency`); the log uses only this protocol. A claim is
stored before its append, so that a crash between the append and its answer leaves a trace, and is settled afterwards.
Bytes are added to the store about every second; a process that is killed loses what it has not added yet.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.errors import Unavailable
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended


class Claim(NamedTuple):
    """A key that is used, or was used, for an append."""

    content: bytes  # hash of the messages, 16 bytes
    end: Offset  # the topic's end when the key was claimed: its messages can be nowhere before
    age: Milliseconds  # since the key was claimed or taken over, by the database's clock
    version: int  # raised by each change, so that of many who take over one does
    appended: Appended | None  # where the messages are; None: not known yet


class IdempotencyStore(Protocol):
    """Claims and sizes by topic; calls raise `RegistryUnavailable` when the database cannot answer.

    Keys are given as 16-byte hashes. A claim bears the `mark` of the attempt that made it or took it over last, a uuid:
    a slow attempt does not undo what another has begun since.
    """

    async def claim(self, topic: TopicId, key: bytes, content: bytes, end: Offset, mark: str) -> Claim | None:
        """Claim a key, durably; return None when it is ours now, else the claim that is there already."""

    async def known(self, topic: TopicId, key: bytes) -> Claim | None:
        """Return the claim on a key, None when there is none."""

    async def take_over(self, topic: TopicId, key: bytes, claim: Claim, content: bytes, mark: str) -> bool:
        """Make an unsettled claim ours, for these messages and its age 0; False when it changed meanwhile."""

    async def settle(self, topic: TopicId, key: bytes, appended: Appended) -> None:
        """Note where the messages of a claim are, durably."""

    async def release(self, topic: TopicId, key: bytes, mark: str) -> None:
        """Give up a claim of ours. Its messages were not stored by us, and will not be."""

    async def forget(self, topic: TopicId) -> None:
        """Remove all claims of a topic that is gone."""

    async def forget_old(self, ages: Mapping[TopicId, Milliseconds]) -> None:
        """Remove claims older than the age for which their topic keeps them."""

    async def add_bytes(self, published: Mapping[TopicId, int]) -> None:
        """Add to the bytes published in all."""

    async def bytes_of(self, topic: TopicId) -> int:
        """Return the bytes published to a topic in all, as far as they were added."""

    async def all_bytes(self) -> Mapping[TopicId, int]:
        """Return the same of every topic to which any were added."""


class PublishedBytes:
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
        """Return the bytes published to a topic in all, as far as they are in the store or were counted here."""
        async with self._turn:
            return await self._store.bytes_of(topic) + self._added.get(topic, 0)

    async def all(self) -> Mapping[TopicId, int]:
        """Return the same of all topics with any."""
        async with self._turn:
            stored = await self._store.all_bytes()
            return {each: stored.get(each, 0) + self._added.get(each, 0) for each in stored.keys() | self._added}

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
