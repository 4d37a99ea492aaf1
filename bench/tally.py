"""Counts and percentiles of a load's answers, for the measured time only."""

import time
from array import array
from collections import Counter

import msgspec

from bench.callers import Step
from bench.connection import Response
from bench.report import percentile


class Outcome(msgspec.Struct):
    """Result of a load: requests answered within the measured time."""

    requests: int = 0
    """Answered 200."""
    messages: int = 0
    seconds: float = 0.0
    p50: float = 0.0
    """Latency in seconds of requests answered 200, as p99 and slowest."""
    p99: float = 0.0
    slowest: float = 0.0
    refused: dict[int, int] = {}
    """Other answers by status; 0 is a connection that ended before the answer."""
    not_retryable: int = 0
    """Refusals that do not say Retry-After."""
    unsent: int = 0
    """Requests of an open loop that were due and never found a free connection."""
    client_cpu: float = 0.0
    """Share of one core the generator used; near 1 the generator is the limit, not the service."""
    server_seconds: float = 0.0
    """Processor seconds the server took meanwhile; 0 when that was not noted."""

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def server_microseconds(self) -> float:
        """Processor microseconds the server took for a request that it answered 200."""
        return 1e6 * self.server_seconds / self.requests

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


class Tally:
    """Counts answers that come while it is open."""

    def __init__(self) -> None:
        self.open = False
        self._latencies = array("d")
        self._messages = 0
        self._refused: Counter[int] = Counter()
        self._not_retryable = 0
        self._began = self._began_cpu = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self.open = True
        self._began, self._began_cpu = time.perf_counter(), time.process_time()

    def add(self, step: Step, answer: Response, latency: float) -> None:
        """Count one answer."""
        if not self.open or not step.counted:
            return
        if answer.status == 200:
            self._latencies.append(latency)
            self._messages += step.messages
            return
        self._refused[answer.status] += 1
        if not answer.retry_after:
            self._not_retryable += 1

    def end(self, unsent: int) -> Outcome:
        """Stop counting and return the result."""
        self.open = False
        seconds = time.perf_counter() - self._began
        ordered = sorted(self._latencies)
        return Outcome(
            requests=len(ordered),
            messages=self._messages,
            seconds=seconds,
            p50=percentile(ordered, 50),
            p99=percentile(ordered, 99),
            slowest=percentile(ordered, 100),
            refused=dict(self._refused),
            not_retryable=self._not_retryable,
            unsent=unsent,
            client_cpu=(time.process_time() - self._began_cpu) / seconds,
        )
