"""The job: both lines at once, four programs, each a thread with its own client and its own user."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import date, timedelta
from threading import Event
from time import perf_counter

from demo import traffic
from demo.pipeline.samples import NONE, Sample, accounting, monitoring
from demo.traffic import ACCOUNTING, MONITORING, Flow, Ledger, Line, Message

RESULTS_PER_BATCH = 5
FIRST_DAY = date(2024, 3, 5)
MONTH = timedelta(days=30)
LOOK = 0.2

Pace = Callable[[Iterator[Message], int], Iterator[Message]]
"""Delays messages; called with the messages and their count."""


def at_once(messages: Iterator[Message], _count: int) -> Iterator[Message]:
    return messages


def usage_records(seed: int, count: int) -> Iterator[Message]:
    """Return `count` messages with records of jobs, always the same for a seed; a month is made at a time."""
    made = (
        accounting.messages(
            seed + number, FIRST_DAY + number * MONTH, days=30, jobs=60, machines=0, signed=False, mishaps=NONE
        )
        for number in itertools.count()
    )
    return _first(count, made, ACCOUNTING)


def probe_results(seed: int, count: int) -> Iterator[Message]:
    days = (FIRST_DAY + timedelta(days=number) for number in itertools.count())
    return _first(count, (monitoring.results(seed, day, sites=2, mishaps=NONE, day_late=0) for day in days), MONITORING)


def _first(count: int, made: Iterable[Iterator[Sample]], line: Line) -> Iterator[Message]:
    samples = (each for each in itertools.chain.from_iterable(made) if each.topic == line.topic)
    return (Message(dict(each.attributes), each.data) for each in itertools.islice(samples, count))


class Job:
    """One run of the demo: its plan, then what it did."""

    def __init__(
        self,
        *,
        seed: int,
        messages: int,
        wire: traffic.Wire = traffic.untouched,
        pace: Pace = at_once,
        retries: int = 0,
        patience: float = traffic.PATIENCE,
    ) -> None:
        batches = messages // (1 + RESULTS_PER_BATCH)
        results = messages - batches
        plans = (
            _flow(ACCOUNTING, pace(usage_records(seed, batches), batches), batches, bulk=20),
            _flow(MONITORING, pace(probe_results(seed, results), results), results, bulk=100),
        )
        self.flows = tuple(flow._replace(retries=retries, patience=patience) for flow in plans)
        self.expected = messages
        self.seconds = 0.0
        self._wire = wire
        self._stop = Event()

    def run(self, endpoint: str, admin_token: str, progress: Callable[["Job"], None]) -> None:
        """Send everything through the service, and note what comes out; at its end all programs have stopped."""
        ends = [traffic.prepare(endpoint, admin_token, flow.line) for flow in self.flows]
        start = perf_counter()

        def look() -> None:
            self.seconds = perf_counter() - start
            progress(self)

        with ThreadPoolExecutor(2 * len(self.flows)) as threads:
            programs = []
            for flow, end in zip(self.flows, ends, strict=True):
                programs.append(threads.submit(traffic.publish, end.publisher, flow, self._stop, self._wire))
                programs.append(threads.submit(traffic.consume, end.consumer, flow, self._stop))
            self._follow(programs, look)

    @property
    def results(self) -> Ledger:
        return self.flows[1].ledger

    def total(self, count: str) -> int:
        """Return a count over both lines; `count` is the name of an attribute of `Ledger`."""
        return sum(getattr(flow.ledger, count) for flow in self.flows)

    def findings(self) -> list[str]:
        return [error for flow in self.flows for error in flow.ledger.findings()]

    def _follow(self, programs: Sequence[Future[None]], look: Callable[[], None]) -> None:
        running = set(programs)
        try:
            while running:
                ended, running = wait(running, timeout=LOOK, return_when=FIRST_EXCEPTION)
                look()
                for program in ended:
                    program.result()
        finally:
            self._stop.set()


def _flow(line: Line, messages: Iterator[Message], expected: int, bulk: int) -> Flow:
    return Flow(line, messages, expected, bulk, Ledger(line.topic))
