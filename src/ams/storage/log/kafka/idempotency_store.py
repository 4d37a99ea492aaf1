"""Protocol of the store for claims of idempotency keys, and for byte counts, which Kafka cannot store.

The registry's database implements it (`ams.storage.registry.idempotency`). A claim is stored before its append and
settled afterwards, so that a crash in between leaves a trace. Byte counts are added about every second; a killed
process loses those of its last second.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ams.core.clock import Milliseconds
from ams.core.errors import Unavailable
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended


class Claim(NamedTuple):
    """The claim of a pending or finished append on its key."""

    content: bytes  # hash of the messages, 16 bytes
    end: Offset  # the topic's end at the claim: the messages cannot be before it
    age: Milliseconds  # since the claim or its last take-over, by the database's clock
    version: int  # raised by each change, so that only one of several take-overs succeeds
    appended: Appended | None  # place of the messages; None: not settled


class IdempotencyStore(Protocol):
    """Claims and byte counts by topic. Calls raise `RegistryUnavailable` if the database cannot answer.

    Keys are 16-byte hashes. A claim has the `mark` (a uuid) of the last attempt that made it or took it over. So a slow
    attempt cannot release the claim of a later one.
    """

    async def claim(self, topic: TopicId, key: bytes, content: bytes, end: Offset, mark: str) -> Claim | None:
        """Claim a key, durably. Returns None if it is ours now, else the existing claim."""

    async def stored_claim(self, topic: TopicId, key: bytes) -> Claim | None:
        """Return the claim on a key, or None."""

    async def take_over(self, topic: TopicId, key: bytes, claim: Claim, content: bytes, mark: str) -> bool:
        """Make an unsettled claim ours, with new content and age 0. Returns False if it changed meanwhile."""

    async def settle(self, topic: TopicId, key: bytes, appended: Appended) -> None:
        """Store the place of a claim's messages, durably."""

    async def release(self, topic: TopicId, key: bytes, mark: str) -> None:
        """Remove a claim of ours whose messages are not stored, and never will be."""

    async def forget(self, topic: TopicId) -> None:
        """Remove all claims of a deleted topic."""

    async def forget_old(self, ages: Mapping[TopicId, Milliseconds]) -> None:
        """Remove claims older than their topic's idempotency window."""

    async def add_bytes(self, published: Mapping[TopicId, int]) -> None:
        """Add to the totals of published bytes."""

    async def bytes_of(self, topic: TopicId) -> int:
        """Return the stored total of a topic's published bytes."""

    async def all_bytes(self) -> Mapping[TopicId, int]:
        """Return the stored totals of all topics that have one."""


class PublishedBytes:
    """Published bytes by topic, written to the idempotency store in batches."""

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store
        self._added: Counter[TopicId] = Counter()
        self._turn = asyncio.Lock()

    def add(self, topic: TopicId, data_bytes: int) -> None:
        """Count published bytes."""
        self._added[topic] += data_bytes

    def forget(self, topic: TopicId) -> None:
        """Drop the pending count of a deleted topic."""
        self._added.pop(topic, None)

    async def of(self, topic: TopicId) -> int:
        """Return a topic's total: stored and pending bytes."""
        async with self._turn:
            return await self._store.bytes_of(topic) + self._added[topic]

    async def all(self) -> Mapping[TopicId, int]:
        """Return the totals of all topics that have one."""
        async with self._turn:
            stored = await self._store.all_bytes()
            return {each: stored.get(each, 0) + self._added[each] for each in stored.keys() | self._added}

    async def flush(self) -> None:
        """Write pending counts to the store. If it is unavailable they stay pending."""
        async with self._turn:
            counted, self._added = self._added, Counter()
            if not counted:
                return
            try:
                await self._store.add_bytes(counted)
            except Unavailable:
                self._added.update(counted)
