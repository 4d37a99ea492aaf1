"""The reference's messages through its API, by a subscription that is made for the time of reading.

The ids are the real ones. What is there for others does not change, but that all pulls of a topic wait for each other.
"""

import contextlib
import re
import uuid
from asyncio import sleep
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ams.client import wire
from ams.client.errors import AlreadyExists, InvalidInput, NotFound
from ams.client.wire.call import Call, nothing, reader
from ams.core.errors import Unavailable
from ams.core.messages import Stored
from ams.migrate.asking import OldService, integer
from ams.migrate.converting import NO_MESSAGES, Bounds
from ams.migrate.records import Record, stored

TEMPORARY = re.compile("ams-migrate-[0-9a-f]{32}")
"""Names of subscriptions that are made for the time of reading."""
AT_FIRST, AT_ONCE = 32, 500
"""Messages asked for at once."""
MOST_BYTES = 8 * 2**20
"""Of an answer: with larger ones fewer messages are asked for."""
EMPTY_PULLS = 20
"""In a row, before the end: it answers so when reading from its brokers takes longer than 300 ms."""
EMPTY_PAUSE = 0.5


class TopicName(NamedTuple):
    """A topic as its API names it."""

    project: str
    topic: str


class _Id(msgspec.Struct, rename="camel"):
    message_id: str


class _Received(msgspec.Struct):
    message: msgspec.Raw


class _Batch(msgspec.Struct, rename="camel"):
    received_messages: list[_Received]
    size: int = 0


class Pulling:
    """Reads topics, whose bounds and places it is told when they are known."""

    def __init__(self, old: OldService) -> None:
        self._old = old
        self._bounds: Mapping[str, Bounds] = {}
        self._places: Mapping[str, TopicName] = {}
        self._made: set[tuple[str, str]] = set()
        """Subscriptions to remove."""
        self.other_partitions: dict[str, int] = {}
        """Nothing shows what is outside partition 0."""

    def know(self, places: Mapping[str, TopicName], bounds: Mapping[str, Bounds]) -> None:
        """Take places and bounds of topics by the names that `converting.kafka_topic` gives them."""
        self._places, self._bounds = places, bounds

    def bounds(self, topic: str) -> Bounds:
        """Return what a topic has."""
        return self._bounds.get(topic, NO_MESSAGES)

    async def bounds_now(self, place: TopicName) -> Bounds:
        """Ask for the bounds of a topic without subscriptions. Raises `NotFound` where the topic is gone."""
        async with self._subscription(place) as subscription:
            return await asked_bounds(self._old, place, subscription)

    async def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> AsyncIterator[Sequence[Stored]]:
        """Yield the messages of a topic from offset `start` up to `end`, in order; what cannot be read is left out.

        No publish time is before `earliest`. Raises `Unavailable`.
        """
        if start >= end:
            return
        place = self._places[topic]
        try:
            async with self._subscription(place) as subscription:
                async for each in _Reading(self._old, place, subscription, start, end, earliest).batches():
                    yield each
        except NotFound:
            raise Unavailable(f"topic {place.project}/{place.topic} is gone from the old service") from None

    async def close(self) -> None:
        """Remove what a reader left that did not read to the end."""
        for project, name in list(self._made):
            await self._try_to_remove(project, name)

    @contextlib.asynccontextmanager
    async def _subscription(self, place: TopicName) -> AsyncIterator[str]:
        """Make a subscription for the time of the block; give its name."""
        name = f"ams-migrate-{uuid.uuid4().hex}"
        self._made.add((place.project, name))
        with contextlib.suppress(AlreadyExists):  # the answer to an earlier try was lost
            await self._old.ask(_unread(wire.create_subscription(place.project, name, place.topic)))
        try:
            yield name
        except Unavailable:
            await self._try_to_remove(place.project, name)
            raise
        with contextlib.suppress(NotFound):
            await self._old.ask(wire.delete_subscription(place.project, name))
        self._made.discard((place.project, name))

    async def _try_to_remove(self, project: str, name: str) -> None:
        """Try once: what does not answer is not waited for again."""
        with contextlib.suppress(Unavailable, NotFound, InvalidInput):
            await self._old.once(wire.delete_subscription(project, name))
            self._made.discard((project, name))


class _Reading:
    """One reading of a topic."""

    def __init__(
        self, old: OldService, place: TopicName, subscription: str, start: int, end: int, earliest: int
    ) -> None:
        self._old = old
        self._place = place
        self._subscription = subscription
        self._following, self._end = start, end
        self._most = AT_FIRST
        self._time = earliest
        self._empty = 0

    async def batches(self) -> AsyncIterator[Sequence[Stored]]:
        await self._move()
        while self._following < self._end:
            batch = await self._pull()
            if batch is None and self._most > 1:
                self._most //= 2
                continue
            if batch is None:
                self._following += 1
                await self._move()
                continue
            if not batch.received_messages:
                await self._wait()
                continue
            self._empty = 0
            records = [record for record in map(_record, batch.received_messages) if record.offset < self._end]
            for record in records:
                await self._check(record.offset)
                self._following = record.offset + 1
            read = stored(records, self._time)
            if read:
                self._time = read[-1].time
                yield read
            if len(records) < len(batch.received_messages):
                return
            self._most = max(self._most // 2, 1) if batch.size > MOST_BYTES else min(self._most * 2, AT_ONCE)
            await self._move()

    async def _pull(self) -> _Batch | None:
        """Return the next messages; None when one of them cannot be read."""
        most = min(self._most, self._end - self._following)
        asked = wire.pull(self._place.project, self._subscription, max_messages=most, wait=False)
        return await self._old.answerable(Call(asked.method, asked.path, _batch, asked.body))

    async def _move(self) -> None:
        try:
            await self._old.ask(wire.modify_offset(self._place.project, self._subscription, self._following))
        except InvalidInput:
            raise self._lost() from None

    async def _wait(self) -> None:
        self._empty += 1
        if self._empty == EMPTY_PULLS:
            raise Unavailable(
                f"the old service gives no message of {self._name} after {self._following}, and it ends at {self._end}"
            )
        await sleep(EMPTY_PAUSE)

    async def _check(self, offset: int) -> None:
        """Raise unless what is between here and the next message is a hole, and not what retention took."""
        if offset <= self._following:
            return
        kept = await asked_bounds(self._old, self._place, self._subscription)
        if kept.first > self._following:
            raise self._lost()

    def _lost(self) -> Unavailable:
        return Unavailable(f"the old service keeps {self._name} from {self._following} on no longer: read it anew")

    @property
    def _name(self) -> str:
        return f"topic {self._place.project}/{self._place.topic}"


def bounds_of(offsets: Mapping[str, Any], place: TopicName) -> Bounds:
    """Read an answer to `:offsets`. Raises `Unavailable` for one without bounds: -1 is said where no broker answers."""
    first, end = integer(offsets, "min"), integer(offsets, "max")
    if first is None or end is None or not 0 <= first <= end:
        raise Unavailable(f"the old service cannot ask its brokers for topic {place.project}/{place.topic}")
    return Bounds(first, end)


async def asked_bounds(old: OldService, place: TopicName, subscription: str) -> Bounds:
    """Ask by a subscription for the bounds of its topic."""
    return bounds_of(await old.get(wire.get_offsets(place.project, subscription).path), place)


def _unread(call: Call[Any]) -> Call[None]:
    return replace(call, read=nothing)


def _batch(body: bytes) -> _Batch:
    found = reader(_Batch)(body)
    found.size = len(body)
    return found


def _record(received: _Received) -> Record:
    return Record(int(msgspec.json.decode(received.message, type=_Id).message_id), bytes(received.message), 0)
