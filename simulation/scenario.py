"""Turns a seed into a scenario: operations and faults with their times.

A run depends on its scenario only, so it can be repeated. A scenario without some of its parts is a scenario too: so a
failing one is shrunk. Each seed takes only some of the operations and faults (swarm testing), so that rare ones also
meet without the others.
"""

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from simulation.world import Latencies

PROJECTS = ("A", "B")

OPERATIONS: Mapping[str, int] = MappingProxyType(
    {
        "publish": 10, "publish with a key": 5, "publish many": 2, "publish ordered": 6, "publish brief": 2,
        "consume": 10, "wait and consume": 3, "seek": 2, "work": 12, "wait and work": 3, "work late": 4,
        "read brief": 1, "back up": 1,
        "churn a topic": 4, "churn a subscription": 4, "use what is new": 5, "change access": 2, "look": 2,
        "publish again": 2, "read a range": 1, "move": 8, "change a schema": 3, "publish checked": 2,
        "change a list": 4, "change a login": 3, "publish to push": 4, "work by Google": 5, "stream by Google": 3,
        "publish by Google": 3, "let time pass": 1,
    }
)  # fmt: skip
"""Operations and their weights."""

FAULTS: Mapping[str, int] = MappingProxyType(
    {
        "kill": 5, "power cut": 5, "stop": 1, "cut connections": 4, "slow network": 2, "slow disk": 2, "pause": 2,
        "set the clock": 1, "drift": 1, "failing disk": 2, "full disk": 1, "cold cache": 1,
    }
)  # fmt: skip

OF_THE_CLOCK = frozenset({"set the clock", "drift"})
BY_GOOGLE = frozenset({"work by Google", "stream by Google", "publish by Google"})
OF_BRIEF = frozenset({"publish brief", "read brief"})
OF_SCHEMAS = frozenset({"change a schema", "publish checked"})
BY_PUSH = frozenset({"publish to push"})
BY_THE_CLOCK = frozenset({"seek", "read brief", "publish again"})
"""Operations that need a correct clock: grace after a restart, retention, lifetime of idempotency keys."""
AIM_SECONDS = (0.002, 0.008, 0.03)  # mean delays from the start of an operation to a fault, one chosen for each seed
SLOWING = frozenset({"pause", "slow disk", "slow network", "failing disk", "full disk"})
"""Faults after which no deadline holds."""

PROFILES: Mapping[str, Latencies] = MappingProxyType(
    {
        "usual": Latencies(),
        "slow disk": Latencies(disk=(100e-6, 3e-3), sync=(5e-3, 60e-3)),
        "late threads": Latencies(wake=(5e-6, 10e-3)),
        "far clients": Latencies(network=(5e-3, 80e-3)),
        "slow interpreter": Latencies(callback=(20e-6, 900e-6)),
    }
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client, with its earliest start."""

    at: float
    client: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  client {self.client}: {self.kind} [{self.seed}]"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, a delay after the start of an operation."""

    operation: int  # the seed of the operation
    delay: float
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.delay:+13.6f} s  FAULT: {self.kind} [{self.seed}]"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The complete input of a run."""

    seed: int
    profile: str
    clients: int
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]

    def without(self, operations: frozenset[int] = frozenset(), faults: frozenset[int] = frozenset()) -> "Scenario":
        """Return a copy without the parts at these indexes."""
        return dataclasses.replace(
            self,
            operations=tuple(each for place, each in enumerate(self.operations) if place not in operations),
            faults=tuple(each for place, each in enumerate(self.faults) if place not in faults),
        )

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its operations."""
        return frozenset(each.kind for each in self.operations)

    def has(self, kinds: frozenset[str]) -> bool:
        """Return whether an operation of these kinds is in it."""
        return bool(self.kinds & kinds)

    def story(self) -> str:
        """Return it as lines: operations by time, each with its faults."""
        lines = []
        for operation in self.operations:
            faults = sorted((each for each in self.faults if each.operation == operation.seed), key=lambda it: it.delay)
            lines += [str(operation), *map(str, faults)]
        return "\n".join(lines)


def scenario_of(
    seed: int,
    hours: float = 0.0,
    *,
    all_operations: Mapping[str, int] = OPERATIONS,
    all_faults: Mapping[str, int] = FAULTS,
) -> Scenario:
    """Make a scenario; `hours`: span of its operations, 0 for some seconds."""
    chance = random.Random(f"scenario {seed}")
    kinds = _some(chance, all_operations, least=4)
    faults = _some(chance, all_faults, least=1)
    if faults.keys() & OF_THE_CLOCK:
        kinds = {name: weight for name, weight in kinds.items() if name not in BY_THE_CLOCK}
    clients = chance.randint(2, 7)
    length = hours * 3600 or chance.choice((0.5, 2.0, 8.0, 30.0))
    aim = chance.choice(AIM_SECONDS)
    operations = [
        Operation(round(chance.uniform(0, length), 3), chance.randrange(clients), kind, chance.randrange(2**32))
        for kind in _draw_kinds(chance, kinds, chance.choice((20, 60, 120, 200)))
    ]
    operations.sort(key=lambda each: each.at)
    wrong = [
        Fault(chance.choice(operations).seed, round(chance.expovariate(1 / aim), 6), kind, chance.randrange(2**32))
        for kind in _draw_kinds(chance, faults, chance.choice((0, 2, 4, 8, 16)))
    ]
    return Scenario(seed, chance.choice(list(PROFILES)), clients, tuple(operations), tuple(wrong))


def _some(chance: random.Random, kinds: Mapping[str, int], least: int) -> dict[str, int]:
    """Return some of these, or all, with their weights."""
    names = chance.sample(list(kinds), chance.randint(least, len(kinds))) if chance.random() < 0.7 else list(kinds)
    return {name: kinds[name] for name in names}


def _draw_kinds(chance: random.Random, kinds: Mapping[str, int], count: int) -> list[str]:
    return chance.choices(list(kinds), list(kinds.values()), k=count)
