"""Three nodes share parallel subscriptions of three kinds; whichever is lost, the laws hold.

Nodes are killed, frozen for longer than they own anything, and stopped in order, in turn, while consumers ask any of
them, without a proxy that would ask another one for them: so what a node refuses was not done. A node that was lost
comes back. Google's clients have streams to whichever node answers them.
"""

import asyncio
import contextlib
import random
from pathlib import Path

import grpc
import pytest

from bench.connection import Address
from cluster.node import Node
from cluster.ports import LOOPBACK
from tests.cluster.nodes import processes
from tests.faults import recycling, scene
from tests.faults.cluster.calls import WORK, CallLog, Course
from tests.faults.cluster.client import Front, FrontClient
from tests.faults.cluster.promises import wrongly_refused
from tests.faults.history import History
from tests.faults.http_client import Traffic
from tests.faults.parallel import google, laws
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.workload import workers_of
from tests.faults.workload import Publisher
from tests.support.served import SERVICE_TOKEN

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.kafka, pytest.mark.postgres]

FROZEN_SECONDS = 6.0
"""For how long a node owns what it has without renewing that."""
WAYS = ("kill", "freeze", "drain")
STEADY = {"steady": parallel.TOPIC, "google-steady": google.TOPIC}


class Town:
    """The nodes, and who is lost."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
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


async def test_whichever_node_is_lost_the_laws_of_parallel_subscriptions_hold(tmp_path: Path) -> None:
    settings = {"pull_wait": "300ms", "drain_seconds": "500ms", "pubsub_emulator": "true"}
    chance, history = random.Random(7), History(STEADY)
    async with contextlib.AsyncExitStack() as stack:
        started = processes(tmp_path, 3, settings, program=recycling.__name__)
        town = Town(stack.enter_context(started))
        admin = town.client("admin", chance)
        workers = workers_of(parallel.KINDS, 2, lambda name: town.client(name, chance), history, chance)
        traffic = Traffic()
        streams = google.Streams(google.TOPIC, history, town.course.moment, traffic, chance)
        await scene.prepare(admin, STEADY)
        await parallel.prepare(admin)
        stack.push_async_callback(streams.stop)
        await streams.start(admin, lambda: town.channel(chance))
        async with asyncio.TaskGroup() as group:
            for topic in STEADY.values():
                client, own = town.client(f"p-{topic}", chance), random.Random(chance.random())
                publisher = Publisher(client, history, own, (topic,), ((1, 20),), 0.1, ordered=True)
                group.create_task(publisher.run())
            for worker in workers:
                group.create_task(worker.run())
            for node, way in zip(town.nodes, WAYS, strict=True):
                await asyncio.sleep(chance.uniform(0.5, 2.0))
                await town.lose(node, way)
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
    found += traffic.violations()
    found += wrongly_refused(town.log.calls)
    by_workers = worked(history.attempts, *(each.name for each in parallel.KINDS))
    messages = sum(len(each) for each in ending.topics.values())
    print(f"{by_workers} worked, {streams.worked} streamed, {streams.taken_over} taken over, {messages} messages")
    if found:
        with (tmp_path / "history.jsonl").open("w") as file:
            history.write(file)
    assert found == []
    assert streams.worked > 0
