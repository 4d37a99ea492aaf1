"""The campaigns' clients notice faults planted under the service, each by the law that it breaks."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ams.core.names import Offset
from ams.service import subscriptions
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.message_state import KeyQueue, MessageLeases
from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories import scene
from simulation.histories.attempts import ACK, NACK
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.payload import is_poisoned
from simulation.histories.workload import Publisher, Worker
from tests.faults.http_client import HttpClient, Target, Traffic
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.embedded("faults are planted in the embedded engines")

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]  # puts a fault into the service
Use = Callable[["PlantedTrial"], Awaitable[None]]  # clients' actions between a start of the service and its end


class PlantedTrial:
    """A service in this process, and clients of one topic and its parallel subscription."""

    def __init__(self, kind: Parallel) -> None:
        self.kind, self.topic, self.history, self.traffic = kind, kind.topic, History({"s": kind.topic}), Traffic()
        self.chance = random.Random(1)
        self.target = cast("Target", SimpleNamespace(up=asyncio.Event(), deaths=0, live=None))
        self._clients = [HttpClient(name, self.target, self.traffic) for name in ("admin", "p", "w")]
        self.admin, publishing, working = self._clients
        told = self.history, self.chance
        self.publisher = Publisher(publishing, *told, (self.topic,), ((1, 1),), 0, ordered=True)
        self.worker = Worker(working, *told, kind.name)

    async def run(self, folder: Path, plant: Plant, *uses: Use) -> list[str]:
        """Use the service with the fault, restarting it between two uses; return violations found without the fault.

        A restart loses memory-only state, as a kill does.
        """
        for use in uses:
            async with running_service(folder) as (run, token):
                vars(self.target)["live"] = SimpleNamespace(base_url=run.base_url, token=token)
                self.target.up.set()
                if self.target.deaths:
                    self.history.restarts.append(time.monotonic())
                else:
                    await scene.prepare(self.admin, self.history.subscriptions)
                    await parallel.prepare(self.admin, [self.kind])
                with pytest.MonkeyPatch.context() as patch:
                    plant(patch)
                    await use(self)
                found = await self.find_violations()
                for client in self._clients:
                    client.close()
                self.target.up.clear()
                self.target.deaths += 1
        return found

    async def find_violations(self) -> list[str]:
        ending = await scene.ending(self.admin, self.history.subscriptions)
        found = [*self.traffic.violations(), *self.history.violations(ending)]
        left = await parallel.ending(self.admin, [self.kind])
        return [*found, *laws.violations(self.kind, ending.topics[self.topic], self.history.attempts, left)]

    async def has_violation(self, sentence: str) -> bool:
        return any(sentence in each for each in await self.find_violations())


def replace(owner: type, name: str, fault: object) -> Plant:
    return lambda patch: patch.setattr(owner, name, fault)


def plant_nothing(_: Patch) -> None:
    """Plant no fault."""


MESSAGES = 60
PLAIN, ONCE, KEYED = (each._replace(deadline=1) for each in parallel.KINDS)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: Patch) -> None:
    monkeypatch.setattr(subscriptions, "MIN_ACK_DEADLINE", 1)


async def publish_all(trial: PlantedTrial) -> None:
    assert any(is_poisoned(name) for name in (await trial.publisher.publish(trial.topic, MESSAGES)).names)


async def use_leases(trial: PlantedTrial) -> None:
    """Acknowledge some of the leased messages, give some back, keep some; then pull more."""
    worker = trial.worker
    given = (await worker.pull(30)).messages
    if not given:  # all may be on lease since before the restart
        return
    good = [each for each in given if not is_poisoned(each.name)]
    await worker.settle(ACK, good[:10])
    await worker.settle(NACK, [each for each in given if each not in good[:20]] or good[10:])
    await worker.pull(60)


async def acknowledge_late(trial: PlantedTrial) -> None:
    given = (await trial.worker.pull(5)).messages
    await asyncio.sleep(PLAIN.deadline + 0.3)
    if given:
        await trial.worker.settle(ACK, given)


async def run_with_restart(folder: Path, kind: Parallel, use: Use, plant: Plant, sentence: str) -> list[str]:
    """Use a subscription, restart the service, and use it until its end, or until this violation is found."""

    async def begin(trial: PlantedTrial) -> None:
        await publish_all(trial)
        await use(trial)

    async def go_on(trial: PlantedTrial) -> None:
        await use(trial)
        if not sentence:
            await parallel.drain([trial.worker])
        while sentence and not await trial.has_violation(sentence) and time.monotonic() < give_up:
            await parallel.drain([trial.worker], 0.5)

    give_up = time.monotonic() + PATIENCE_SECONDS
    return await PlantedTrial(kind).run(folder, plant, begin, go_on)


def give_to_everybody(patch: Patch) -> None:
    whole = Backlog.give

    def give(backlog: Backlog, offsets: list[Offset], *more: Any) -> str:
        text = whole(backlog, offsets, *more)
        backlog.give_back(offsets)
        return text

    patch.setattr(Backlog, "give", give)
    patch.setattr(Backlog, "_is_free", lambda backlog, offset: offset not in backlog.done)


def end_no_lease(patch: Patch) -> None:
    whole = Backlog.acknowledge
    patch.setattr(MessageLeases, "take_due", lambda *_: iter(()))
    patch.setattr(MessageLeases, "next_due", lambda _: None)
    patch.setattr(Backlog, "acknowledge", lambda backlog, ids, _: whole(backlog, ids, cast("Any", 0)))


FREE_ALL_KEYS = replace(KeyQueue, "takes", lambda *_: True)
LEASE_FAULTS = {
    "no fault": (plant_nothing, PLAIN, ""),
    "no fault, exactly once": (plant_nothing, ONCE, ""),
    "no fault, keyed": (plant_nothing, KEYED, ""),
    "given to everybody": (give_to_everybody, PLAIN, "given twice: message"),
    "no lease ends": (end_no_lease, PLAIN, "late: message"),
    "keys hold nothing up": (FREE_ALL_KEYS, KEYED, "out of order: of key"),
}  # fmt: skip
"""A fault, its use, and the violation; none without a fault."""


@pytest.mark.parametrize(("fault", "kind", "sentence"), LEASE_FAULTS.values(), ids=LEASE_FAULTS)
async def test_a_fault_of_leases_is_noticed(tmp_path: Path, fault: Plant, kind: Parallel, sentence: str) -> None:
    use = acknowledge_late if fault is end_no_lease else use_leases
    found = await run_with_restart(tmp_path / "data", kind, use, fault, sentence)

    assert any(sentence in each for each in found) if sentence else found == [], found
