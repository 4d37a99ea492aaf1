"""One run of a cluster: plays a scenario in a world of its own and returns the violations."""

import asyncio
from typing import Any, cast

from simulation.clients import Traffic
from simulation.cluster.faults import FAULTS, ClusterFaults
from simulation.cluster.nodes import ClusterClient, Machines
from simulation.histories.parallel_laws import with_more_attempts
from simulation.laws import left_over
from simulation.process import SimProcess
from simulation.running import Play, Result, broke_off, folder_of_a_run, without_collections
from simulation.scenario import BY_GOOGLE, BY_PUSH, OF_THE_CLOCK, OPERATIONS, PROFILES, Scenario, scenario_of
from simulation.seams import install_seams
from simulation.workload import Stage
from simulation.world import World

SLOWING = frozenset(FAULTS) - OF_THE_CLOCK
"""Faults after which no deadline holds."""
NOT_PLAYED = BY_GOOGLE | BY_PUSH | frozenset({"back up", "let time pass"})
"""Operations left out: models lack some, and idle time is expensive, as nodes ask PostgreSQL three times a second."""
_OPERATIONS = {name: weight for name, weight in OPERATIONS.items() if name not in NOT_PLAYED}
LEASES_SECONDS = 8.0  # until other nodes may own what a lost node owned
SPREADING_SECONDS = 1.5  # until every node knows of a change
SETTLING_SECONDS = 60.0  # a request may wait for a way between machines and for a machine that stands still
MAX_EVENTS = 20_000_000


def cluster_scenario_of(seed: int, hours: float = 0.0) -> Scenario:
    """Make a scenario of several nodes."""
    return scenario_of(seed, hours, all_operations=_OPERATIONS, all_faults=FAULTS)


def run_cluster(scenario: Scenario, *, keeps_trace: bool = False, covers: bool = False) -> Result:
    """Play a scenario on three nodes; raises nothing. With `covers` the result says which points crashes have met."""
    world = World(scenario.seed, PROFILES[scenario.profile], keeps_trace=keeps_trace)
    result, traffic = Result(scenario), Traffic()
    with folder_of_a_run() as folder, without_collections():
        machines = Machines(world, folder)
        faults = ClusterFaults(machines)
        if covers:
            for node in machines.nodes:
                node.met = result.met
        with install_seams(world, machines.note), machines.connect_nodes():
            clients = SimProcess(world, "clients")
            try:
                result.violations += clients.run(_ClusterPlay(scenario, machines, faults, traffic).run(), MAX_EVENTS)
                for node in machines.nodes:
                    node.stop_for_good()
            except Exception as error:
                result.violations.append(broke_off(error))
                for node in machines.nodes:
                    if node.life is not None:
                        node.life.die()
            clients.die()
        result.violations += [*traffic.violations, *machines.defects, *clients.troubles]
    result.take(world, traffic)
    result.kills, result.power_cuts, result.partitions = faults.kills, faults.power_cuts, faults.partitions
    return result


class _ClusterPlay(Play):
    client_type = ClusterClient
    slowing = SLOWING

    def __init__(self, scenario: Scenario, machines: Machines, faults: ClusterFaults, traffic: Traffic) -> None:
        super().__init__(scenario, cast("Any", machines), cast("Any", faults), traffic)  # the machines stand for a node
        self._machines = machines
        for stage in self._stages:
            stage.spreading_seconds, stage.settling_seconds = SPREADING_SECONDS, SETTLING_SECONDS

    async def prepare(self, admin: ClusterClient, stage: Stage) -> None:  # type: ignore[override]
        """Create the permanent resources once all nodes serve."""
        await self._until_ready()
        await super().prepare(admin, stage)

    async def _until_ready(self) -> None:
        await super()._until_ready()
        await asyncio.sleep(LEASES_SECONDS)

    async def drain(self, stage: Stage) -> None:
        """Drain the backlog. Leases of a lost node are redelivered more often."""
        await super().drain(stage)
        stage.kinds = tuple(with_more_attempts(stage.kinds))

    def leaks(self) -> list[str]:
        """Return leases and waiting pulls that are left at any node."""
        return [f"{node.name}: {each}" for node in self._machines.nodes for each in left_over(node, deliveries=0)]


__all__ = ["cluster_scenario_of", "run_cluster"]
