"""Publish: 1 message a request at 16 and 64 connections, 100 at 16, and 1 of a lone caller.

Against the bare handler, which answers without storing, and raw appends, which store without answering: the slower of
the two is the upper limit.

Raw appends are a process of their own, `python -m bench.publish`: as many writers hand over a record each and wait; one
thread writes the records behind one another and syncs once. There is no HTTP, no JSON, no check and no checksum.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import uvloop

from bench import preparing
from bench.callers import Publish
from bench.kernel import Syncs, appends
from bench.load import Outcome
from bench.processes import Server, Service, answered
from bench.report import Goal, Result, at_least, at_most
from bench.run import Bench, figures, middle, p99, requests_per_second, server_microseconds

SEGMENT_BYTES = 256 * 2**20
"""The file starts again at this size, as the service starts a new segment."""
PATIENCE_SECONDS = 60.0
WARM_UP_SECONDS = 0.3
MESSAGE_BYTES = 1383
"""Bytes of a message of 1 KiB in the log: its base64 with the field's name, its length, its share of a record."""
REQUEST_BYTES = 12


class RawJob(msgspec.Struct):
    folder: str
    writers: int
    size: int
    """Bytes of a record."""
    seconds: float


def stored_bytes(messages: int) -> int:
    """Return what the service stores for a request of so many messages of 1 KiB, about."""
    return messages * MESSAGE_BYTES + REQUEST_BYTES


def raw_appends_per_second(folder: Path, writers: int, messages: int, seconds: float) -> float:
    """Return the maximum rate of stored requests of so many messages of 1 KiB; raises `Failed`."""
    job = RawJob(str(folder), writers, stored_bytes(messages), seconds)
    return answered("bench.publish", job, float, PATIENCE_SECONDS + seconds)


class Shape(NamedTuple):
    """Publishes to measure, and the goal of their ratio to the slower of bare handler and raw appends."""

    messages: int
    connections: int
    goal: Goal | None = None
    of_bare: float = 1.0
    """Share of the bare handler's rate that counts: it stores nothing, so with many messages it has less work."""

    @property
    def params(self) -> dict[str, int | str]:
        return {"messages": self.messages, "connections": self.connections}


ONE_AT_64 = Shape(1, 64, at_least(0.9))
SHAPES = (Shape(1, 16), ONE_AT_64, Shape(100, 16, at_least(0.9), of_bare=0.55))


class Measured(NamedTuple):
    """One turn: the service, and its comparators."""

    ours: Outcome
    bare: Outcome
    raw: float
    """Requests a second."""

    def of_slower(self, of_bare: float) -> float:
        return requests_per_second(self.ours) / min(of_bare * requests_per_second(self.bare), self.raw)


@dataclass(frozen=True)
class Sides:
    """The service with a topic, and the bare handler."""

    bench: Bench
    service: Service
    topic: str
    bare: Server

    def load(self, server: Server, messages: int, connections: int) -> Outcome:
        return self.bench.load(server, Publish([self.topic], messages), connections)


def publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for each shape, with processor time and p99 for publish 1 at 64; then the lone caller's."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "publish", 1)
        sides = Sides(bench, service, topic, bare)
        for shape in SHAPES:
            turns = _turns(sides, shape)
            yield _result(shape, turns)
            if shape is ONE_AT_64:
                yield _processor(shape, turns)
                yield _latency(bench, shape, turns)
        yield _lone(sides)


def _turns(sides: Sides, shape: Shape) -> list[Measured]:
    bench, (messages, connections, *_) = sides.bench, shape
    found = bench.in_turn(
        f"publish {messages} at {connections} connections",
        lambda: sides.load(sides.service, messages, connections),
        lambda: (
            sides.load(sides.bare, messages, connections),
            raw_appends_per_second(bench.folder, connections, messages, bench.plan.seconds / 2),
        ),
    )
    return [Measured(ours, *theirs) for ours, theirs in found]


def _result(shape: Shape, turns: list[Measured]) -> Result:
    part = "" if shape.of_bare == 1 else f"{shape.of_bare:g} "
    return Result(
        "publish",
        shape.params,
        figures([each.ours for each in turns])
        | {
            "bare_requests_s": middle([each.bare for each in turns], requests_per_second),
            "raw_requests_s": median(each.raw for each in turns),
            "of_bare": median(requests_per_second(each.ours) / requests_per_second(each.bare) for each in turns),
            "of_raw": median(requests_per_second(each.ours) / each.raw for each in turns),
        },
        median(each.of_slower(shape.of_bare) for each in turns),
        f"requests/s of the slower of {part}the bare handler and raw appends",
        shape.goal,
    )


def _processor(shape: Shape, turns: list[Measured]) -> Result:
    ours, theirs = [each.ours for each in turns], [each.bare for each in turns]
    return Result(
        "publish-processor",
        shape.params,
        {"server_us": middle(ours, server_microseconds), "bare_us": middle(theirs, server_microseconds)},
        median(each.ours.server_microseconds / each.bare.server_microseconds for each in turns),
        "processor time of the bare handler for a request",
        at_most(1),
    )


def _latency(bench: Bench, shape: Shape, turns: list[Measured]) -> Result:
    ours, theirs = [each.ours for each in turns], [each.bare for each in turns]
    fdatasync = median(_syncs(bench).p99 for _ in turns)
    return Result(
        "publish-p99",
        shape.params,
        {
            "p99_ms": 1000 * middle(ours, p99),
            "bare_p99_ms": 1000 * middle(theirs, p99),
            "fdatasync_p99_ms": 1000 * fdatasync,
        },
        middle(ours, p99) / (middle(theirs, p99) + 5 * fdatasync),
        "p99 of the bare handler + 5 p99 of an fdatasync",
        at_most(1),
    )


def _syncs(bench: Bench) -> Syncs:
    return appends(bench.folder, stored_bytes(1), bench.plan.seconds / 2)


def _lone(sides: Sides) -> Result:
    bench = sides.bench
    turns = bench.in_turn(
        "publish 1 of a caller who is alone",
        lambda: sides.load(sides.service, 1, 1),
        lambda: (sides.load(sides.bare, 1, 1), _syncs(bench)),
    )
    return Result(
        "publish-lone",
        {"messages": 1, "connections": 1},
        {
            "p50_ms": 1000 * median(ours.p50 for ours, _ in turns),
            "bare_p50_ms": 1000 * median(bare.p50 for _, (bare, _) in turns),
            "fdatasync_p50_ms": 1000 * median(synced.p50 for _, (_, synced) in turns),
        },
        median(ours.p50 / (bare.p50 + synced.p50) for ours, (bare, synced) in turns),
        "p50 of the bare handler + p50 of an fdatasync",
        at_most(1.3),
    )


async def _append(job: RawJob) -> float:
    """Return how many records a second are stored, in groups of one of each writer."""
    file = Path(job.folder) / "raw-groups"
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC)
    records = [os.urandom(job.size) for _ in range(job.writers)]
    length = 0

    def store() -> None:
        nonlocal length
        if length >= SEGMENT_BYTES:
            os.ftruncate(handle, 0)
            length = 0
        if os.pwritev(handle, records, length) != job.size * job.writers:
            raise OSError("the disk is full")
        os.fdatasync(handle)
        length += job.size * job.writers

    loop, stored = asyncio.get_running_loop(), 0
    began = time.perf_counter() + WARM_UP_SECONDS
    try:
        with ThreadPoolExecutor(1) as thread:
            while (now := time.perf_counter()) < began + job.seconds:
                await loop.run_in_executor(thread, store)
                stored += job.writers if now >= began else 0
        return stored / (time.perf_counter() - began)
    finally:
        os.close(handle)
        file.unlink()


if __name__ == "__main__":
    found = uvloop.run(_append(msgspec.json.decode(sys.stdin.buffer.read(), type=RawJob)))
    sys.stdout.buffer.write(msgspec.json.encode(found))
