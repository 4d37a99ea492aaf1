"""Appends with an idempotency key: stored once, also if sent again through another node.

A key is claimed durably in the idempotency store before its append, with the end of the topic at that moment. After the
append the claim is settled with the place of the messages. So any node can answer a retry. The first message also
carries the key. For half a minute, the append of an unsettled claim may be pending: callers get an error to try again.
After that its messages are in the topic or nowhere, once the high watermark has reached the leader's end. The messages
since the claim are searched for the key. If found, the claim is settled. Else one of the callers takes it over, also
with other messages.

Two limits. If a node or broker stops for half a minute with the request pending, another node may take the claim over;
if the first request then continues, the append is stored twice. A key is new again after the idempotency window.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from ams.core.clock import Milliseconds
from ams.core.coalescing import mark_seen
from ams.core.errors import KeyReused, LogUnavailable, RegistryUnavailable, TooLarge
from ams.core.messages import Message
from ams.core.names import Offset, TopicId, new_uuid
from ams.storage.log.base import Appended, Bounds, content_hash, is_content, key_hash
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.fetch import SCAN, fetch_part
from ams.storage.log.kafka.idempotency_store import Claim, IdempotencyStore
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.reader import KafkaReader
from ams.storage.log.kafka.records import OUR_PREFIX, UNREADABLE, batches
from ams.storage.log.kafka.sender import Unsent
from ams.storage.log.kafka.topics import KafkaTopics

logger = structlog.get_logger("ams.log")
CLAIM_WAIT_MS = Milliseconds(30_000)  # until an unsettled claim can be taken over: twice the longest append
_GRACE_SECONDS = 0.5  # seconds after its timeout in which an append reports its outcome
KEY = OUR_PREFIX + "key"  # header of the first message of an append with an idempotency key: its 16-byte hash
_FETCH_BYTES = 2**20


class KeyedAppends:
    """Does appends with keys, one at a time per key. `append` sends messages, the first one with the key."""

    def __init__(
        self, store: IdempotencyStore, connection: KafkaConnection, options: KafkaOptions, topics: KafkaTopics,
        reader: KafkaReader, append: Callable[[Partition, Sequence[Message], float, bytes], Awaitable[Appended]],
    ) -> None:  # fmt: skip
        self._store, self._connection, self._options = store, connection, options
        self._topics, self._reader, self._append_once = topics, reader, append
        self._under_way: dict[bytes, asyncio.Task[Appended]] = {}

    async def append(self, partition: Partition, messages: Sequence[Message], key: str, until: float) -> Appended:
        """Append messages unless the key was used; return their place. Continues if the caller is cancelled.

        Raises:
            KeyReused: the key was used with other messages.
            LogUnavailable: at `until`, or while the outcome of an earlier append with the key is unknown.
        """
        hashed = key_hash(partition.topic, key.encode())
        while (before := self._under_way.get(hashed)) is not None:
            await _end_of(before, until)
        task = asyncio.create_task(self._append(partition, messages, hashed, until))
        self._under_way[hashed] = task
        task.add_done_callback(lambda _: self._under_way.pop(hashed))
        task.add_done_callback(mark_seen)  # all callers may be cancelled
        await _end_of(task, until)
        return task.result()

    async def earlier_answer(
        self, partition: Partition, messages: Sequence[Message], key: str, until: float
    ) -> Appended | None:
        """Return the place of an earlier append with this key, or None; raises the errors of `append`."""
        hashed = key_hash(partition.topic, key.encode())

        async def find_answer() -> Appended | None:
            while (task := self._under_way.get(hashed)) is not None:
                await asyncio.wait((task,))
            claim = await self._store.stored_claim(partition.topic, hashed)
            if claim is None or claim.age > await self._window(partition):
                return None
            return await self._answer(partition, hashed, claim, messages, until)

        finding = asyncio.create_task(find_answer())
        try:
            await _end_of(finding, until)
            return finding.result()
        finally:
            finding.cancel()

    async def forget(self, topic: TopicId) -> None:
        """Remove the claims of a deleted topic. Leftover claims do no harm."""
        with contextlib.suppress(RegistryUnavailable):
            await self._store.forget(topic)

    async def forget_old(self) -> None:
        """Remove keys older than the idempotency window, of topics whose settings are cached."""
        window = self._options.idempotency_window
        await self._store.forget_old({topic: window or kept.age for topic, kept in self._topics.kept.items()})

    async def close(self) -> None:
        """Wait for pending appends."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _append(self, partition: Partition, messages: Sequence[Message], hashed: bytes, until: float) -> Appended:
        mark, content = new_uuid(), content_hash(messages)
        end = await self._reader.end(partition)
        claim = await self._store.claim(partition.topic, hashed, content, end, mark)
        if claim is not None and claim.age > (window := await self._window(partition)):
            await self._store.forget_old({partition.topic: window})
            claim = await self._store.claim(partition.topic, hashed, content, end, mark)
        if claim is None:
            return await self._make(partition, messages, hashed, until, mark)
        answer = await self._answer(partition, hashed, claim, messages, until)
        if answer is not None:
            return answer
        if not await self._store.take_over(partition.topic, hashed, claim, content, mark):
            raise LogUnavailable
        logger.info("key.taken_over", topic=partition.name)
        return await self._make(partition, messages, hashed, until, mark)

    async def _answer(
        self, partition: Partition, hashed: bytes, claim: Claim, messages: Sequence[Message], until: float
    ) -> Appended | None:
        """Raise `LogUnavailable` while the claim may still be settled, `KeyReused` for other content."""
        if claim.appended is None and claim.age < CLAIM_WAIT_MS:
            raise LogUnavailable
        found = claim.appended
        if found is None:
            bounds = await self._reader.settled_bounds(partition)
            bounds = Bounds(max(claim.end, bounds.oldest), bounds.end)
            found = await find_append(self._connection, partition, hashed, bounds, len(messages))
        if found is not None and not is_content(claim.content, messages):
            raise KeyReused
        if found is not None and claim.appended is None:
            await self._settle(partition, hashed, found, until)
        return found

    async def _window(self, partition: Partition) -> Milliseconds:
        return self._options.idempotency_window or (await self._topics.settings(partition)).age

    async def _make(
        self, partition: Partition, messages: Sequence[Message], hashed: bytes, until: float, mark: str
    ) -> Appended:
        try:
            appended = await self._append_once(partition, messages, until, hashed)
        except (Unsent, TooLarge):  # not `TopicGone`: the topic takes its claims along, or it appears again
            try:
                await self._store.release(partition.topic, hashed, mark)
            except RegistryUnavailable:  # the next call searches for the messages
                logger.warning("key.unreleased", topic=partition.name)
            raise
        await self._settle(partition, hashed, appended, until)
        return appended

    async def _settle(self, partition: Partition, hashed: bytes, appended: Appended, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._store.settle(partition.topic, hashed, appended)
        except (RegistryUnavailable, TimeoutError):  # the next call searches for the messages
            logger.warning("key.unsettled", topic=partition.name)


async def _end_of(task: "asyncio.Task[Any]", until: float) -> None:
    """Wait for a task, without cancelling it; raise `LogUnavailable` soon after loop time `until`.

    No `asyncio.timeout`: it needs a current task, which a publish on the lane has not.
    """
    await asyncio.wait((task,), timeout=max(until + _GRACE_SECONDS - asyncio.get_running_loop().time(), 0))
    if not task.done():
        raise LogUnavailable


async def find_append(
    connection: KafkaConnection, partition: Partition, hashed: bytes, bounds: Bounds, count: int
) -> Appended | None:
    """Search for the append with a key within bounds; return its place, or None."""
    at = bounds.oldest
    while at < bounds.end:
        part = await fetch_part(connection, partition, at, _FETCH_BYTES, SCAN, until=connection.deadline())
        before = at
        for batch in batches(part.data):
            with contextlib.suppress(*UNREADABLE):  # an unreadable batch is not ours
                for record in () if batch.is_control_batch else batch:
                    if (KEY, hashed) in record.headers:
                        return Appended(Offset(record.offset + partition.first), count, Milliseconds(record.timestamp))
            at = Offset(max(at, batch.next_offset + partition.first))
            await asyncio.sleep(0)
        if at == before:  # the high watermark is below the reported end
            return None
    return None
