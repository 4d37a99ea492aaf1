"""Comparators of the `cluster` case: Kafka and PostgreSQL, asked with as little code as possible.

`python -m bench.cluster_bare` reads a `Job` on stdin, asks for so many seconds, and writes a `Measured` to stdout. It
is a process of its own, as a node is.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import psycopg
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.processes import answered
from bench.report import percentile

WARM_UP_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
LARGEST_BATCH = 16 * 2**20


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
    """Statements, one after another, each of which moves `rows` cursors if they are as they were last seen."""

    url: str
    rows: int


class Job(msgspec.Struct):
    """Work of the comparator, and its duration."""

    work: Batches | Statements
    seconds: float


class Measured(msgspec.Struct):
    """Messages or rows a second, and seconds of a batch or statement."""

    per_second: float
    p50: float
    p99: float


def run_comparator(job: Job) -> Measured:
    """Run the comparator; raises `Failed`."""
    return answered("bench.cluster_bare", job, Measured, PATIENCE_SECONDS + job.seconds)


async def _ask(job: Job) -> Measured:
    match job.work:
        case Batches():
            return await _batches(job.work, job.seconds)
        case Statements():
            return await _statements(job.work, job.seconds)


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
        """Publish one request after another; what it holds is made anew, as a node makes it of each request."""
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
    """Ask again and again; nothing of the warm-up counts."""
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
    sys.stdout.buffer.write(
        msgspec.json.encode(uvloop.run(_ask(msgspec.json.decode(sys.stdin.buffer.read(), type=Job))))
    )
