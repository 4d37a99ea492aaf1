"""One run: a scenario played in a world of its own, and what of it broke a law."""

import asyncio
import contextlib
import gc
import os
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from simulation.clients import SimClient, Traffic
from simulation.faults import Faults
from simulation.histories.parallel_laws import Parallel
from simulation.histories.scene import is_at_end
from simulation.laws import broken_laws, left_over
from simulation.node import PULL_WAIT_SECONDS, Node, settings_for
from simulation.process import SimProcess
from simulation.scenario import OF_THE_CLOCK, PROFILES, PROJECTS, SLOWING, Operation, Scenario
from simulation.seams import installed
from simulation.workload import Actor, Stage
from simulation.world import World

MAX_EVENTS = 3_000_000
START_SECONDS = 120.0  # until the service has to be ready when nothing goes wrong any more
DRAIN_SECONDS = 600.0
ROOT = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - a sync costs nothing there


@dataclass
class Result:
    """What came of a scenario."""

    scenario: Scenario
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    trace: list[str] = field(default_factory=list)
    events: int = 0
    requests: Counter[str] = field(default_factory=Counter)  # by outcome
    kills: int = 0
    power_cuts: int = 0
    seconds: float = 0.0  # of simulated time


def run(scenario: Scenario, *, keeps_trace: bool = False) -> Result:
    """Play a scenario; raises nothing."""
    world = World(scenario.seed, PROFILES[scenario.profile], keeps_trace=keeps_trace)
    result, traffic = Result(scenario), Traffic()
    with _folder() as folder, _without_collections():
        node = Node(world, folder, settings_for(folder))
        faults = Faults(node)
        with installed(world, node.note):
            clients = SimProcess(world, "clients")
            try:
                play = _Play(scenario, node, faults, traffic)
                result.violations += clients.run(play.run(), MAX_EVENTS)
                node.stop_for_good()
            except Exception as caught:
                error: BaseException = caught
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                places = traceback.extract_tb(error.__traceback__)
                said = " < ".join(f"{each.name}:{each.lineno}" for each in reversed(places[-4:]))
                result.violations.append(f"broke off: {type(error).__name__}: {error} ({said})")
                if node.life is not None:
                    node.disk.halt()
                    node.life.die()
            clients.die()
        result.violations += [*traffic.violations, *node.defects, *node.left, *clients.troubles]
    result.digest, result.trace, result.events = world.trace.digest(), world.trace.lines, world.trace.count
    result.requests, result.seconds = traffic.answers, world.now
    result.kills, result.power_cuts = faults.kills, faults.power_cuts
    return result


class _Play:
    def __init__(self, scenario: Scenario, node: Node, faults: Faults, traffic: Traffic) -> None:
        self._scenario, self._node, self._faults, self._traffic = scenario, node, faults, traffic
        kinds = {each.kind for each in scenario.faults}
        has_pauses, self._has_right_clock = bool(kinds & SLOWING), not kinds & OF_THE_CLOCK
        self._stages = [Stage(project, node, traffic, has_pauses) for project in PROJECTS]

    async def run(self) -> list[str]:
        node = self._node
        node.boot()
        admins = [self._client(f"{stage.project}-admin", stage) for stage in self._stages]
        for stage, admin in zip(self._stages, admins, strict=True):
            await stage.prepare(admin)
        began = node.world.now
        async with asyncio.TaskGroup() as group:
            for number in range(self._scenario.clients):
                operations = [each for each in self._scenario.operations if each.client == number]
                group.create_task(self._act(number, operations, began))
        self._faults.cease()
        await self._until_ready()
        violations: list[str] = []
        for stage, admin in zip(self._stages, admins, strict=True):
            last = Actor(stage, admin, random.Random(stage.project), is_first=False)
            await last.look()
            if self._has_right_clock:
                await last.read_brief()
            await self._drain(stage)
            violations += [f"project {stage.project}: {each}" for each in await broken_laws(stage, admin)]
            admin.close()
        await asyncio.sleep(PULL_WAIT_SECONDS)
        return [*violations, *left_over(node)]

    async def _act(self, number: int, operations: list[Operation], began: float) -> None:
        stage = self._stages[number % len(self._stages)]
        client = self._client(f"{stage.project}-c{number}", stage)
        for each in operations:
            await asyncio.sleep(began + each.at - self._node.world.now)
            for fault in self._scenario.faults:
                if fault.operation == each.seed:
                    self._faults.schedule(fault.delay, fault.kind, fault.seed)
            actor = Actor(stage, client, random.Random(each.seed), number < len(self._stages))
            await actor.perform(each.kind)
        client.close()

    async def _until_ready(self) -> None:
        until = self._node.world.now + START_SECONDS
        while self._node.service is None:
            if self._node.world.now > until:
                raise AssertionError("liveness: the service is not ready although nothing goes wrong any more")
            await asyncio.sleep(0.1)

    async def _drain(self, stage: Stage) -> None:
        """Work until nothing is left of the parallel subscriptions."""
        async with asyncio.TaskGroup() as group:
            for kind in stage.kinds:
                group.create_task(self._drain_one(stage, kind))

    async def _drain_one(self, stage: Stage, kind: Parallel) -> None:
        world = self._node.world
        client = self._client(f"{stage.project}-drain-{kind.name}", stage)
        worker = Actor(stage, client, random.Random(kind.name), is_first=False).worker(kind.name)
        until = world.now + DRAIN_SECONDS
        while world.now < until:
            if not await worker.work():
                if await is_at_end(client, kind.name):
                    break
                await asyncio.sleep(0.5)
        else:
            self._traffic.violations.append(f"liveness: {kind.name} never came to its end")
        client.close()

    def _client(self, name: str, stage: Stage) -> SimClient:
        chance = random.Random(f"{self._scenario.seed} {name}")
        return SimClient(name, self._node, self._traffic, stage.project, chance)


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    root = tempfile.mkdtemp(prefix="ams-world-", dir=ROOT)
    try:
        yield os.path.join(root, "node")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Let nothing be finalized at a moment that the run before decides."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
