"""Faults of a cluster."""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

from simulation.cluster.nodes import BROKERS, Machines
from simulation.faults import CLOCK_SECONDS, DRIFT, SLOWNESS
from simulation.models.postgresql_world import MACHINE as POSTGRESQL
from simulation.world import Event

FAULTS: Mapping[str, int] = MappingProxyType(
    {
        "kill": 5, "power cut": 4, "stop": 2, "pause": 4, "cut connections": 3, "slow network": 2, "drift": 1,
        "set the clock": 1, "part from postgresql": 4, "part from kafka": 3, "part nodes": 3, "fail over": 4,
        "end sessions": 3, "stop a broker": 4, "move leaders": 3,
    }
)  # fmt: skip
"""Faults and their weights."""

LASTING_SECONDS = (0.2, 14.0)  # some shorter than a lease, some longer
PAUSE_SECONDS = (0.01, 20.0)


class ClusterFaults:
    """The faults of one run."""

    def __init__(self, machines: Machines) -> None:
        self._machines, self._world, self._network = machines, machines.world, machines.world.network
        self._coming: list[Event] = []
        self.kills = self.power_cuts = self.partitions = 0
        self._faults: dict[str, Callable[[random.Random], None]] = {
            "kill": lambda chance: self._crash(chance, power=False),
            "power cut": lambda chance: self._crash(chance, power=True),
            "stop": lambda chance: chance.choice(machines.nodes).stop(),
            "pause": lambda chance: chance.choice(machines.nodes).pause(chance.uniform(*PAUSE_SECONDS)),
            "cut connections": self._cut_connections,
            "slow network": self._slow_network,
            "drift": self._drift,
            "set the clock": self._set_clock,
            "part from postgresql": lambda chance: self._part(chance, (POSTGRESQL,)),
            "part from kafka": lambda chance: self._part(chance, chance.sample(_KAFKA, chance.randint(1, 3))),
            "part nodes": lambda chance: self._part(chance, [each.name for each in machines.nodes]),
            "fail over": self._fail_over,
            "end sessions": self._end_sessions,
            "stop a broker": self._stop_broker,
            "move leaders": self._move_leaders,
        }

    def schedule(self, seconds: float, kind: str, seed: int) -> None:
        """Schedule a fault in this many seconds."""
        chance = random.Random(seed)

        def begin() -> None:
            self._machines.trouble(LASTING_SECONDS[1])
            self._faults[kind](chance)

        self._after(seconds, begin, f"fault: {kind}")

    def cease(self) -> None:
        """End all faults."""
        for each in self._coming:
            each.cancel()
        self._network.slowness = 1.0
        self._network.join_all()
        if self._machines.server.is_away:
            self._machines.server.come_back()
        for number in BROKERS:
            self._start_broker(number)
        for node in self._machines.nodes:
            node.clock.drift = 0.0
        self._machines.trouble(0.0)

    def _after(self, seconds: float, action: Callable[[], None], label: str) -> None:
        self._coming.append(self._world.after(seconds, action, label))

    def _crash(self, chance: random.Random, *, power: bool) -> None:
        node = chance.choice(self._machines.nodes)
        if node.life is not None:
            self.power_cuts += power
            self.kills += not power
        node.crash(power=power)

    def _cut_connections(self, chance: random.Random) -> None:
        ends = list(self._network.open)
        for each in chance.sample(ends, min(len(ends), chance.randint(1, 4))):
            self._network.break_connection(each)

    def _slow_network(self, chance: random.Random) -> None:
        self._network.slowness = SLOWNESS

        def calm() -> None:
            self._network.slowness = 1.0

        self._after(chance.uniform(*LASTING_SECONDS), calm, "the network is fast again")

    def _drift(self, chance: random.Random) -> None:
        clock, now = chance.choice(self._machines.nodes).clock, self._world.now
        before, clock.drift = clock.drift, chance.uniform(*DRIFT)
        clock.offset += now * (before - clock.drift)

    def _set_clock(self, chance: random.Random) -> None:
        chance.choice(self._machines.nodes).clock.offset += chance.uniform(*CLOCK_SECONDS)

    def _part(self, chance: random.Random, others: "tuple[str, ...] | list[str]") -> None:
        """Partition a node from others for a while."""
        name = chance.choice(self._machines.nodes).name
        self.partitions += 1
        for other in others:
            if other != name:
                self._network.part(name, other)
                seconds = chance.uniform(*LASTING_SECONDS)
                self._after(seconds, lambda other=other: self._network.join(name, other), "joined")  # type: ignore[misc]

    def _fail_over(self, chance: random.Random) -> None:
        server = self._machines.server
        if server.is_away:
            return
        server.go_away()
        forgets = chance.random() < 0.5
        back = chance.uniform(0.1, 12.0)
        self._after(back, lambda: server.come_back(forgets_numbers=forgets), "postgresql is back")

    def _end_sessions(self, chance: random.Random) -> None:
        sessions = list(self._machines.server.sessions.values())
        for session in chance.sample(sessions, len(sessions) // 2):
            session.end()

    def _stop_broker(self, chance: random.Random) -> None:
        number = chance.choice(BROKERS)
        if not self._machines.brokers.cluster.brokers[number]:
            return
        self._machines.brokers.stop(number)
        self._after(chance.uniform(*LASTING_SECONDS), lambda: self._start_broker(number), "a broker is back")

    def _start_broker(self, number: int) -> None:
        if not self._machines.brokers.cluster.brokers[number]:
            self._machines.brokers.start(number)

    def _move_leaders(self, chance: random.Random) -> None:
        cluster = self._machines.brokers.cluster
        topics = list(cluster.topics.values())
        for topic in chance.sample(topics, len(topics) // 2):
            cluster.move(topic)


_KAFKA = tuple(f"kafka{number}" for number in BROKERS)
