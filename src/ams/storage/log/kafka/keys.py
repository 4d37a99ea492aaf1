"""Appends with an idempotency key, each stored once, however often and on whichever node it is sent.

A key is claimed in the idempotency store before its append, durably, with the end of the topic at that moment; after
the append the claim is settled: where the messages are. So any node can answer a repeated call. The first message
carries the key as well. Of a claim that is not settled it is unknown for half a minute whether its append is under way:
callers are answered to try again. After that what was sent is in the topic or nowhere, once all that the leader has is
seen by everyone. The messages from the end at the claim on are searched for the key; when they are there the claim is
settled, else one of the callers takes it over, were it with other messages.

An append can still be stored twice: when its node, or a broker, stood still for half a minute with the request under
way, another node took the claim over meanwhile, and the first request went on then. And when the claims of a topic are
older than keys are remembered, its keys are new again.
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
from ams.storage.log.kafka.batches import Unsent
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.fetch import SCAN, fetch_part
from ams.storage.log.kafka.idempotency_store import Claim, IdempotencyStore
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.reader import Reader
from ams.storage.log.kafka.records import OURS, UNREADABLE, batches
from ams.storage.log.kafka.topics import Topics

logger = structlog.get_logger("ams.log")
YOUNG = Milliseconds(30_000)  # a claim not settled is left alone for so long: twice what an append can take
_GRACE = 0.5  # seconds beyond its time in which an append says what became of it
KEY = OURS + "key"  # header of the first message of an append with an idempotency key: 16 bytes that stand for it
_FETCH_BYTES = 2**20


class Keys:
    """Makes appends with keys, one after the other for a key; `append` sends messages, the first with the key."""

    def __init__(
        self,
        store: IdempotencyStore,
        connection: Connection,
        options: KafkaOptions,
        topics: Topics,
        reader: Reader,
        append: Callable[[Partition, Sequence[Message], float, bytes], Awaitable[Appended]],
    ) -> None:
        self._store, self._connection, self._options = store, connection, options
        self._topics, self._reader = topics, reader
        self._append_once = append
        self._under_way: dict[bytes, asyncio.Task[Appended]] = {}

    async def append(self, partition: Partition, messages: Sequence[Message], key: str, until: float) -> Appended:
        """Append messages unless they were with this key; return where they are. It goes on without its caller.

        Raises `KeyReused` for other messages, `LogUnavailable` at `until`, and while the fate of an earlier append with
        it is not known.
        """
        hashed = key_hash(partition.topic, key.encode())
        while (before := self._under_way.get(hashed)) is not None:
            await _end_of(before, until)
        task = asyncio.create_task(self._append(partition, messages, hashed, until))
        self._under_way[hashed] = task
        task.add_done_callback(lambda _: self._under_way.pop(hashed))
        task.add_done_callback(mark_seen)  # perhaps nothing waits for it any longer
        await _end_of(task, until)
        return task.result()

    async def answered(
        self, partition: Partition, messages: Sequence[Message], key: str, until: float
    ) -> Appended | None:
        """Return where the messages of an earlier append with this key are, or None; raises what `append` raises."""
        task = asyncio.create_task(self._answered(partition, messages, key_hash(partition.topic, key.encode()), until))
        try:
            await _end_of(task, until)
            return task.result()
        finally:
            task.cancel()

    async def forget(self, topic: TopicId) -> None:
        """Remove the claims of a topic that is gone; what cannot be removed now does no harm."""
        with contextlib.suppress(RegistryUnavailable):
            await self._store.forget(topic)

    async def forget_old(self) -> None:
        """Remove keys of topics that were looked at, when they are older than their topic keeps them."""
        window = self._options.idempotency_window
        await self._store.forget_old({topic: window or kept.age for topic, kept in self._topics.kept.items()})

    async def close(self) -> None:
        """Wait for the appends under way."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _answered(
        self, partition: Partition, messages: Sequence[Message], hashed: bytes, until: float
    ) -> Appended | None:
        while (task := self._under_way.get(hashed)) is not None:
            await asyncio.wait((task,))
        claim = await self._store.known(partition.topic, hashed)
        if claim is None or claim.age > await self._window(partition):
            return None
        return await self._answer(partition, hashed, claim, messages, until)

    async def _append(self, partition: Partition, messages: Sequence[Message], hashed: bytes, until: float) -> Appended:
        mark = new_uuid()
        claim = await self._claim(partition, hashed, content_hash(messages), mark)
        if claim is None:
            return await self._make(partition, messages, hashed, until, mark)
        answer = await self._answer(partition, hashed, claim, messages, until)
        if answer is not None:
            return answer
        if not await self._store.take_over(partition.topic, hashed, claim, content_hash(messages), mark):
            raise LogUnavailable
        logger.info("key.taken_over", topic=partition.name)
        return await self._make(partition, messages, hashed, until, mark)

    async def _claim(self, partition: Partition, hashed: bytes, content: bytes, mark: str) -> Claim | None:
        """Claim a key; return the claim that is there already, unless it is older than keys are remembered."""
        end = await self._reader.end(partition)
        claim = await self._store.claim(partition.topic, hashed, content, end, mark)
        if claim is None or claim.age <= (window := await self._window(partition)):
            return claim
        await self._store.forget_old({partition.topic: window})
        return await self._store.claim(partition.topic, hashed, content, end, mark)

    async def _answer(
        self, partition: Partition, hashed: bytes, claim: Claim, messages: Sequence[Message], until: float
    ) -> Appended | None:
        same = is_content(claim.content, messages)
        if claim.appended is None and claim.age < YOUNG:
            raise LogUnavailable
        found = claim.appended
        if found is None:
            bounds = await self._reader.settled(partition)
            bounds = Bounds(max(claim.end, bounds.oldest), bounds.end)
            found = await find_append(self._connection, partition, hashed, bounds, len(messages))
        if found is not None and not same:
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
        except (Unsent, TooLarge):  # not when the topic is gone: it takes its claims along, or turns up again after all
            try:
                await self._store.release(partition.topic, hashed, mark)
            except RegistryUnavailable:  # the next call finds that they are nowhere
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
    """Wait for a task, which goes on without its caller; raise `LogUnavailable` soon after loop time `until`.

    The caller need be no task, as `asyncio.timeout` wants it: a publish on the lane is none.
    """
    await asyncio.wait((task,), timeout=max(until + _GRACE - asyncio.get_running_loop().time(), 0))
    if not task.done():
        raise LogUnavailable


async def find_append(
    connection: Connection, partition: Partition, hashed: bytes, bounds: Bounds, count: int
) -> Appended | None:
    """Return where the append with a key is within bounds; None when it is not there."""
    at = bounds.oldest
    while at < bounds.end:
        part = await fetch_part(connection, partition, at, _FETCH_BYTES, SCAN, until=connection.deadline())
        before = at
        for batch in batches(part.data):
            with contextlib.suppress(*UNREADABLE):  # a batch that cannot be read is not ours
                for record in () if batch.is_control_batch else batch:
                    if (KEY, hashed) in record.headers:
                        return Appended(Offset(record.offset + partition.first), count, Milliseconds(record.timestamp))
            at = Offset(max(at, batch.next_offset + partition.first))
            await asyncio.sleep(0)
        if at == before:  # nothing is there, though it was said to be: the end of what may be seen
            return None
    return None
