"""Restarts parts that have died, like systemd for nodes and brokers, and a cluster manager for PostgreSQL."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from local_cluster.processes import Process

RESTART_SECONDS = 2.0
"""Seconds from the end of a process to its restart, like supervisors of real machines."""
CHECK_SECONDS = 0.1


class Part(NamedTuple):
    """One process of a cluster."""

    name: str
    address: str
    process: Process


class Healable(Protocol):
    """A cluster for a caretaker."""

    def parts(self) -> Iterable[Part]:
        """Yield every process."""

    def in_use(self) -> bool:
        """Return whether the others use every part, as far as can be checked."""

    def heal(self, name: str, say: Callable[[str], None]) -> None:
        """Restart a dead part."""


class Caretaker:
    """Restarts dead parts of a cluster until the block ends; reports to `say`."""

    def __init__(self, cluster: Healable, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say
        self._ended = threading.Event()
        self._busy: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._look = threading.Thread(target=self._watch, name="caretaker")

    def __enter__(self) -> "Caretaker":
        self._look.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._look.join()
        for thread in self._threads:
            thread.join()

    def all_well(self) -> bool:
        """Return whether all parts run and are used."""
        alive = all(part.process.alive for part in self._cluster.parts())
        return alive and not self._busy and self._cluster.in_use()

    def wait_until_all_well(self, seconds: float) -> bool:
        """Wait until `all_well`, at most this long; return whether it is."""
        give_up = time.monotonic() + seconds
        while not self.all_well():
            if time.monotonic() > give_up or self._ended.wait(CHECK_SECONDS):
                return False
        return True

    def _watch(self) -> None:
        while not self._ended.wait(CHECK_SECONDS):
            for part in self._cluster.parts():
                if part.name not in self._busy and not part.process.alive:
                    self._begin(part)

    def _begin(self, part: Part) -> None:
        self._say(f"{part.name} has ended (its log: {part.process.log})")
        self._busy.add(part.name)
        thread = threading.Thread(target=self._heal, args=[part.name], name=f"healing {part.name}")
        self._threads.append(thread)
        thread.start()

    def _heal(self, name: str) -> None:
        """Wait, then restart a part; report a failure, to be retried."""
        began = time.monotonic()
        try:
            if not self._ended.wait(RESTART_SECONDS):
                self._cluster.heal(name, self._say)
                self._say(f"{name} is back after {time.monotonic() - began:.1f} s")
        except Exception as error:
            self._say(f"{name} could not be brought back: {error}")
        finally:
            self._busy.discard(name)
