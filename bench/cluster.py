"""The cluster shape: publish, pull and acknowledge through one node, with one Kafka broker and one PostgreSQL.

- Publish, against a bare loop of explicit batches, and against the embedded log.
- Pull at the tail, against the embedded log.
- Acknowledge in PostgreSQL, against bare statements.

The bare ones are a process of its own, as a node is: `python -m bench.cluster` reads a `Job` on stdin.
"""

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import msgspec
import psycopg
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench import preparing
from bench.callers import Acknowledge, Publish, Pull
from bench.processes import Failed, Service, answered
from bench.report import Result, at_least, percentile
from bench.run import Bench, compared, messages_per_second
from local_cluster.jars import CannotFetch
from local_cluster.kafka import Brokers
from local_cluster.postgres import Postgres
from local_cluster.processes import DidNotStart

HEAP_MB = 512
WARM_UP_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
LARGEST_BATCH = 16 * 2**20
CONNECTIONS, MANY_CONNECTIONS = 16, 64
TAIL = 20_000
"""Messages of 1 KiB in the topic."""
NEWEST = 100
"""Of these, backlog of the subscriptions at the tail."""
BATCH = 5000
"""Messages handed out at once and acknowledged one by one."""
SMALL = 64
OF_THE_STATEMENT = 10_000 / 35_000
"""The goal: 10,000 a second where the bare grouped statement moves 35,000 cursors."""


@dataclass(frozen=True)
class Parts:
    """A broker and a PostgreSQL server, and their addresses."""

    brokers: Brokers
    postgres: Postgres
    bench: Bench

    @contextlib.contextmanager
    def node(self) -> Iterator[Service]:
        """Run one node with a database and a Kafka prefix of its own."""
        name = f"bench_{secrets.token_hex(4)}"
        self.postgres.create_database(name)
        settings = {
            "log": "kafka",
            "kafka-servers": self.brokers.servers,
            "kafka-prefix": name,
            "kafka-replication": "1",
            "kafka-min-isr": "1",
            "registry": self.postgres.address(name),
            "registry-password": self.postgres.password,
            "token-key": secrets.token_hex(32),
        }
        with self.bench.service(*(f"--{setting}={value}" for setting, value in settings.items())) as running:
            yield running


@contextlib.contextmanager
def parts(bench: Bench) -> Iterator[Parts]:
    """Run a broker and a PostgreSQL; raises `Failed` with the reason when this machine cannot."""
    with bench.data_folder() as folder, broker(bench) as brokers, contextlib.ExitStack() as stack:
        try:
            postgres = stack.enter_context(Postgres(Path(folder) / "postgres"))
        except DidNotStart as error:
            raise Failed(str(error)) from error
        yield Parts(brokers, postgres, bench)


@contextlib.contextmanager
def broker(bench: Bench) -> Iterator[Brokers]:
    """Run a broker; raises `Failed` with the reason when this machine cannot."""
    with bench.data_folder() as folder, contextlib.ExitStack() as stack:
        try:
            brokers = stack.enter_context(Brokers(folder / "kafka", heap_mb=HEAP_MB))
        except (CannotFetch, DidNotStart) as error:
            raise Failed(str(error)) from error
        yield brokers


def cluster(bench: Bench) -> Iterator[Result]:
    """Yield results for publishing, pulling and acknowledging, each through a new node."""
    with parts(bench) as there:
        with there.node() as node:
            yield _against_batches(bench, there, node, _topics(node))
            yield _of_one(bench, node)
        with there.node() as node, bench.service() as embedded:
            yield _tail(bench, node, embedded)
        with there.node() as node:
            yield _acknowledged(bench, there, node)


def _topics(service: Service, project: str = "BENCH") -> list[str]:
    return preparing.topics(service, preparing.project(service, project), "publish", 1)


def _against_batches(bench: Bench, there: Parts, node: Service, topics: list[str]) -> Result:
    def bare_loop() -> float:
        work = Batches(there.brokers.servers, f"bare-{secrets.token_hex(4)}", CONNECTIONS, 100)
        return _compare(work, bench.plan.seconds).per_second

    pairs = bench.in_turn(
        f"publish 100 at {CONNECTIONS} connections",
        lambda: bench.load(node, Publish(topics, 100), CONNECTIONS),
        bare_loop,
    )
    params: dict[str, int | str] = {"messages": 100, "connections": CONNECTIONS}
    against = "messages/s of a bare loop of explicit batches"
    key = "bare_batches_messages_s"
    return compared("cluster-publish", params, pairs, key, against, at_least(0.4), messages_per_second, float)


def _of_one(bench: Bench, node: Service) -> Result:
    with bench.service() as embedded:
        ours, theirs = Publish(_topics(node, "single")), Publish(_topics(embedded))
        what = f"publish 1 at {MANY_CONNECTIONS} connections"
        pairs = bench.loads(what, (node, ours), (embedded, theirs), MANY_CONNECTIONS)
    params: dict[str, int | str] = {"messages": 1, "connections": MANY_CONNECTIONS}
    against = "requests/s of the embedded log"
    return compared("cluster-publish", params, pairs, "embedded_requests_s", against, at_least(0.5))


def _tail(bench: Bench, node: Service, embedded: Service) -> Result:
    ours, theirs = _at_the_tail(node), _at_the_tail(embedded)
    what = f"pull {NEWEST} at the tail, {CONNECTIONS} connections"
    pairs = bench.loads(what, (node, Pull(ours, NEWEST)), (embedded, Pull(theirs, NEWEST)), CONNECTIONS)
    params: dict[str, int | str] = {"messages": NEWEST, "connections": CONNECTIONS}
    against = "messages/s of the embedded log"
    return compared("cluster-pull", params, pairs, "embedded_messages_s", against, at_least(0.7), messages_per_second)


def _at_the_tail(service: Service) -> list[str]:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "tail", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, TAIL)
    preparing.seek(service, ((name, TAIL - NEWEST) for name in subscriptions))
    return subscriptions


def _acknowledged(bench: Bench, there: Parts, node: Service) -> Result:
    topics = preparing.topics(node, preparing.project(node, "BENCH"), "ack", 1)
    subscriptions = preparing.subscriptions(node, topics, MANY_CONNECTIONS)
    preparing.fill(node, topics, BATCH, size=SMALL)
    bare = Statements(there.postgres.url(), MANY_CONNECTIONS)
    pairs = bench.in_turn(
        f"acknowledge at {MANY_CONNECTIONS} connections",
        lambda: bench.load(node, Acknowledge(subscriptions, BATCH), MANY_CONNECTIONS),
        lambda: _compare(bare, bench.plan.seconds),
    )
    against, per_second = "cursors/s of the bare grouped statement", attrgetter("per_second")
    params: dict[str, int | str] = {"connections": MANY_CONNECTIONS}
    goal, key = at_least(OF_THE_STATEMENT), "bare_statement_cursors_s"
    return compared("cluster-ack", params, pairs, key, against, goal, of_theirs=per_second)


class Batches(msgspec.Struct, tag=True):
    """Callers publish requests of `per_request` messages of `size` bytes to a new topic of one broker.

    One batch is in flight; the whole requests that wait meanwhile are gathered into the next.
    """

    servers: str
    topic: str
    callers: int
    per_request: int
    size: int = 1024


class Statements(msgspec.Struct, tag=True):
    """A series of statements, each of which moves `rows` cursors if they have their last seen values."""

    url: str
    rows: int


class Job(msgspec.Struct):
    work: Batches | Statements
    seconds: float


class Measured(msgspec.Struct):
    """Messages or rows a second, and seconds of a batch or statement."""

    per_second: float
    p50: float
    p99: float


def _compare(work: Batches | Statements, seconds: float) -> Measured:
    return answered("bench.cluster", Job(work, seconds), Measured, PATIENCE_SECONDS + seconds)


async def _batches(work: Batches, seconds: float) -> Measured:
    admin = AIOKafkaAdminClient(bootstrap_servers=work.servers)
    await admin.start()
    wanted = {"max.message.bytes": str(LARGEST_BATCH), "message.timestamp.type": "LogAppendTime"}
    await admin.create_topics([NewTopic(work.topic, 1, 1, topic_configs=wanted)])
    await admin.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=work.servers,
        enable_idempotence=True,
        acks="all",
        max_batch_size=LARGEST_BATCH,
        max_request_size=LARGEST_BATCH + 2**20,
    )
    await producer.start()
    waiting: list[asyncio.Future[None]] = []
    came = asyncio.Event()

    async def call() -> None:
        """Publish one request after another; each is built anew, as in a node."""
        while True:
            waiting.append(asyncio.get_running_loop().create_future())
            came.set()
            await waiting[-1]

    async def send() -> int:
        await came.wait()
        came.clear()
        requests, waiting[:] = waiting[:], []
        value = bytes(work.size)
        batch = producer.create_batch()
        for _ in range(len(requests) * work.per_request):
            batch.append(key=None, value=value, timestamp=None, headers=[])
        batch.close()
        await (await producer.send_batch(batch, work.topic, partition=0))
        for each in requests:
            each.set_result(None)
        return len(requests) * work.per_request

    callers = [asyncio.create_task(call()) for _ in range(work.callers)]
    try:
        return await _measured(send, seconds)
    finally:
        for caller in callers:
            caller.cancel()
        await producer.stop()


MOVE = """
    UPDATE bare SET position = given.position, version = bare.version + 1
    FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS given (id, position, version)
    WHERE bare.id = given.id AND bare.version = given.version
    RETURNING bare.id, bare.version, clock_timestamp()
"""


async def _statements(work: Statements, seconds: float) -> Measured:
    connection = await psycopg.AsyncConnection.connect(work.url, autocommit=True, prepare_threshold=0)
    await connection.execute("CREATE TABLE IF NOT EXISTS bare (id int PRIMARY KEY, position bigint, version bigint)")
    await connection.execute("ALTER TABLE bare SET (fillfactor = 50)")
    await connection.execute("TRUNCATE bare")
    ids = list(range(work.rows))
    await connection.execute("INSERT INTO bare SELECT unnest(%s::int[]), 0, 0", [ids])
    version = 0

    async def move() -> int:
        nonlocal version
        found = await connection.execute(MOVE, [ids, [version + 1] * work.rows, [version] * work.rows])
        version += 1
        return len(await found.fetchall())

    try:
        return await _measured(move, seconds)
    finally:
        await connection.close()


async def _measured(ask: Callable[[], Awaitable[int]], seconds: float) -> Measured:
    """Repeat a call, and measure after the warm-up."""
    warm = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < warm:
        await ask()
    began, done, times = time.perf_counter(), 0, []
    while (asked := time.perf_counter()) < began + seconds:
        done += await ask()
        times.append(time.perf_counter() - asked)
    times.sort()
    return Measured(done / (time.perf_counter() - began), percentile(times, 50), percentile(times, 99))


if __name__ == "__main__":
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    measuring = _batches if isinstance(job.work, Batches) else _statements
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(measuring(job.work, job.seconds))))
