"""Idempotent appends: what was answered to a key is found in the segments; a key under way is waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import KeyReused
from ams.core.messages import Message
from ams.storage.log.base import Appended
from ams.storage.log.embedded.entries import Answered
from ams.storage.log.embedded.holdings import Holdings
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.topic import TopicState
from ams.storage.log.embedded.upkeep import Upkeep
from ams.storage.log.embedded.work import Append
from ams.storage.log.keys import content_hash, is_content, key_hash

Released = Callable[[], Awaitable[None]]
Store = Callable[[Append], Awaitable[Appended]]


class Keys:
    """The keys of all topics; made by `EmbeddedLog`."""

    def __init__(self, holdings: Holdings, upkeep: Upkeep, clock: Clock, options: LogOptions) -> None:
        self._holdings = holdings
        self._upkeep = upkeep
        self._clock = clock
        self._options = options

    async def answered(self, topic: TopicState, messages: Sequence[Message], key: str) -> Appended | None:
        """Return what was answered to a key, None when it is new (`Log.answered`); waits for appends under way."""
        hashed = key_hash(topic.id, key.encode())
        await self._until_decided(hashed)
        return await self._answer(topic, hashed, messages)

    async def append(
        self,
        append: Append,
        messages: Sequence[Message],
        key: str,
        released: Callable[[], Awaitable[None]],
        store: Store,
    ) -> Appended:
        """Append unless the key was seen: then return its first answer, or raise `KeyReused` for other content.

        `released` returns when the topic may be appended to; what it raises leaves the key new.
        """
        topic, under_way = append.topic, self._holdings.keys
        append.key = key.encode()
        append.hashed = key_hash(topic.id, append.key)
        append.content = content_hash(messages)
        await self._until_decided(append.hashed)
        under_way[append.hashed] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._answer(topic, append.hashed, messages)
            await released()
        except BaseException:
            self._holdings.forget_key(append.hashed)
            raise
        if answer is None:
            return await store(append)
        self._holdings.forget_key(append.hashed)
        return answer

    async def _until_decided(self, hashed: bytes) -> None:
        """Wait while appends with this key are under way."""
        while (under_way := self._holdings.keys.get(hashed)) is not None:
            await asyncio.wait((under_way,))

    async def _answer(self, topic: TopicState, hashed: bytes, messages: Sequence[Message]) -> Appended | None:
        answered = await self._remembered(topic, hashed)
        if answered is None:
            return None
        if not is_content(answered.content, messages):
            raise KeyReused
        return answered.appended

    async def _remembered(self, topic: TopicState, hashed: bytes) -> Answered | None:
        """Return what is known of a key; None when it is new to its window."""
        since, catalog = self._since(topic), self._holdings.catalog
        for segment in catalog.may_hold(hashed, since):
            answered = await self._upkeep.look_up(partial(catalog.answered_in, segment, topic.id, hashed))
            if answered is not None and answered.appended.time >= since:
                return answered
        return None

    def _since(self, topic: TopicState) -> Milliseconds:
        """Return the time before which a key counts as new."""
        window = self._options.idempotency_window or topic.retention or self._options.retention
        return Milliseconds(self._clock.wall() - window)
