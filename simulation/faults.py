"""Faults of a world with one node."""

import errno
import random
from collections.abc import Callable

from simulation.node import DISK_BYTES, Node
from simulation.world import Event

LASTING_SECONDS = (0.2, 8.0)
PAUSE_SECONDS = (0.01, 15.0)
CLOCK_SECONDS = (-600.0, 600.0)  # steps of the time of day
DRIFT = (-1e-3, 1e-3)
SLOWNESS = 5.0
CALLS = ("sync", "sync", "write", "open", "sync_folder", "rename", "unlink", "truncate")


class Faults:
    """The faults of one run."""

    def __init__(self, node: Node) -> None:
        self._node, self._world = node, node.world
        self._coming: list[Event] = []
        self.kills = self.power_cuts = 0
        self._faults: dict[str, Callable[[random.Random], None]] = {
            "kill": lambda _: self._crash(power=False),
            "power cut": lambda _: self._crash(power=True),
            "stop": lambda _: node.stop(),
            "cut connections": self._cut_connections,
            "slow network": self._slow_network,
            "slow disk": self._slow_disk,
            "pause": lambda chance: node.pause(chance.uniform(*PAUSE_SECONDS)),
            "set the clock": self._set_clock,
            "drift": self._drift,
            "failing disk": self._fail_disk,
            "full disk": self._fill_disk,
            "cold cache": self._cool,
        }

    def schedule(self, seconds: float, kind: str, seed: int) -> None:
        """Schedule a fault in this many seconds."""
        chance = random.Random(seed)
        self._after(seconds, lambda: self._faults[kind](chance), f"fault: {kind}")

    def cease(self) -> None:
        """End all faults. The service restarts if its disk failed."""
        node = self._node
        for each in self._coming:
            each.cancel()
        self._calm()
        node.disk.cold = False
        node.clock.drift = 0.0
        if node.has_disk_faults:
            self._repair()

    def _after(self, seconds: float, action: Callable[[], None], label: str) -> None:
        self._coming.append(self._world.after(seconds, action, label))

    def _crash(self, *, power: bool) -> None:
        if self._node.life is not None:
            self.power_cuts += power
            self.kills += not power
        self._node.crash(power=power)

    def _cut_connections(self, chance: random.Random) -> None:
        ends = list(self._world.network.open)
        for each in chance.sample(ends, min(len(ends), chance.randint(1, 4))):
            self._world.network.break_connection(each)

    def _slow_network(self, chance: random.Random) -> None:
        self._world.network.slowness = SLOWNESS
        self._after(chance.uniform(*LASTING_SECONDS), self._calm, "the network is fast again")

    def _slow_disk(self, chance: random.Random) -> None:
        self._node.disk.slowness = SLOWNESS
        self._after(chance.uniform(*LASTING_SECONDS), self._calm, "the disk is fast again")

    def _calm(self) -> None:
        self._world.network.slowness = self._node.disk.slowness = 1.0

    def _set_clock(self, chance: random.Random) -> None:
        self._node.clock.offset += chance.uniform(*CLOCK_SECONDS)

    def _drift(self, chance: random.Random) -> None:
        clock, now, before = self._node.clock, self._world.now, self._node.clock.drift
        clock.drift = chance.uniform(*DRIFT)
        clock.offset += now * (before - clock.drift)  # keeps the time of day continuous

    def _fail_disk(self, chance: random.Random) -> None:
        disk = self._node.disk
        self._node.has_disk_faults = True
        disk.fail(
            chance.choice(CALLS),
            chance.choice((errno.EIO, errno.ENOSPC)),
            after=chance.randint(0, 12),
            times=chance.choice((1, 1, 2, 3, 100)),
            where=chance.choice(("", ".log", ".idx", ".img", "/cursors/", "registry.db")),
        )
        self._after(chance.uniform(*LASTING_SECONDS), self._repair, "the disk is repaired")

    def _fill_disk(self, chance: random.Random) -> None:
        self._node.has_disk_faults = True
        self._node.disk.leave(chance.choice((0, 1000, 100_000)))
        self._after(chance.uniform(*LASTING_SECONDS), self._repair, "the disk is repaired")

    def _repair(self) -> None:
        node = self._node
        node.disk.capacity = DISK_BYTES
        self._crash(power=False)
        if node.life is not None:  # its event loop waits for a thread: try again later
            self._after(0.01, self._repair, "the disk is repaired")
            return
        node.disk.heal()
        node.has_disk_faults = False

    def _cool(self, _: random.Random) -> None:
        self._node.disk.cold = not self._node.disk.cold
