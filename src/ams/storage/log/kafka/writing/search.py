"""Looking for the messages of an append by the header its first message has, when nobody noted where they are."""

import asyncio
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka.brokers.connection import Connection
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.fetch import SCAN, UNCOMMITTED, Part, part_of
from ams.storage.log.kafka.records import OURS, UNREADABLE, batches

KEY = OURS + "key"
"""Header of the first message of an append with an idempotency key: 16 bytes that stand for it."""
_FETCH_BYTES = 2**20


async def find_append(
    connection: Connection, place: Place, hashed: bytes, bounds: Bounds, count: int, patience: float
) -> Appended | None:
    """Return where the append with a key is within bounds; None when it is not there."""
    at = bounds.oldest
    while at < bounds.end:
        part = await fetch_at(connection, place, at, asyncio.get_running_loop().time() + patience)
        before = at
        for batch in batches(part.data):
            found = None if batch.is_control_batch else _first_with(batch, hashed)
            if found is not None:
                return Appended(Offset(found.offset + place.first), count, Milliseconds(found.timestamp))
            at = Offset(max(at, batch.next_offset + place.first))
            await asyncio.sleep(0)
        if at == before:  # nothing is there, though it was said to be: the end of what may be seen
            return None
    return None


async def fetch_at(connection: Connection, place: Place, start: Offset, until: float) -> Part:
    """Return whole batches as the broker keeps them, the first of which holds `start`."""
    ask = FetchRequest(0, 1, _FETCH_BYTES, UNCOMMITTED, [(place.name, [(0, start - place.first, _FETCH_BYTES)])])

    def answer(response: Any) -> Part:
        (_, parts), *_ = response.topics
        return part_of(parts[0])

    return await connection.ask(place, ask, answer, until=until, lane=SCAN)


def _first_with(batch: Any, hashed: bytes) -> Any:
    """Return the first record of a batch with this key; none is in a batch that cannot be read, so it is not ours."""
    try:
        return next((record for record in batch if (KEY, hashed) in record.headers), None)
    except UNREADABLE:
        return None
