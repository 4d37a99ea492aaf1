"""The cluster under test: three brokers, PostgreSQL with two standbys, three nodes and haproxy, all on loopback.

The third node reaches brokers and database by links that can be cut and delayed; the others reach them directly.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
from aiokafka.admin import AIOKafkaAdminClient

from bench.connection import Address
from local_cluster.link import Link
from local_cluster.local import Cluster
from local_cluster.node import Node
from local_cluster.ports import LOOPBACK
from tests.faults import recycling
from tests.faults.cluster.clients import Front
from tests.faults.parallel import google
from tests.support.waiting import wait_until_async

FAR_NODE = "node3"
SETTINGS = {"kafka_prefix": "faults", "pull_wait": "1s", "log_level": "warning"}

_OWNERS = """
SELECT url FROM leases JOIN lease_holders USING (holder) JOIN subscriptions ON id = subscription_id
WHERE leases.kind = 'parallel' AND name LIKE %s GROUP BY url ORDER BY count(*) DESC
"""


class ClusterSite:
    """All parts of the cluster, to start, break one by one, and repair."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, linked=[FAR_NODE], more=SETTINGS, quick=True, program=recycling.__name__)
        self.brokers = self.cluster.brokers
        self.postgres = self.cluster.postgres
        self.haproxy = self.cluster.haproxy

    @property
    def nodes(self) -> Sequence[Node]:
        """Return the nodes, the one behind the links last."""
        return list(self.cluster.nodes.values())

    @property
    def kafka_links(self) -> Sequence[Link]:
        return self.cluster.kafka_links(FAR_NODE)

    @property
    def database_links(self) -> Sequence[Link]:
        return self.cluster.database_links(FAR_NODE)

    @property
    def token(self) -> str:
        return self.cluster.token_file.read_text().strip()

    @property
    def front(self) -> Front:
        tls = ssl.create_default_context(cafile=self.cluster.ca)
        return Front(Address(LOOPBACK, self.haproxy.port), self.token, tls)

    def channel(self) -> grpc.Channel:
        trust = grpc.ssl_channel_credentials(self.cluster.ca.read_bytes())
        bearer = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(self.token))
        return grpc.secure_channel(self.haproxy.pubsub, bearer, options=google.RECONNECT_OPTIONS)

    async def make_whole(self) -> None:
        """Restart dead parts, and return when the cluster is healthy: all replicas in sync, all nodes up in haproxy."""
        await asyncio.to_thread(self._restart_what_is_down)

        async def is_well() -> bool:
            return set(self.haproxy.states().values()) == {"UP"} and await self._all_in_sync()

        await wait_until_async(is_well)

    def _restart_what_is_down(self) -> None:
        for link in (*self.kafka_links, *self.database_links):
            link.restore()
        self.brokers.restart(*(number for number in self.brokers.numbers if not self.brokers.process(number).alive))
        for number in self.postgres.numbers:
            if not self.postgres.process(number).alive:
                self.postgres.rejoin(number)
        for node in self.nodes:
            if not node.process.alive:
                node.start()

    async def _all_in_sync(self) -> bool:
        async with self._admin() as admin:
            topics = await admin.describe_topics()
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        return all(len(partition["isr"]) == len(partition["replicas"]) for partition in partitions)

    async def leader(self, topic: str) -> int:
        async with self._admin() as admin:
            [name] = [each for each in await admin.list_topics() if f".{topic}." in each]
            [described] = await admin.describe_topics([name])
        return int(described["partitions"][0]["leader"])

    def owner(self, names: str) -> Node | None:
        """Return the node that owns most parallel subscriptions with this prefix; None if no node owns any."""
        with self.postgres.open_connection() as connection:
            found = connection.execute(_OWNERS, (f"{names}%",)).fetchone()
        return next((node for node in self.nodes if found and node.url == found[0]), None)

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers.servers, request_timeout_ms=5000)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()
