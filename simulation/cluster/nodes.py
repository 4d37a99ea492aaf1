"""The machines of a cluster: nodes, PostgreSQL, Kafka, and clients that a proxy sends to one node after the other."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

# Loaded before seams are installed, so that they get the world's time and threads.
import ams.storage.cursors.postgresql
import ams.storage.database.postgresql
import ams.storage.log.kafka.log
from ams.core.settings import Settings
from simulation.clients import SimClient, SimConnection
from simulation.histories.client import Tried
from simulation.models import kafka_client, postgresql_driver
from simulation.models.kafka import Cluster
from simulation.models.kafka_world import BrokerAddress, SimBrokers
from simulation.models.postgresql import Server
from simulation.models.postgresql_world import SimHost
from simulation.node import PORT, Node, settings_for
from simulation.process import SimProcess
from simulation.seams import START_OF_TIME, LogEvent
from simulation.world import World

assert ams.storage.cursors.postgresql
assert ams.storage.database.postgresql
assert ams.storage.log.kafka.log

NODES, BROKERS = 3, (1, 2, 3)
KAFKA_PORT = 9092
AFTERWARDS_SECONDS = 20.0  # errors in this time may still come from a fault
TOKEN_KEY = bytes(range(32)).hex()


class ClusterNode(Node):
    """A node, and its connections to PostgreSQL and Kafka."""

    def __init__(self, shared: "Machines", number: int, folder: str) -> None:
        self.port, self.name = PORT + 1 + number, f"node{number}-"
        super().__init__(shared.world, folder, shared.settings(number, folder))
        self._shared = shared

    def note(self, event: LogEvent) -> None:
        """Check a line of the service's log. Requests may fail while a fault lasts."""
        if event.get("event") != "request.failed" or not self._shared.has_disk_faults:
            super().note(event)

    def lose_connections(self, life: SimProcess, hear_after: float | None = None) -> None:
        """Close all connections of a process, also to PostgreSQL and Kafka."""
        super().lose_connections(life, hear_after)
        self._shared.postgresql.end(life, hear_after)
        self._shared.brokers.end_of(life)


class Machines:
    """All machines. Clients see one service, behind a proxy that takes nodes in turn."""

    port = PORT

    def __init__(self, world: World, folder: str) -> None:
        self.world, self.folder = world, folder
        os.makedirs(folder)
        self.server = Server(folder, lambda: int((START_OF_TIME + world.now) * 1000))
        self.postgresql = SimHost(world.network, self.server)
        cluster = Cluster(
            BROKERS,
            lambda: START_OF_TIME + world.now,
            lambda seconds, work: world.after(seconds, work, "kafka"),
            world.chance.uniform,
        )
        self.brokers = SimBrokers(world.network, cluster)
        self.nodes = [ClusterNode(self, number, os.path.join(folder, f"node{number}")) for number in range(NODES)]
        self.starts: list[float] = []  # stays empty: a restart forgets nothing about ordered subscriptions
        self.ends: list[float] = []  # stays empty: another node may do a request much later
        self.troubled_until = 0.0
        self._turns = itertools.count()
        world.network.proxies[PORT] = self._next_port

    def settings(self, number: int, folder: str) -> Settings:
        """Return the settings of a node."""
        return settings_for(
            folder,
            port=PORT + 1 + number,
            log="kafka",
            kafka_servers=",".join(f"kafka{each}:{KAFKA_PORT}" for each in BROKERS),
            registry="postgresql://ams@postgresql:5432/ams",
            node_url=f"http://10.0.0.1:{PORT + 1 + number}",
            token_key=TOKEN_KEY,
        )

    @property
    def has_disk_faults(self) -> bool:
        """True while a fault lasts and shortly after it: requests may be refused then."""
        return self.world.now < self.troubled_until

    @property
    def service(self) -> Any:
        """The service of the first node; None unless all serve."""
        return self.nodes[0].service if all(node.service is not None for node in self.nodes) else None

    @property
    def defects(self) -> list[str]:
        """Defects and leaks of all nodes."""
        return [f"{node.name}: {each}" for node in self.nodes for each in (*node.defects, *node.leaks)]

    def boot(self) -> None:
        """Start all nodes, half a second apart."""
        for number, node in enumerate(self.nodes):
            self.world.after(number * 0.5, node.boot, "start")

    def note(self, event: LogEvent) -> None:
        """Check a line of a service's log."""
        machine = SimProcess.running().machine
        next(node for node in self.nodes if node.name == machine).note(event)

    def trouble(self, seconds: float) -> None:
        """Note a fault that lasts this many seconds."""
        self.troubled_until = max(self.troubled_until, self.world.now + seconds + AFTERWARDS_SECONDS)

    @contextlib.contextmanager
    def connect_nodes(self) -> Iterator[None]:
        """Connect nodes to PostgreSQL and Kafka of this world until the block ends."""
        brokers = {(f"kafka{each}", KAFKA_PORT): BrokerAddress(self.brokers, each) for each in BROKERS}
        with (
            postgresql_driver.install({"postgresql": self.postgresql}),
            kafka_client.install(brokers),
            mock.patch("secrets.randbits", self.world.chance.getrandbits),
        ):
            yield

    def _next_port(self) -> int:
        """Return the port of the next listening node."""
        first = next(self._turns)
        ports = [self.nodes[(first + place) % NODES].port for place in range(NODES)]
        return next((port for port in ports if self.world.network.is_listening(port)), ports[0])


class ClusterClient(SimClient):
    """A client whose proxy sends requests to nodes in turn, over kept connections."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._kept: list[SimConnection] = []

    async def ask(self, name: str, path: str, body: object, **more: Any) -> tuple[Tried, int]:
        """Make one attempt, at the next node."""
        self._kept = [each for each in self._kept if not each.closed]
        self._connection = self._kept.pop(0) if len(self._kept) >= NODES else None
        answer = await super().ask(name, path, body, **more)
        if self._connection is not None:
            self._kept.append(self._connection)
            self._connection = None
        return answer

    def close(self) -> None:
        """Close all connections."""
        super().close()
        for each in self._kept:
            each.close()
        self._kept.clear()
