import asyncio

import pytest

from ams.core.names import Offset
from ams.storage.log.base import Bounds
from ams.storage.log.kafka.reading import together
from ams.storage.log.kafka.reading.together import bounds_together
from tests.storage.log.kafka import raw

pytestmark = pytest.mark.kafka


async def test_the_bounds_of_many_topics_are_those_of_each(monkeypatch) -> None:
    monkeypatch.setattr(together, "AT_ONCE", 2)
    empty, cut, moved = await raw.make(), await raw.make(), await raw.make(first=Offset(100))
    for place in (cut, moved):
        await raw.produce(place, [b"a", b"b", b"c"])
    await raw.delete_before(cut, 2)
    gone = await raw.make()
    await raw.delete(gone)

    async with raw.opened() as (connection, reader):
        until = asyncio.get_running_loop().time() + 8
        found = await bounds_together(connection, [empty, cut, moved, gone], until)

        assert found == {empty: Bounds(0, 0), cut: Bounds(2, 3), moved: Bounds(100, 103)}
        assert {place: await reader.bounds(place) for place in (empty, cut, moved)} == found
