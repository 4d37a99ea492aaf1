"""Cursors and log that are of different moments, as after a folder was put back from a copy."""

import shutil
from pathlib import Path

from tests.faults.in_process import Clients, prepare
from tests.support.engines import open_engines


async def test_cursors_ahead_of_a_log_put_back_from_a_copy_go_on_at_its_end(tmp_path: Path) -> None:
    await prepare(tmp_path)
    log, copy = tmp_path / "log", tmp_path / "copy"
    async with open_engines(tmp_path) as engines:
        clients = await Clients.of(engines)
        await clients.publish(3)
    shutil.copytree(log, copy)
    async with open_engines(tmp_path) as engines:
        clients = await clients.again(engines)
        await clients.publish(4)
        await clients.pull()
        await clients.acknowledge(6)
    shutil.rmtree(log)
    copy.rename(log)

    async with open_engines(tmp_path) as engines:
        clients = await clients.again(engines)
        published = await clients.publish(2)
        pulled = await clients.pull()

    assert published.ids == (3, 4)
    assert [each.name for each in pulled.messages] == list(published.names)
