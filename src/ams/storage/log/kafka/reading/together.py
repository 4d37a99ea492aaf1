"""The bounds of many topics, in two questions to each leader rather than two for each topic."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.offset import OffsetRequest

from ams.core.errors import AmsError
from ams.core.names import Offset
from ams.storage.log.base import Bounds
from ams.storage.log.kafka.brokers.connection import Connection
from ams.storage.log.kafka.brokers.links import NodeId
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.fetch import CONSUMER, EARLIEST, LATEST, UNCOMMITTED

AT_ONCE = 1000
"""Topics in one question."""


async def bounds_together(connection: Connection, places: Sequence[Place], until: float) -> dict[Place, Bounds]:
    """Return the bounds of topics by loop time `until`; those a broker did not answer for are left out."""
    found: dict[Place, Bounds] = {}
    for start in range(0, len(places), AT_ONCE):
        led = await _by_leader(connection, places[start : start + AT_ONCE], until)
        for part in await asyncio.gather(*(_bounds(connection, node, own) for node, own in led.items())):
            found |= part
    return found


async def _by_leader(connection: Connection, places: Sequence[Place], until: float) -> Mapping[NodeId, Sequence[Place]]:
    leaders = await asyncio.gather(*(connection.leader(place, until=until) for place in places), return_exceptions=True)
    led: defaultdict[NodeId, list[Place]] = defaultdict(list)
    for place, leader in zip(places, leaders, strict=True):
        if not isinstance(leader, BaseException):
            led[leader].append(place)
        elif not isinstance(leader, AmsError | KafkaError):
            raise leader
    return led


async def _bounds(connection: Connection, node: NodeId, places: Sequence[Place]) -> dict[Place, Bounds]:
    try:
        oldest = await _offsets(connection, node, places, EARLIEST)
        ends = await _offsets(connection, node, places, LATEST)  # after: an end is never below what was oldest then
    except KafkaError:
        return {}
    both = [place for place in places if place.name in oldest and place.name in ends]
    return {
        place: Bounds(Offset(oldest[place.name] + place.first), Offset(ends[place.name] + place.first))
        for place in both
    }


async def _offsets(connection: Connection, node: NodeId, places: Sequence[Place], which: int) -> dict[str, int]:
    asked: Any = [(place.name, [(0, which)]) for place in places]
    return dict(_told(await connection.send(node, OffsetRequest(CONSUMER, UNCOMMITTED, asked))))


def _told(response: Any) -> Iterator[tuple[str, int]]:
    for name, [(_, code, _, offset)] in response.topics:
        if not code:
            yield name, offset
