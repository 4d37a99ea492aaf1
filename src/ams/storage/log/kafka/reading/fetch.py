"""Questions to the leader of a topic, each complete in itself: messages from an offset on, ends, starts and times.

Nothing is subscribed to and nothing is kept at the broker, so any read can be at any place at no cost but its own.
Only what all in-sync replicas have is seen (the high watermark). Offsets are ours, not the broker's.
"""

import asyncio
from typing import Any, NamedTuple

from aiokafka.errors import NoError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from ams.core.clock import Milliseconds
from ams.core.messages import Stored
from ams.core.names import Offset
from ams.storage.log.kafka.brokers.connection import Connection
from ams.storage.log.kafka.brokers.links import Lane
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.run import Wish
from ams.storage.log.kafka.records import Decoder, batches

SCAN = Lane("scan")
"""The lane of large fetches, so that small ones do not wait for their bytes."""
READ = Lane("read")
"""The lane of the others: they bring a whole batch at least, which may be large; no pull at a tail waits for that."""
BREATH = 100
"""Messages made at once, before others get their turn; some 0.2 ms."""
UNCOMMITTED, CONSUMER = 0, -1
FOLLOWER = 0
"""Asks as brokers that follow do: of what the leader has, whether enough brokers have it yet or not. Any id that is no
consumer's is answered so."""
LATEST, EARLIEST = -1, -2


class Fetched(NamedTuple):
    """What a fetch found: all messages from where it began to before `next`."""

    messages: list[Stored]
    next: Offset
    end: Offset
    """End of the topic as the leader knew it then; it may lag for a moment after the leader moved."""


class Part(NamedTuple):
    """The answer to a fetch of one topic, not yet decoded."""

    high: int
    """The broker's offset after the last message that may be seen."""
    data: bytes


class Fetcher:
    """Asks, and makes messages of the answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.decoder = Decoder()

    async def fetch(
        self, place: Place, start: Offset, size: int, *, until: float, enough: Wish | None = None
    ) -> Fetched:
        """Return messages from `start` on: those of the first batch at least, and about `size` bytes in all.

        No more than what `enough` still takes are made, if it is given. Raises `OffsetOutOfRangeError` for a start
        that is not between the oldest message and the end, beside what `Connection.ask` raises.
        """
        lane = READ if enough else SCAN
        ask = FetchRequest(0, 1, size, UNCOMMITTED, [(place.name, [(0, max(start - place.first, 0), size)])])
        part = await self._connection.ask(place, ask, _only_part, until=until, lane=lane)
        messages, next_ = await self.decode(place, part, start, enough)
        return Fetched(messages, next_, Offset(part.high + place.first))

    async def decode(
        self, place: Place, part: Part, start: Offset, enough: Wish | None = None
    ) -> tuple[list[Stored], Offset]:
        """Return the messages in an answer, and where to go on."""
        found: list[Stored] = []
        places = enough.places if enough else len(part.data)
        room = enough.bytes if enough else len(part.data) * 2
        next_ = start
        for batch in batches(part.data):
            for made in self.decoder.pieces(place, batch, start, BREATH):
                found += made
                room -= sum([len(each.fragment) for each in made])
                if len(found) >= places or room < 0:
                    return found, Offset(found[-1].offset + 1)
                await asyncio.sleep(0)
            next_ = Offset(max(next_, batch.next_offset + place.first))
        return found, next_

    async def end(self, place: Place, until: float) -> Offset:
        """Return the offset the next message will get."""
        return Offset((await self._offset(place, LATEST, until))[0] + place.first)

    async def written(self, place: Place, until: float) -> Offset:
        """Return where the leader's log ends: also of what nobody sees, as too few brokers have it yet."""
        return Offset((await self._offset(place, LATEST, until, FOLLOWER))[0] + place.first)

    async def oldest(self, place: Place, until: float) -> Offset:
        """Return the oldest offset kept."""
        return Offset((await self._offset(place, EARLIEST, until))[0] + place.first)

    async def at(self, place: Place, time: Milliseconds, until: float) -> Offset | None:
        """Return the first offset whose publish time is `time` or later; None when there is none."""
        offset, _ = await self._offset(place, max(time, 0), until)
        return None if offset < 0 else Offset(offset + place.first)

    async def _offset(self, place: Place, time: int, until: float, who: int = CONSUMER) -> tuple[int, int]:
        request = OffsetRequest(who, UNCOMMITTED, [(place.name, [(0, time)])])
        return await self._connection.ask(place, request, _only_offset, until=until)


def _only_part(response: Any) -> Part:
    (_, parts), *_ = response.topics
    return part_of(parts[0])


def part_of(answer: Any) -> Part:
    """Return what the answer to a fetch says of one partition; raises the `KafkaError` it holds."""
    check(answer[1])
    return Part(answer[2], answer[-1] or b"")


def _only_offset(response: Any) -> tuple[int, int]:
    (_, parts), *_ = response.topics
    _, code, time, offset = parts[0]
    check(code)
    return offset, time


def check(code: int) -> None:
    """Raise the error that a code of Kafka's protocol stands for; 0 is none."""
    if (kind := for_code(code)) is not NoError:
        raise kind()
