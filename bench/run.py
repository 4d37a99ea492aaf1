"""A run of the bench: how long and how large, where its data lies, and how cases measure."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from bench.callers import Work
from bench.load import Job, Outcome
from bench.processes import RunningLoad, Server, Service, bare
from bench.report import Goal, Result, progress

HEAD_START_SECONDS = 1.0
"""Arguments of a load that runs beside the measured one."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Plan:
    """Durations and sizes of a run."""

    pairs: int
    """Number of turns of a case and its comparator; results are medians over them."""
    seconds: float
    """Seconds of one measurement."""
    backlog: int
    """Messages of an ordinary backlog."""
    large_backlog: int
    """Messages of the full data folder of `start`."""
    latencies: int
    """Single messages that are timed from publish to callback."""


FULL = Plan(pairs=5, seconds=5, backlog=100_000, large_backlog=10_000_000, latencies=400)
QUICK = Plan(pairs=3, seconds=2, backlog=20_000, large_backlog=100_000, latencies=100)


@dataclass(frozen=True)
class Bench:
    """Context of a case: services, data folders, loads."""

    plan: Plan
    folder: Path
    """Parent of data folders, on the disk that is measured."""

    @contextlib.contextmanager
    def service(self, *flags: str) -> Iterator[Service]:
        """Run the service on an empty data folder, which is removed at the end."""
        with self.data_folder() as data, Service(data, *flags) as running:
            yield running

    @contextlib.contextmanager
    def data_folder(self) -> Iterator[Path]:
        """Give a path for a data folder, which goes at the end."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            yield Path(made) / "data"

    @contextlib.contextmanager
    def bare(self) -> Iterator[Server]:
        with self.data_folder() as data, bare(data.parent) as running:
            yield running

    def in_turn(self, what: str, first: Callable[[], T], second: Callable[[], U]) -> list[tuple[T, U]]:
        """Measure two things alternately, so that a noisy minute affects both; return the pairs."""
        progress(f"  {what}")
        return [(first(), second()) for _ in range(self.plan.pairs)]

    def loads(
        self, what: str, first: tuple[Server, Work], second: tuple[Server, Work], connections: int
    ) -> list[tuple[Outcome, Outcome]]:
        return self.in_turn(what, lambda: self.load(*first, connections), lambda: self.load(*second, connections))

    def load(self, server: Server, work: Work, connections: int, rate: float | None = None) -> Outcome:
        return RunningLoad(self.job(server, work, connections, rate)).outcome()

    def beside(self, service: Service, work: Work, connections: int, measure: Callable[[], T]) -> tuple[T, Outcome]:
        """Measure while another load runs from a moment before to a moment after; return both."""
        seconds = self.plan.seconds + 2 * HEAD_START_SECONDS
        other = RunningLoad(self.job(service, work, connections, seconds=seconds))
        time.sleep(HEAD_START_SECONDS)
        return measure(), other.outcome(needs_answers=False)

    def job(
        self, server: Server, work: Work, connections: int, rate: float | None = None, seconds: float | None = None
    ) -> Job:
        """Return a load with the numbers of this plan."""
        token = server.token if isinstance(server, Service) else "none"
        return Job(server.url, token, work, connections, seconds or self.plan.seconds, rate=rate, pid=server.pid)


def middle(outcomes: list[Outcome], figure: Callable[[Outcome], float]) -> float:
    return median(figure(each) for each in outcomes)


def median_ratio(pairs: list[tuple[Outcome, Outcome]], figure: Callable[[Outcome], float]) -> float:
    """Return the median over the pairs of the first's figure to the second's."""
    return median(figure(first) / figure(second) for first, second in pairs)


requests_per_second = attrgetter("requests_per_second")
messages_per_second = attrgetter("messages_per_second")
p99 = attrgetter("p99")
server_microseconds = attrgetter("server_microseconds")


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    """Return the figures shown of a load: medians over its measurements."""
    return {
        "requests_s": middle(outcomes, requests_per_second),
        "messages_s": middle(outcomes, messages_per_second),
        "p50_ms": 1000 * middle(outcomes, lambda each: each.p50),
        "p99_ms": 1000 * middle(outcomes, p99),
        "client_cpu": middle(outcomes, lambda each: each.client_cpu),
        "server_us": middle(outcomes, server_microseconds),
        "refused": sum(sum(each.refused.values()) for each in outcomes),
    }


def compared(
    case: str,
    params: dict[str, int | str],
    pairs: list[tuple[Outcome, Any]],
    key: str,
    against: str,
    goal: Goal | None,
    figure: Callable[[Outcome], float] = requests_per_second,
    of_theirs: Callable[[Any], float] | None = None,
) -> Result:
    """Return the first of two alternating loads compared with the second; `key` names the second's figure.

    `of_theirs` is that figure, when it is another one.
    """
    of_theirs = of_theirs or figure
    theirs = [each for _, each in pairs]
    shown = figures([each for each, _ in pairs]) | {key: median(map(of_theirs, theirs))}
    if isinstance(theirs[0], Outcome):
        shown["against_us"] = middle(theirs, server_microseconds)
    return Result(case, params, shown, median(figure(ours) / of_theirs(each) for ours, each in pairs), against, goal)
