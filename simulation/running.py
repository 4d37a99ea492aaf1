"""One run: plays a scenario in a world of its own and returns the violations."""

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

from ams.core.settings import Settings
from simulation import backups
from simulation.clients import SimClient, Traffic
from simulation.faults import Faults
from simulation.histories.parallel_laws import Parallel
from simulation.histories.scene import is_at_end
from simulation.laws import broken_laws, left_over
from simulation.node import PUBSUB_PORT, PULL_WAIT_SECONDS, Node, settings_for
from simulation.operations import pushing
from simulation.process import SimProcess
from simulation.scenario import BY_GOOGLE, BY_PUSH, OF_THE_CLOCK, PROFILES, PROJECTS, SLOWING, Operation, Scenario
from simulation.seams import install_seams
from simulation.sqlite_files import sqlite_files
from simulation.workload import Actor, Stage
from simulation.world import World

MAX_EVENTS = 3_000_000
START_SECONDS = 120.0  # until the service must be ready once faults have ended
DRAIN_SECONDS = 600.0
CALM_SECONDS = 20.0  # deadline for any answer once faults have ended
ROOT = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - a sync costs nothing there


@dataclass
class Result:
    """Result of a scenario."""

    scenario: Scenario
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    trace: list[str] = field(default_factory=list)
    events: int = 0
    requests: Counter[str] = field(default_factory=Counter)  # by outcome
    kills: int = 0
    power_cuts: int = 0
    partitions: int = 0
    seconds: float = 0.0  # of simulated time
    met: Counter[str] = field(default_factory=Counter)  # crash coverage, if asked for

    def take(self, world: World, traffic: Traffic) -> None:
        """Record the outcome of a run."""
        self.digest, self.trace, self.events = world.trace.digest(), world.trace.lines, world.trace.count
        self.requests, self.seconds = traffic.answers, world.now


def broke_off(caught: BaseException) -> str:
    """Return the violation of a run that raised an exception."""
    error = caught
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    places = traceback.extract_tb(error.__traceback__)
    said = " < ".join(f"{each.name}:{each.lineno}" for each in reversed(places[-4:]))
    return f"broke off: {type(error).__name__}: {error} ({said})"


def run(scenario: Scenario, *, keeps_trace: bool = False, covers: bool = False) -> Result:
    """Play a scenario; raises nothing. With `covers` the result has the crash coverage."""
    world = World(scenario.seed, PROFILES[scenario.profile], keeps_trace=keeps_trace)
    result, traffic = Result(scenario), Traffic()
    with folder_of_a_run() as folder, without_collections():
        node = Node(world, folder, _settings(scenario, folder))
        faults = Faults(node)
        if covers:
            node.met = result.met
        with (
            install_seams(world, node.note, answers_google=scenario.has(BY_GOOGLE)),
            sqlite_files().mount(folder, node.disk),
        ):
            clients = SimProcess(world, "clients")
            try:
                play = Play(scenario, node, faults, traffic)
                result.violations += clients.run(play.run(), MAX_EVENTS)
                node.stop_for_good()
            except Exception as error:
                result.violations.append(broke_off(error))
                if node.life is not None:
                    node.disk.halt()
                    node.life.die()
            clients.die()
        result.violations += [*traffic.violations, *node.defects, *node.leaks, *clients.troubles]
    result.take(world, traffic)
    result.kills, result.power_cuts = faults.kills, faults.power_cuts
    return result


def _settings(scenario: Scenario, folder: str) -> Settings:
    changes: dict[str, object] = {}
    if scenario.has(BY_GOOGLE):
        changes |= {"pubsub_port": PUBSUB_PORT, "trusted_proxies": pushing.ALLOWED}
    if scenario.has(BY_PUSH):
        changes |= {"push_enabled": True, "push_allow": pushing.ALLOWED}
    return settings_for(folder, **changes)


class Play:
    """A scenario in play: its clients, its faults, and its end."""

    client_type = SimClient
    slowing = SLOWING

    def __init__(self, scenario: Scenario, node: Node, faults: Faults, traffic: Traffic) -> None:
        self._scenario, self._node, self._faults, self._traffic = scenario, node, faults, traffic
        kinds = {each.kind for each in scenario.faults}
        has_pauses, has_right_clock = bool(kinds & self.slowing), not kinds & OF_THE_CLOCK
        self._stages = [
            Stage(project, node, traffic, has_pauses, has_right_clock, uses=scenario.kinds) for project in PROJECTS
        ]

    async def run(self) -> list[str]:
        """Play it to its end; return the violations."""
        node = self._node
        node.boot()
        admins = [self._client(f"{stage.project}-admin", stage) for stage in self._stages]
        for stage, admin in zip(self._stages, admins, strict=True):
            await self.prepare(admin, stage)
        began = node.world.now
        async with asyncio.TaskGroup() as group:
            for number in range(self._scenario.clients):
                operations = [each for each in self._scenario.operations if each.client == number]
                group.create_task(self._act(number, operations, began))
        self._faults.cease()
        await self._until_ready()
        self._traffic.patience = CALM_SECONDS
        violations: list[str] = []
        for stage, admin in zip(self._stages, admins, strict=True):
            await stage.end(admin)
            await self.drain(stage)
            violations += [f"project {stage.project}: {each}" for each in await broken_laws(stage, admin)]
            admin.close()
        await asyncio.sleep(PULL_WAIT_SECONDS)
        if copy := next((stage.copy for stage in self._stages if stage.copy is not None), None):
            violations += await backups.broken_laws(copy, node, self._stages, self._traffic)
        return [*violations, *self.leaks()]

    async def prepare(self, admin: SimClient, stage: Stage) -> None:
        """Create the permanent resources."""
        await stage.prepare(admin)

    def leaks(self) -> list[str]:
        """Return leases and waiting pulls that are left although the backlog is empty."""
        deliveries = sum(len(stage.shadow(pushing.Pushed).receivers) for stage in self._stages)
        return list(left_over(self._node, deliveries))

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

    async def drain(self, stage: Stage) -> None:
        """Drain the backlog of the parallel subscriptions."""
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
        return self.client_type(name, self._node, self._traffic, stage.project, chance)


@contextlib.contextmanager
def folder_of_a_run() -> Iterator[str]:
    """Make a temporary folder for one run, in memory where possible."""
    root = tempfile.mkdtemp(prefix="ams-world-", dir=ROOT)
    try:
        yield os.path.join(root, "node")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection, whose moments would depend on the run before."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
