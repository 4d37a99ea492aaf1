"""Three nodes share parallel subscriptions of three kinds; whichever is lost, the laws hold.

Nodes are killed, frozen for longer than they own anything, and stopped in order, in turn, while consumers ask any of
them, without a proxy that would ask another one for them: so what a node refuses was not done. A node that was lost
comes back. Google's clients have streams to whichever node answers them.
"""

import asyncio
import contextlib
import random
import secrets
import sys
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from bench.connection import Address
from cluster.node import Node
from cluster.ports import LOOPBACK
from tests.faults import scene
from tests.faults.cluster.calls import WORK, CallLog
from tests.faults.cluster.client import Front, FrontClient
from tests.faults.cluster.course import Course
from tests.faults.cluster.promises import wrongly_refused
from tests.faults.cluster.streams import Streams
from tests.faults.history import History
from tests.faults.parallel import google, laws, short_leases
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.workload import Worker, workers_of
from tests.faults.workload import Publisher
from tests.support.served import SERVICE_TOKEN

pytestmark = [pytest.mark.faults, pytest.mark.long]

FROZEN_SECONDS = 6.0
"""For how long a node owns what it has without renewing that."""
WAYS = ("kill", "freeze", "drain")
STEADY = {"steady": parallel.TOPIC, "google-steady": google.TOPIC}
"""Ordered subscriptions that nobody uses."""


class Town:
    """The nodes, and who is lost."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.nodes = [Node(f"node{number}", folder, settings) for number in range(3)]
        for each in self.nodes:
            each.process.command = [sys.executable, "-m", short_leases.__name__, "serve"]
        self.log = CallLog()
        self.course = Course(parallel.TOPIC)
        self._away: set[str] = set()
        """Nodes that clients are told to leave alone, as a proxy does."""

    def client(self, name: str, chance: random.Random) -> FrontClient:
        """Return a client that asks any node, each time another one."""
        generator = random.Random(chance.random())

        def front() -> Front:
            node = generator.choice([each for each in self.nodes if each.name not in self._away])
            return Front(Address.of(node.url), SERVICE_TOKEN, sends_again=False)

        return FrontClient(name, front, self.log, WORK)

    def channel(self, chance: random.Random) -> grpc.Channel:
        """Return a way of Google's clients to the first node that answers."""
        ports = [each.pubsub_port for each in self.nodes]
        places = ",".join(f"{LOOPBACK}:{port}" for port in chance.sample(ports, len(ports)))
        return google.plain(f"ipv4:{places}")

    async def lose(self, node: Node, way: str) -> None:
        """Lose a node in one way, and have it come back."""
        self.course.begin()
        if way == "drain":
            self._away.add(node.name)
            await asyncio.to_thread(node.drain)
        elif way == "freeze":
            node.freeze()
            await asyncio.sleep(1.0)  # until a proxy notices
            self._away.add(node.name)
            await asyncio.sleep(FROZEN_SECONDS)
            node.thaw()
            self.course.release()
        else:
            node.kill()
            self._away.add(node.name)
            await asyncio.sleep(1.0)
        if way != "freeze":
            await asyncio.to_thread(node.start)
        self._away.discard(node.name)


@pytest.mark.parametrize("seed", [7])
async def test_whichever_node_is_lost_the_laws_of_parallel_subscriptions_hold(
    tmp_path: Path, kafka_servers: str, kafka_prefix: str, postgres_url: str, seed: int
) -> None:
    url = urlsplit(postgres_url)
    assert url.password is not None
    settings = {
        "log": "kafka",
        "kafka_servers": kafka_servers,
        "kafka_prefix": kafka_prefix,
        "kafka_replication": "1",
        "kafka_min_isr": "1",
        "registry": url._replace(netloc=f"{url.username}@{url.hostname}:{url.port}").geturl(),
        "registry_password": url.password,
        "token_key": secrets.token_hex(32),
        "service_token": SERVICE_TOKEN,
        "log_level": "warning",
        "pull_wait": "300ms",
        "drain_seconds": "500ms",
        "pubsub_emulator": "true",
    }
    chance = random.Random(seed)
    town = Town(tmp_path, settings)
    history = History(STEADY)
    admin = town.client("admin", chance)
    workers = workers_of(parallel.KINDS, 2, lambda name: town.client(name, chance), history, chance)
    streams = Streams(google.TOPIC, history, town.course, chance)
    publishers = [
        Publisher(
            town.client(f"p-{topic}", chance), history, random.Random(chance.random()), (topic,), ((1, 20),), 0.1,
            ordered=True,
        )
        for topic in STEADY.values()
    ]  # fmt: skip
    async with contextlib.AsyncExitStack() as stack:
        for each in town.nodes:
            stack.callback(each.kill)
            each.launch()
        for each in town.nodes:
            await asyncio.to_thread(each.wait_ready)
        await scene.prepare(admin, STEADY)
        await parallel.prepare(admin)
        stack.push_async_callback(streams.stop)
        await streams.start(admin, lambda: town.channel(chance))
        users: list[Publisher | Worker] = [*publishers, *workers]
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(user.run())
            for number in range(6):
                await asyncio.sleep(chance.uniform(0.5, 2.0))
                await town.lose(town.nodes[number % 3], WAYS[(number + number // 3) % 3])
            town.log.stopping = True
        await parallel.drain(workers)
        await streams.work_to_the_end(admin)
        ending = await scene.ending(admin, STEADY)
        left, left_of_streams = await parallel.ending(admin), await parallel.ending(admin, streams.kinds)
    found = [
        each
        for kind in laws.with_more_attempts(parallel.KINDS)
        for each in laws.violations(kind, ending.topics[parallel.TOPIC], history.attempts, left)
    ]
    found += streams.violations(ending.topics[google.TOPIC], history.attempts, left_of_streams)
    found += wrongly_refused(town.log.calls)
    by_workers = worked(history.attempts, *(each.name for each in parallel.KINDS))
    messages = sum(len(each) for each in ending.topics.values())
    print(f"{by_workers} worked, {streams.worked} streamed, {streams.taken_over} taken over, {messages} messages")
    if found:
        with (tmp_path / "history.jsonl").open("w") as file:
            history.write(file)
    assert found == []
    assert streams.worked > 0
