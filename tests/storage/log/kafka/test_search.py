"""Looking for an append by its key."""

from types import SimpleNamespace

import pytest

from ams.core.names import new_topic_id
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka import keys
from ams.storage.log.kafka.fetch import Part
from ams.storage.log.kafka.keys import KEY, find_append
from ams.storage.log.kafka.partition import Partition
from tests.storage.log.kafka.test_records import batch_of, signed


@pytest.mark.parametrize("flag", [0, 7])
async def test_batches_of_others_that_cannot_be_read_hold_up_no_search(monkeypatch, flag):
    foreign, ours = batch_of([(None, b"1", [])]), batch_of([(None, b"2", [(KEY, b"k")])])
    foreign[22] |= flag  # 7: a compression that there is not
    ours[7] = 1  # its first offset

    async def fetched(*_: object, until: float) -> Part:
        return Part(2, bytes(signed(foreign)) + bytes(ours))

    monkeypatch.setattr(keys, "fetch_part", fetched)
    partition = Partition(new_topic_id(), "ams.x")

    found = await find_append(SimpleNamespace(deadline=lambda: 1.0), partition, b"k", Bounds(0, 2), 1)

    assert isinstance(found, Appended)
    assert (found.first, found.count) == (1, 1)
