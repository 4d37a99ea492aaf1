"""Parallel subscriptions: many consumers of one backlog, what a lease costs, and a start with half a million holes."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from ams.client import Client, wire
from ams.core.names import Offset
from ams.storage.cursors.acks import Change
from ams.storage.cursors.sqlite import SqliteCursors
from bench import leases, preparing
from bench.callers import Consume, Lease
from bench.processes import Failed, Service
from bench.report import Result, at_least, at_most, progress
from bench.run import Bench, compared, messages_per_second

CONNECTIONS = 16
PULL = 100
SMALL = 64
"""Bytes of the messages of which a million is stored."""
SLICE = 1000
"""Acknowledgements that are stored at once."""
HAND_OUTS = (100, 1)


def parallel(bench: Bench) -> Iterator[Result]:
    """Yield all results."""
    yield _shared(bench)
    for each in HAND_OUTS:
        yield from _leases(each)
    yield from _restarted(bench)


def _shared(bench: Bench) -> Result:
    """Sixteen consumers of one parallel subscription, against sixteen of an ordered one each."""
    with bench.service() as service:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "parallel", 1)
        ordered = preparing.subscriptions(service, [topic], CONNECTIONS, "ordered")
        shared = preparing.subscriptions(service, [topic], 1, "parallel", parallel=True)
        preparing.fill(service, [topic], bench.plan.backlog)
        preparing.spread(service, ordered, bench.plan.backlog)
        pairs = bench.loads(
            f"pull {PULL} and acknowledge each at {CONNECTIONS} connections, one parallel subscription or ordered ones",
            (service, Lease(shared, PULL)),
            (service, Consume(ordered, PULL)),
            CONNECTIONS,
        )
    params: dict[str, int | str] = {"messages": PULL, "connections": CONNECTIONS}
    against = "messages/s of as many ordered subscriptions"
    return compared("parallel", params, pairs, "ordered_messages_s", against, at_least(0.5), messages_per_second)


def _leases(each: int) -> Iterator[Result]:
    """Yield what leases cost, by hand-outs of so many messages."""
    progress(f"  {leases.OUT} messages on lease, given {each} at a time")
    found = leases.costs(each)
    params: dict[str, int | str] = {"leases": leases.OUT, "hand_out": each}
    yield Result(
        "parallel-lease",
        params,
        {
            "lease_bytes": found.lease_bytes,
            "tuple_bytes": found.tuple_bytes,
            "hole_bytes": found.hole_bytes,
            "lease_us": found.lease_us,
            "ack_us": found.ack_us,
        },
        found.lease_bytes / found.tuple_bytes,
        "bytes of a tuple in a dictionary",
        at_most(2),
    )
    yield Result(
        "parallel-look",
        params,
        {"look_us": found.look_us, "few_look_us": found.few_look_us},
        found.look_us / found.few_look_us,
        f"times slower than with {leases.OUT // 100} leases",
        at_most(1.5),
    )


def _restarted(bench: Bench) -> Iterator[Result]:
    """A start after kill -9 with every second message acknowledged, against one with none."""
    messages = bench.plan.acknowledged
    with bench.data_folder() as plain, bench.data_folder() as holes:
        _prepare(plain, messages)
        shutil.copytree(plain, holes, ignore=shutil.ignore_patterns("control"))
        before = _cursors_bytes(holes)
        asyncio.run(_acknowledge_every_second(holes, messages))
        disk = _cursors_bytes(holes) - before
        pairs = bench.in_turn(
            f"kill -9 and start with {messages} messages, without acknowledgements and with every second one",
            lambda: _started(plain, 1),
            lambda: _started(holes, 2),
        )
    ready = [(with_holes[0], without[0]) for without, with_holes in pairs]
    first = [(with_holes[1], without[1]) for without, with_holes in pairs]
    yield Result(
        "parallel-start",
        {"messages": messages, "acknowledged": messages // 2},
        {
            "seconds": median(each for each, _ in ready),
            "plain_seconds": median(each for _, each in ready),
            "first_pull_seconds": median(each for each, _ in first),
            "plain_first_pull_seconds": median(each for _, each in first),
            "disk_bytes_each": disk / (messages // 2),
        },
        median(with_holes / without for with_holes, without in ready),
        "start without acknowledgements",
        at_most(1.5),
    )


def _prepare(data: Path, messages: int) -> None:
    """Fill a topic that has a parallel subscription, from which somebody has pulled; kill the service."""
    progress(f"  publishing {messages} messages")
    service = Service(data)
    [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "holes", 1)
    preparing.subscriptions(service, [topic], 1, parallel=True)
    preparing.fill(service, [topic], messages, size=SMALL)
    _first_pull(service)
    service.kill()


def _started(data: Path, step: int) -> tuple[float, float]:
    """Start and kill it; return the seconds until it was ready, and of the first pull, which gives every `step`-th."""
    service = Service(data)
    began = perf_counter()
    given = _first_pull(service)
    seconds = perf_counter() - began
    service.kill()
    if not given or given != list(range(0, step * len(given), step)):
        raise Failed(f"the first pull gave {given[:5]} ... instead of every {step}. message")
    return service.seconds_to_ready, seconds


def _first_pull(service: Service) -> list[int]:
    with Client(service.url, service.token) as client:
        [subscription] = client.call(wire.list_subscriptions("BENCH")).subscriptions
        name = subscription.name.rpartition("/")[2]
        pulled = client.call(wire.pull("BENCH", name, max_messages=PULL, wait=False))
        return [int(each.message.message_id) for each in pulled.received_messages]


async def _acknowledge_every_second(data: Path, messages: int) -> None:
    """Store acknowledgements as the service does: it would have to give the others away to be asked for so many."""
    cursors = await SqliteCursors.open(str(data / "cursors.db"), ends={})
    try:
        [(subscription, place)] = [each for each in (await cursors.places()).items() if "-" in each[0]]
        progress_ = await cursors.take_over(subscription, place.topic)
        for first in range(0, messages, SLICE):
            done = [(Offset(each), Offset(each + 1)) for each in range(first + 1, first + SLICE, 2)]
            if not await cursors.settle(subscription, progress_.epoch, progress_.run, Change(done)):
                raise Failed("acknowledgements could not be stored")
    finally:
        await cursors.close()


def _cursors_bytes(data: Path) -> int:
    return sum(each.stat().st_size for each in data.glob("cursors.db*"))
