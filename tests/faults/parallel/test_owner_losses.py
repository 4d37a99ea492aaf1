"""Three nodes share parallel subscriptions of three kinds; whichever is lost, the laws hold.

Nodes are killed, frozen for longer than they own anything, and stopped in order, in turn, while consumers ask any of
them. A node that was lost comes back.
"""

import asyncio
import contextlib
import json
import random
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.connection import CLOSED, Address, Connection, Response, SerialClient, connect, request
from cluster.node import Node
from tests.faults import scene
from tests.faults.attempts import Facts, Outcome
from tests.faults.history import History
from tests.faults.http_client import LATE, PROJECT, Kind, Tried
from tests.faults.parallel import laws, short_leases
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.workload import Worker
from tests.faults.workload import Publisher
from tests.support.served import SERVICE_TOKEN

pytestmark = [pytest.mark.faults, pytest.mark.long]

ANSWER_SECONDS = 20.0
OWNED_SECONDS = 6.0
MORE_ATTEMPTS = 5
WAYS = ("kill", "freeze", "drain")
STEADY = {"steady": parallel.TOPIC}
"""An ordered subscription that nobody uses."""


class Asked:
    """A client that asks any node, each time another one."""

    def __init__(self, name: str, town: "Town", seed: random.Random) -> None:
        self._name, self._town, self._random = name, town, seed
        self._connections: dict[str, Connection] = {}
        self._numbers = 0

    @property
    def goes_on(self) -> bool:
        return not self._town.stopping

    def next_request(self) -> str:
        self._numbers += 1
        return f"{self._name}-{self._numbers}"

    async def attempt(
        self,
        request_name: str,
        path: str,
        body: object,
        kind: Kind = Kind.OTHER,
        *,
        method: str = "POST",
        **headers: str,
    ) -> Tried:
        encoded = json.dumps(body).encode() if body is not None else b""
        while (connection := await self._connected()) is None:
            await asyncio.sleep(0.02)
        started = time.monotonic()
        answer = await self._ask(connection, request(method, PROJECT + path, SERVICE_TOKEN, encoded, **headers))
        outcome, ended = Outcome.DONE, time.monotonic()
        text = ""
        if answer.status in (CLOSED, 500):  # nobody knows whether, or when
            outcome, ended = Outcome.UNKNOWN, float("inf")
        elif answer.status != 200:
            outcome, text = Outcome.REFUSED, str(json.loads(answer.body)["error"]["message"])
            said = LATE if text.startswith(LATE) else text
            self._town.refusals[f"{answer.status} {said}"] += 1
        document = json.loads(answer.body) if outcome is Outcome.DONE and answer.body else None
        return Tried(Facts(request=request_name, started=started, ended=ended, outcome=outcome), document, text)

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        for _ in range(300):
            tried = await self.attempt(self.next_request(), path, body, method=method)
            if tried.done:
                return tried.document
            await asyncio.sleep(0.1)
        raise AssertionError(f"{method} {path} was never answered with success: {dict(self._town.refusals)}")

    def close(self) -> None:
        for each in self._connections.values():
            each.close()

    async def _connected(self) -> Connection | None:
        node = self._random.choice(self._town.nodes)
        if node.name in self._town.away:
            return None
        kept = self._connections.get(node.name)
        if kept is not None and not kept.closed:
            return kept
        with contextlib.suppress(OSError):
            self._connections[node.name] = await connect(Address.of(node.url))
            return self._connections[node.name]
        return None

    async def _ask(self, connection: Connection, pieces: tuple[bytes, ...]) -> Response:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await SerialClient(connection).ask(pieces)
        except TimeoutError:
            answer = Response(CLOSED)
        if answer.status == CLOSED:
            connection.close()
        return answer


class Town:
    """The nodes, and who is lost."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.nodes = [Node(f"node{number}", folder, settings) for number in range(3)]
        for each in self.nodes:
            each.process.command = [sys.executable, "-m", short_leases.__name__, "serve"]
        self.away: set[str] = set()
        """Nodes that clients are told to leave alone, as a proxy does."""
        self.stopping = False
        self.refusals: Counter[str] = Counter()
        self.lost_at: list[tuple[float, float]] = []
        """From when until when subscriptions may have gone to other nodes."""

    async def lose(self, node: Node, way: str) -> None:
        """Lose a node in one way, and have it come back."""
        began = time.monotonic()
        if way == "drain":
            self.away.add(node.name)
            await asyncio.to_thread(node.drain)
        elif way == "freeze":
            node.freeze()
            await asyncio.sleep(1.0)  # until a proxy notices
            self.away.add(node.name)
            await asyncio.sleep(OWNED_SECONDS)
            node.thaw()
        else:
            node.kill()
            self.away.add(node.name)
            await asyncio.sleep(1.0)
        if way != "freeze":
            await asyncio.to_thread(node.start)
        self.away.discard(node.name)
        self.lost_at.append((began, time.monotonic() + OWNED_SECONDS + 2.0))

    def restarts(self) -> list[float]:
        """Return moments at which leases may have been forgotten, a few in each millisecond of it."""
        return [begin + step / 500 for begin, end in self.lost_at for step in range(int((end - begin) * 500))]


def judged(kind: laws.Parallel) -> laws.Parallel:
    """Return what a subscription is held to: what a frozen node was just putting aside comes again meanwhile."""
    return kind._replace(most_attempts=kind.most_attempts + MORE_ATTEMPTS)


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
    }
    chance = random.Random(seed)
    town = Town(tmp_path, settings)
    history = History(STEADY)

    def client(name: str) -> Asked:
        return Asked(name, town, random.Random(chance.random()))

    admin = client("admin")
    workers = [
        Worker(client(f"{each.name}-w{number}"), history, random.Random(chance.random()), each.name)
        for each in parallel.KINDS
        for number in range(2)
    ]
    publisher = Publisher(
        client("p"), history, random.Random(chance.random()), (parallel.TOPIC,), ((1, 20),), 0.1, ordered=True
    )
    with contextlib.ExitStack() as stack:
        for each in town.nodes:
            stack.callback(each.kill)
            each.launch()
        for each in town.nodes:
            await asyncio.to_thread(each.wait_ready)
        await scene.prepare(admin, STEADY)
        await parallel.prepare(admin)
        async with asyncio.TaskGroup() as group:
            for user in (publisher, *workers):
                group.create_task(user.run())
            for number in range(6):
                await asyncio.sleep(chance.uniform(0.5, 2.0))
                await town.lose(town.nodes[number % 3], WAYS[(number + number // 3) % 3])
            town.stopping = True
        await parallel.drain(workers)
        ending = await scene.ending(admin, STEADY)
        parallel_ending = await parallel.ending(admin)
    held, restarts = ending.topics[parallel.TOPIC], town.restarts()
    found = [
        each
        for kind in parallel.KINDS
        for each in laws.violations(judged(kind), held, history.attempts, parallel_ending, restarts)
    ]
    print(f"{len(history.attempts)} attempts, {len(held)} messages, {dict(town.refusals)}")
    assert found == []
