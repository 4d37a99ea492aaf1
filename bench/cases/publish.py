"""Publish: 1 message a request at 16 and 64 connections, 100 at 16, and 1 of a lone caller.

Against the bare handler, which answers without storing, and raw appends, which store without answering: nobody can be
faster than the slower of the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from bench import preparing, raw
from bench.callers import Publish
from bench.disk import Syncs, appends
from bench.processes import Server, Service
from bench.report import Goal, Result, at_least, at_most
from bench.run import Bench, figures, middle, p99, requests_per_second, server_microseconds
from bench.tally import Outcome


class Shape(NamedTuple):
    """Publishes to measure, and the goal of their ratio to the slower of bare handler and raw appends."""

    messages: int
    connections: int
    goal: Goal | None = None
    of_bare: float = 1.0
    """Share of the bare handler's rate that counts: with many messages it has less to do, as it stores nothing."""


ONE_AT_64 = Shape(1, 64, at_least(0.9))
SHAPES = (Shape(1, 16), ONE_AT_64, Shape(100, 16, at_least(0.9), of_bare=0.55))


class Measured(NamedTuple):
    """One turn: the service, and what it is compared with."""

    ours: Outcome
    bare: Outcome
    raw: float
    """Requests a second."""

    def of_slower(self, of_bare: float) -> float:
        """Return our requests a second to those of the slower comparator."""
        return requests_per_second(self.ours) / min(of_bare * requests_per_second(self.bare), self.raw)


@dataclass(frozen=True)
class Sides:
    """The service with a topic, and the bare handler."""

    bench: Bench
    service: Service
    topic: str
    bare: Server

    def load(self, server: Server, messages: int, connections: int) -> Outcome:
        """Publish to one of them."""
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
            raw.requests_per_second(bench.folder, connections, messages, bench.plan.seconds / 2),
        ),
    )
    return [Measured(ours, *theirs) for ours, theirs in found]


def _params(shape: Shape) -> dict[str, int | str]:
    return {"messages": shape.messages, "connections": shape.connections}


def _result(shape: Shape, turns: list[Measured]) -> Result:
    return Result(
        "publish",
        _params(shape),
        figures([each.ours for each in turns])
        | {
            "bare_requests_s": middle([each.bare for each in turns], requests_per_second),
            "raw_requests_s": median(each.raw for each in turns),
            "of_bare": median(requests_per_second(each.ours) / requests_per_second(each.bare) for each in turns),
            "of_raw": median(requests_per_second(each.ours) / each.raw for each in turns),
        },
        median(each.of_slower(shape.of_bare) for each in turns),
        f"requests/s of the slower of {_part(shape)}the bare handler and raw appends",
        shape.goal,
    )


def _part(shape: Shape) -> str:
    return "" if shape.of_bare == 1 else f"{shape.of_bare:g} "


def _processor(shape: Shape, turns: list[Measured]) -> Result:
    ours, theirs = [each.ours for each in turns], [each.bare for each in turns]
    return Result(
        "publish-processor",
        _params(shape),
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
        _params(shape),
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
    return appends(bench.folder, raw.stored_bytes(1), bench.plan.seconds / 2)


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
