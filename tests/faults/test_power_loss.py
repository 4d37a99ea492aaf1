"""Power losses and failed syncs under the real use cases: the history keeps the laws."""

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ams.core.errors import LogUnavailable
from ams.core.messages import Message
from ams.core.names import TopicId
from ams.storage.log.base import Appended, Log
from tests.faults.attempts import Outcome
from tests.faults.in_process import Clients, Cut, disk_with, prepare
from tests.support.engines import open_engines
from tests.support.unreliable_disk import UnreliableDisk


class Unplugged:
    """A log whose callers hear nothing more once the power is gone."""

    def __init__(self, log: Log, disk: UnreliableDisk) -> None:
        self._log = log
        self._disk = disk

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        try:
            return await self._log.append(topic, messages, key=key)
        except LogUnavailable as error:
            if self._disk.stopped:
                raise Cut from error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def use(clients: Clients, chance: random.Random) -> None:
    for size in (1, 40, 3, 300, 2):
        await clients.publish(size)
        pulled = await clients.pull(20)
        if pulled.messages:
            await clients.acknowledge(chance.choice(pulled.messages).id)
        if chance.random() < 0.3:
            await clients.seek(chance.randrange(5))


@pytest.mark.parametrize("changes", range(1, 13))
async def test_a_power_loss_at_any_moment_breaks_no_law(tmp_path: Path, changes: int) -> None:
    disk, chance = disk_with(tmp_path, UnreliableDisk()), random.Random(changes)
    await prepare(tmp_path, disk)
    with contextlib.suppress(OSError):  # without power nothing can be closed
        async with open_engines(tmp_path, files=disk) as engines:
            clients = await Clients.of(engines)
            clients = replace(clients, log=cast("Log", Unplugged(engines.log, disk)))
            disk.stop_at = disk.changes + changes
            await use(clients, chance)
    assert disk.stopped
    disk.power_loss(chance)

    async with open_engines(tmp_path, files=disk) as engines:
        clients = await clients.again(engines)
        await use(clients, chance)
        assert await clients.violations(engines) == []


@pytest.mark.parametrize("call", ["sync", "write"])
async def test_what_a_failed_disk_refused_never_returns(tmp_path: Path, call: str) -> None:
    disk = disk_with(tmp_path, UnreliableDisk())
    await prepare(tmp_path, disk)
    async with open_engines(tmp_path, files=disk) as engines:
        clients = await Clients.of(engines)
        await clients.publish(3)
        disk.fail(call)
        refused = await clients.publish(4)
        again = await clients.publish(5)
    disk.power_loss(random.Random(1))

    assert refused.outcome is Outcome.REFUSED
    assert again.ids == (3, 4, 5, 6, 7)
    async with open_engines(tmp_path, files=disk) as engines:
        assert await (await clients.again(engines)).violations(engines) == []
