"""The cluster under fire: three brokers, PostgreSQL with two standbys, three nodes and haproxy, all on loopback.

The third node reaches brokers and database by links that can be cut and held; the others reach them directly.
"""

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient

from bench.connection import Address
from cluster.certificates import Authority
from cluster.haproxy import Backend, Haproxy
from cluster.kafka import Brokers
from cluster.link import Link
from cluster.node import Node
from cluster.ports import LOOPBACK
from cluster.postgres import Postgres
from tests.faults.cluster.client import Front

NODES = BROKERS = (1, 2, 3)
FAR = 3
"""The node behind the links."""
WAY = "FAR"
"""Its way to the brokers."""
HEALTHY_SECONDS = 60.0
SETTINGS = {
    "log": "kafka",
    "kafka_prefix": "faults",
    "kafka_replication": "3",
    "kafka_min_isr": "2",
    "pull_wait": "1s",
    "min_free_bytes": "0",
    "reserve_bytes": "0",
    "log_level": "warning",
}


class Site:
    """All parts of it, to be started, broken one by one, and made whole again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brokers = Brokers(folder / "kafka", len(BROKERS), ways=[WAY])
        self.postgres = Postgres(folder / "postgres", standbys=2)
        self.postgres_links = {number: Link(self.postgres.port(number)) for number in self.postgres.numbers}
        self._token_key = secrets.token_hex(32)
        self.nodes = {number: self.node(number) for number in NODES}
        self._authority = Authority(folder / "certificates")
        backends = [Backend(node.name, node.port, node.ops_port) for node in self.nodes.values()]
        self.haproxy = Haproxy(folder / "haproxy", backends, self._authority.sign("haproxy").both)

    @property
    def kafka_links(self) -> Sequence[Link]:
        """Return the third node's links to the brokers, in their order."""
        return self.brokers.links(WAY)

    @property
    def ca(self) -> str:
        """Return the file of the CA that haproxy's certificate is signed by."""
        return str(self._authority.ca)

    @property
    def front(self) -> Front:
        """Return where clients come in."""
        tls = ssl.create_default_context(cafile=self.ca)
        return Front(Address(LOOPBACK, self.haproxy.port), self.token, tls)

    @property
    def token(self) -> str:
        """Return the token of the first administrator."""
        return self.nodes[1].token_file.read_text().strip()

    def node(self, number: int, *, clock_off: float = 0.0) -> Node:
        """Return a node that is not started yet; `clock_off` is by how many seconds its time of day is wrong."""
        return Node(f"node{number}", self.folder, self._settings(number), clock_off=clock_off)

    def start(self) -> None:
        """Start everything; raises `DidNotStart`."""
        for link in self.postgres_links.values():
            link.start()
        with ThreadPoolExecutor() as pool:
            for part in [pool.submit(self.brokers.start), pool.submit(self.postgres.start)]:
                part.result()
            self.nodes[1].start()  # it makes the tables and the first administrator
            for part in [pool.submit(self.nodes[number].start) for number in NODES[1:]]:
                part.result()
        self.haproxy.start()

    def stop(self) -> None:
        """End everything without ceremony."""
        self.haproxy.stop()
        for node in self.nodes.values():
            node.kill()
        self.brokers.stop()
        self.postgres.stop()
        for link in self.postgres_links.values():
            link.stop()

    async def make_whole(self) -> None:
        """Start again what is down, and return when all is well: all copies there, all nodes taken by haproxy."""
        await asyncio.to_thread(self._restart_what_is_down)
        async with asyncio.timeout(HEALTHY_SECONDS):
            while not (await self._all_in_sync() and self._all_up()):
                await asyncio.sleep(0.2)

    def _restart_what_is_down(self) -> None:
        for link in (*self.kafka_links, *self.postgres_links.values()):
            link.restore()
        self.brokers.restart(*(number for number in BROKERS if not self.brokers.process(number).alive))
        for number in self.postgres.numbers:
            if not self.postgres.process(number).alive:
                self.postgres.rejoin(number)
        for node in self.nodes.values():
            if not node.process.alive:
                node.start()

    def _all_up(self) -> bool:
        states = self.haproxy.states()
        return len(states) == len(NODES) and set(states.values()) == {"UP"}

    async def _all_in_sync(self) -> bool:
        async with self._admin() as admin:
            topics = await admin.describe_topics()
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        return all(len(partition["isr"]) == len(partition["replicas"]) for partition in partitions)

    async def leader(self, topic: str) -> int:
        """Return the number of the broker that leads a topic of the project."""
        async with self._admin() as admin:
            [name] = [each for each in await admin.list_topics() if f".{topic}." in each]
            [described] = await admin.describe_topics([name])
        return int(described["partitions"][0]["leader"])

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers.servers, request_timeout_ms=5000)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def _settings(self, number: int) -> dict[str, str]:
        far = number == FAR
        ports = [self.postgres_links[each].port for each in self.postgres.numbers] if far else None
        return {
            **SETTINGS,
            "kafka_servers": self.brokers.servers_by(WAY) if far else self.brokers.servers,
            "registry": self.postgres.address(ports=ports),
            "registry_password": self.postgres.password,
            "token_key": self._token_key,
        }
