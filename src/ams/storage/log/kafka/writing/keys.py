"""Appends with an idempotency key, each stored once however often it is asked for, on whatever node.

A key is claimed in the idempotency store before its append, durably, with the end of the topic at that moment; after
the append the claim is settled: where the messages are. So whoever asks again is told, by any node. The first message
carries the key as well. A claim that nobody settled is one of

- an append that is under way, or whose node has just died: for half a minute nobody knows, and who asks is told to try
  again;
- one whose node died: what it sent is in the topic by now or nowhere, once all that the leader has is seen by everyone
  (while too few brokers are in sync it is not, and nobody knows). The messages from the end at the claim on are
  searched for the key; when they are there the claim is settled, else it is taken over, by one of those who ask. Who
  asks with other messages takes it over as well: of a key whose messages are nowhere none is taken for them.

What stays possible: an append is stored twice when its node stood still for half a minute after the claim, or was cut
off with its request under way, another node took the claim over meanwhile, and the first request still reached a
broker. Nodes give up what they have not sent after 10 seconds, so this takes a process or a broker that stops and goes
on. And when the claims of a topic are older than keys are remembered, its keys are new again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import KeyReused, LogUnavailable, RegistryUnavailable, TooLarge
from ams.core.messages import Message
from ams.core.names import Offset, new_uuid
from ams.storage.log.base import Appended, content_hash, is_content, key_hash
from ams.storage.log.kafka.idempotency_store import Claim, IdempotencyStore
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.writing.batches import Unsent

logger = structlog.get_logger("ams.log")

YOUNG = Milliseconds(30_000)
"""A claim not settled is left alone for so long: twice what an append can take, with all its retries."""


_GRACE = 0.5
"""Seconds beyond its time in which an append says what became of it."""


class Appending(Protocol):
    """What keys need of the log."""

    def window(self, place: Place) -> Awaitable[Milliseconds]:
        """Return how long keys of a topic are remembered."""
        ...

    def end_of(self, place: Place) -> Awaitable[Offset]:
        """Return the topic's end."""
        ...

    def append_once(
        self, place: Place, messages: Sequence[Message], hashed: bytes, until: float
    ) -> Awaitable[Appended]:
        """Append messages, the first of which carries the key, unless they are not sent by loop time `until`."""
        ...

    def search(self, place: Place, hashed: bytes, since: Offset, count: int) -> Awaitable[Appended | None]:
        """Return where the append with a key is, from `since` on; None when it is nowhere, nor can come to be."""
        ...


class Keys:
    """Makes appends with keys; those with the same key, one after the other."""

    def __init__(self, store: IdempotencyStore, log: Appending) -> None:
        self._store = store
        self._log = log
        self._under_way: dict[bytes, asyncio.Task[Appended]] = {}

    async def append(self, place: Place, messages: Sequence[Message], key: str, until: float) -> Appended:
        """Append messages unless they were with this key; return where they are.

        Raises `KeyReused` when the key came with other messages, `LogUnavailable` while nobody knows what became of
        an earlier append with it, also when it takes until loop time `until`. One that has begun goes on when its
        caller leaves.
        """
        hashed = key_hash(place.topic, key.encode())
        async with _in_time(until):
            await self._until_decided(hashed)
            task = asyncio.create_task(self._append(place, messages, hashed, until))
            self._under_way[hashed] = task
            task.add_done_callback(lambda done: self._decided(hashed, done))
            return await asyncio.shield(task)

    async def answered(self, place: Place, messages: Sequence[Message], key: str, until: float) -> Appended | None:
        """Return where the messages of an earlier append with this key are; None when there was none.

        Raises what `append` raises.
        """
        hashed = key_hash(place.topic, key.encode())
        async with _in_time(until):
            await self._until_decided(hashed)
            claim = await self._store.known(place.topic, hashed)
            if claim is None or claim.age > await self._log.window(place):
                return None
            return await self._answer(place, hashed, claim, messages, until)

    async def close(self) -> None:
        """Wait for the appends under way."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _until_decided(self, hashed: bytes) -> None:
        while (task := self._under_way.get(hashed)) is not None:
            await asyncio.wait((task,))

    def _decided(self, hashed: bytes, task: "asyncio.Task[Appended]") -> None:
        del self._under_way[hashed]
        if not task.cancelled():
            task.exception()  # looked at: perhaps nobody waits any longer

    async def _append(self, place: Place, messages: Sequence[Message], hashed: bytes, until: float) -> Appended:
        mark = new_uuid()
        claim = await self._claim(place, hashed, content_hash(messages), mark)
        if claim is None:
            return await self._make(place, messages, hashed, until, mark)
        answer = await self._answer(place, hashed, claim, messages, until)
        if answer is not None:
            return answer
        if not await self._store.take_over(place.topic, hashed, claim, content_hash(messages), mark):
            raise LogUnavailable
        logger.info("key.taken_over", topic=place.name)
        return await self._make(place, messages, hashed, until, mark)

    async def _claim(self, place: Place, hashed: bytes, content: bytes, mark: str) -> Claim | None:
        """Claim a key; return the claim that is there already, unless it is older than keys are remembered."""
        end = await self._log.end_of(place)
        claim = await self._store.claim(place.topic, hashed, content, end, mark)
        if claim is None or claim.age <= (window := await self._log.window(place)):
            return claim
        await self._store.forget_old({place.topic: window})
        return await self._store.claim(place.topic, hashed, content, end, mark)

    async def _answer(
        self, place: Place, hashed: bytes, claim: Claim, messages: Sequence[Message], until: float
    ) -> Appended | None:
        """Return where the messages of a claim are; None when they are not stored.

        Raises `KeyReused` when those that are stored are others.
        """
        same = is_content(claim.content, messages)
        if claim.appended is None and claim.age < YOUNG:
            raise LogUnavailable
        found = claim.appended or await self._log.search(place, hashed, claim.end, len(messages))
        if found is not None and not same:
            raise KeyReused
        if found is not None and claim.appended is None:
            await self._settle(place, hashed, found, until)
        return found

    async def _make(
        self, place: Place, messages: Sequence[Message], hashed: bytes, until: float, mark: str
    ) -> Appended:
        try:
            appended = await self._log.append_once(place, messages, hashed, until)
        except (Unsent, TooLarge):  # not when the topic is gone: it takes its claims along, or turns up again after all
            await self._release(place, hashed, mark)
            raise
        await self._settle(place, hashed, appended, until)
        return appended

    async def _settle(self, place: Place, hashed: bytes, appended: Appended, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._store.settle(place.topic, hashed, appended)
        except (RegistryUnavailable, TimeoutError):  # who asks again searches for the messages
            logger.warning("key.unsettled", topic=place.name)

    async def _release(self, place: Place, hashed: bytes, mark: str) -> None:
        try:
            await self._store.release(place.topic, hashed, mark)
        except RegistryUnavailable:  # who asks again finds that they are nowhere
            logger.warning("key.unreleased", topic=place.name)


@contextlib.asynccontextmanager
async def _in_time(until: float) -> AsyncIterator[None]:
    """Keep nobody waiting beyond loop time `until`, and a moment."""
    try:
        async with asyncio.timeout_at(until + _GRACE):
            yield
    except TimeoutError:
        raise LogUnavailable from None
