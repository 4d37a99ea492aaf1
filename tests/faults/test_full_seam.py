"""A full disk under the log in this process, where none can be mounted: `test_full_disk.py` fills a real one."""

from pathlib import Path

import pytest

from ams.storage.log.embedded import LogOptions
from tests.faults.attempts import Outcome
from tests.faults.in_process import Clients, disk_with, prepare
from tests.support.engines import open_engines
from tests.support.unreliable_disk import UnreliableDisk

KIB = 1024


@pytest.mark.parametrize("min_free", [0, 32 * KIB], ids=["down to nothing", "down to min_free_bytes"])
async def test_a_full_disk_refuses_publishes_and_loses_nothing(tmp_path: Path, min_free: int) -> None:
    disk = disk_with(tmp_path, UnreliableDisk(capacity=128 * KIB))
    await prepare(tmp_path, disk)
    async with open_engines(tmp_path, LogOptions(min_free_bytes=min_free, reserve_bytes=0), files=disk) as engines:
        clients = await Clients.of(engines)
        filling = [(await clients.publish(100)).outcome for _ in range(20)]
        pulled = await clients.pull(150)
        acknowledged = await clients.acknowledge(pulled.messages[-1].id)
        disk.capacity *= 2
        engines.clock.advance(1_000)
        resumed = await clients.publish(100)

    assert filling[0] is Outcome.DONE
    assert filling[-1] is Outcome.REFUSED
    assert acknowledged.outcome is resumed.outcome is Outcome.DONE
    async with open_engines(tmp_path, files=disk) as engines:
        assert await (await clients.again(engines)).violations(engines) == []
