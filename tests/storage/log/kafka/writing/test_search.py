"""Looking for an append by its key."""

import pytest

from ams.core.names import new_topic_id
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.fetch import Part
from ams.storage.log.kafka.writing import search
from ams.storage.log.kafka.writing.search import KEY, find_append
from tests.storage.log.kafka.test_records import batch_of, signed


@pytest.mark.parametrize("flag", [0, 7])
async def test_batches_of_others_that_cannot_be_read_hold_up_no_search(monkeypatch, flag):
    foreign, ours = batch_of([(None, b"1", [])]), batch_of([(None, b"2", [(KEY, b"k")])])
    foreign[22] |= flag  # 7: a compression that there is not
    ours[7] = 1  # its first offset

    async def fetched(*_: object) -> Part:
        return Part(2, bytes(signed(foreign)) + bytes(ours))

    monkeypatch.setattr(search, "fetch_at", fetched)
    place = Place(new_topic_id(), "ams.x")

    found = await find_append(None, place, b"k", Bounds(0, 2), 1, 1.0)

    assert isinstance(found, Appended)
    assert (found.first, found.count) == (1, 1)
