"""Report of a worker: the state of its delivery, which other nodes read; and metrics of all workers.

Times are milliseconds since the epoch. It holds no message content, and no secret.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from ams.core.telemetry import Figure, Labels
from ams.wire.push import Attempt, Failure, WorkerState

MAX_ATTEMPTS_KEPT = 100  # newest attempts that are remembered
CONSUME, SEND, ACKNOWLEDGE = "consume", "send", "acknowledge"  # what can fail (push contract 8.4)
ACTIVE, RETRYING, STOPPED = "active", "retrying", "stopped"
"""Phases: all is well; the last cycle failed and there will be another; the endpoint said that it is gone (410)."""

PARALLEL_ELSEWHERE = "A subscription of type parallel is delivered by processes that lease messages, as ams push does"

logger = structlog.get_logger("ams.push")


def text(path: str, state: WorkerState) -> str:
    """Return the status text of a worker (push contract 8.4); `path` is the resource name of its subscription."""
    failure = state.failure
    if failure is None:
        return f"Subscription {path} is currently active"
    moment = datetime.fromtimestamp(failure.time // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S} - Could not {failure.what} message, {failure.detail}"


@dataclass(slots=True)
class Sums:
    """Counters that only grow."""

    messages: int = 0  # delivered and acknowledged
    succeeded: int = 0  # requests to endpoints; the next ones likewise
    failed: int = 0
    seconds: float = 0.0  # that requests took, together
    dead: int = 0  # dead letters
    late: int = 0  # deliveries whose acknowledgement came too late


@dataclass(slots=True)
class DeliveryTally:
    """Counters of all deliveries of a process since it started, for its metrics (push contract 15, P25)."""

    by_path: bool = False  # whether each subscription is counted by itself
    total: Sums = field(default_factory=Sums)
    each: dict[str, Sums] = field(default_factory=dict)  # by resource name of the subscription, if `by_path`

    def of(self, path: str) -> tuple[Sums, ...]:
        """Return the counters of a subscription."""
        if not self.by_path:
            return (self.total,)
        return self.total, self.each.setdefault(path, Sums())


@dataclass(slots=True, eq=False)
class WorkerReport:
    """State and counters of one worker. Times are milliseconds since the epoch."""

    _path: str
    _tally: DeliveryTally
    failure: Failure | None = None  # the present one
    changed: bool = True  # whether anything happened since this was set to False
    _sums: Sums = field(default_factory=Sums)
    _attempts: deque[Attempt] = field(default_factory=lambda: deque(maxlen=MAX_ATTEMPTS_KEPT))
    _last_failure: Failure | None = None
    _last_success: int | None = None
    _next_attempt: int | None = None
    _stopped: bool = False
    _undecodable: int = 0

    def note_attempt(self, attempt: Attempt) -> None:
        """Record a request, and whether it succeeded."""
        self._attempts.append(attempt)
        for sums in self._sums_to_update():
            sums.seconds += attempt.milliseconds / 1000
            if attempt.error:
                sums.failed += 1
            else:
                sums.succeeded += 1

    def record_delivery(self, messages: int, undecodable: int, now: int) -> None:
        """Record acknowledged messages; clears the failure."""
        self._undecodable += undecodable
        self._last_success = now
        self.note_recovery()
        for sums in self._sums_to_update():
            sums.messages += messages

    def dead_lettered(self) -> None:
        """Record a dead letter; clears the failure."""
        self.failure = None  # reported as dead, not as recovered
        for sums in self._sums_to_update():
            sums.dead += 1

    def late(self, failure: Failure) -> None:
        """Record a late acknowledgement."""
        for sums in self._sums_to_update():
            sums.late += 1
        self.record_failure(failure)

    def _sums_to_update(self) -> tuple[Sums, ...]:
        self.changed = True
        return (self._sums, *self._tally.of(self._path))

    def record_failure(self, failure: Failure, reason: str = "") -> None:
        """Record a failure; `reason` replaces its detail in the log."""
        if self.failure is None:
            what, status, said = failure.what, failure.status, reason or failure.detail
            logger.warning("push.failing", subscription=self._path, what=what, status=status, reason=said)
        self.failure = self._last_failure = failure
        self.changed = True

    def record_stop(self, failure: Failure) -> None:
        """Record that delivery has stopped, and why."""
        self._stopped = True
        self.record_failure(failure)

    def note_recovery(self) -> None:
        """Clear the failure; the last one stays known (P5)."""
        if self.failure is not None:
            logger.info("push.recovered", subscription=self._path)
            self.failure = None
            self.changed = True

    def waiting(self, until: int | None) -> None:
        """Record when the next attempt is; None: now."""
        self._next_attempt = until
        self.changed = True

    def state(self, circuit: str, batch: int, outstanding: int | None = None) -> WorkerState:
        """Return the state. `batch`: messages per delivery; `outstanding`: deliveries under way."""
        return WorkerState(
            phase=STOPPED if self._stopped else RETRYING if self.failure else ACTIVE,
            failure=self.failure,
            last_failure=self._last_failure,
            last_success=self._last_success,
            next_attempt=self._next_attempt,
            circuit=circuit,
            batch=batch,
            delivered=self._sums.messages,
            deliveries=self._sums.succeeded,
            failed=self._sums.failed,
            dead=self._sums.dead,
            undecodable=self._undecodable,
            late=self._sums.late,
            outstanding=outstanding,
            attempts=tuple(self._attempts),
        )


_COUNTED: Mapping[str, tuple[str, Callable[[Sums], float]]] = {
    "ams_push_delivered_messages": ("Messages delivered by push and acknowledged.", lambda sums: sums.messages),
    "ams_push_dead_letters": ("Messages put aside as dead letters.", lambda sums: sums.dead),
    "ams_push_late_acknowledgements": ("Deliveries acknowledged too late, so repeated.", lambda sums: sums.late),
    "ams_push_seconds": ("Seconds that requests to endpoints took, together.", lambda sums: sums.seconds),
}


def gauges(states: Mapping[str, WorkerState], *, by_path: bool) -> Iterator[Figure]:
    """Yield what goes up and down; `states` are by the resource name of the subscription."""
    phases = Counter(each.phase for each in states.values())
    values = [({"state": phase}, phases[phase]) for phase in (ACTIVE, RETRYING, STOPPED)]
    yield Figure("ams_push_subscriptions", "Subscriptions delivered by this process, by how it goes.", values)
    if not by_path:
        return
    succeeded = [(_labels(path), each.last_success / 1000) for path, each in states.items() if each.last_success]
    yield Figure("ams_push_last_success_seconds", "When a delivery last succeeded, since the epoch.", succeeded)
    failed = [(_labels(path), each.last_failure.time / 1000) for path, each in states.items() if each.last_failure]
    yield Figure("ams_push_last_failure_seconds", "When a delivery last failed, since the epoch.", failed)


def counters(tally: DeliveryTally) -> Iterator[Figure]:
    """Yield what only grows while the process runs."""
    counted = tally.each if tally.by_path else {"": tally.total}
    for name, (help_text, value) in _COUNTED.items():
        yield Figure(name, help_text, [(_labels(path), value(sums)) for path, sums in counted.items()])
    requests = [
        ({**_labels(path), "outcome": outcome}, count)
        for path, sums in counted.items()
        for outcome, count in (("succeeded", sums.succeeded), ("failed", sums.failed))
    ]
    yield Figure("ams_push_requests", "Requests to endpoints, by what came of them.", requests)


def _labels(path: str) -> Labels:
    if not path:
        return {}
    _, _, project, _, subscription = path.split("/")
    return {"project": project, "subscription": subscription}
