"""Brings back what has died, as systemd does for nodes and brokers, and a cluster manager for PostgreSQL."""

import threading
import time
from collections.abc import Callable, Mapping

from cluster.local import Cluster

REST = 2.0
"""Seconds from the end of a process to its restart: as long as supervisors of real machines take."""
LOOK = 0.1


class Caretaker:
    """Looks after a cluster until the block ends; reports to `say` what it does."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
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
        """Tell whether everything runs and haproxy sends requests to every node."""
        alive = all(part.process.alive for part in self._cluster.parts())
        return alive and not self._busy and set(self._cluster.haproxy.states().values()) == {"UP"}

    def wait_until_all_well(self, seconds: float) -> bool:
        """Wait until `all_well`, at most so long, and tell whether it came to that."""
        give_up = time.monotonic() + seconds
        while not self.all_well():
            if time.monotonic() > give_up or self._ended.wait(LOOK):
                return False
        return True

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            for name, heal in self._cures().items():
                if name not in self._busy:
                    self._begin(name, heal)

    def _cures(self) -> Mapping[str, Callable[[], None]]:
        """Return for each part that is dead what brings it back."""
        return {part.name: self._cure(part.name) for part in self._cluster.parts() if not part.process.alive}

    def _cure(self, name: str) -> Callable[[], None]:
        kind, _, number = name.partition(" ")
        if kind == "broker":
            return lambda: self._cluster.brokers.restart(int(number))
        if kind == "postgres":
            return lambda: self._cure_postgres(int(number))
        if kind == "haproxy":
            return self._cluster.haproxy.start
        return self._cluster.nodes[name].start

    def _cure_postgres(self, number: int) -> None:
        postgres = self._cluster.postgres
        if number != postgres.primary:
            return postgres.restart(number)
        self._say(f"postgres {postgres.promote()} takes writes now")
        return postgres.rejoin(number)

    def _begin(self, name: str, heal: Callable[[], None]) -> None:
        self._busy.add(name)
        thread = threading.Thread(target=self._heal, args=(name, heal), name=f"healing {name}")
        self._threads.append(thread)
        thread.start()

    def _heal(self, name: str, heal: Callable[[], None]) -> None:
        """Rest, then bring a part back; when that fails, say so, and it is tried again."""
        began = time.monotonic()
        try:
            if not self._ended.wait(REST):
                heal()
                self._say(f"{name} is back after {time.monotonic() - began:.1f} s")
        except Exception as error:
            self._say(f"{name} could not be brought back: {error}")
        finally:
            self._busy.discard(name)
