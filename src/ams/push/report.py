"""The report of a worker: what happened so far, and the state that is told of it."""

from collections import deque
from typing import Protocol

import structlog

from ams.push.state import ACTIVE, ATTEMPTS, RETRYING, STOPPED
from ams.wire.push import Attempt, Failure, WorkerState

logger = structlog.get_logger("ams.push")


class Observer(Protocol):
    """Is told what happens to deliveries, as it happens; `path` names the subscription. For metrics."""

    def attempted(self, path: str, attempt: Attempt) -> None:
        """Take note of one request to an endpoint."""
        ...

    def delivered(self, path: str, messages: int) -> None:
        """Take note of messages that were acknowledged."""
        ...

    def dead_lettered(self, path: str) -> None:
        """Take note of a message that was put aside as a dead letter."""
        ...

    def late(self, path: str) -> None:
        """Take note of an acknowledgement that came too late."""
        ...


class Unobserved:
    """Takes note of nothing."""

    def attempted(self, path: str, attempt: Attempt) -> None:
        """Take no note."""

    def delivered(self, path: str, messages: int) -> None:
        """Take no note."""

    def dead_lettered(self, path: str) -> None:
        """Take no note."""

    def late(self, path: str) -> None:
        """Take no note."""


UNOBSERVED = Unobserved()


class Report:
    """What a worker writes down of itself. Times are milliseconds since the epoch."""

    __slots__ = (
        "_attempts", "_dead", "_delivered", "_deliveries", "_failed", "_failure", "_last_failure", "_last_success",
        "_late", "_next_attempt", "_observer", "_path", "_stopped", "_undecodable", "changed",
    )  # fmt: skip

    def __init__(self, path: str, observer: Observer) -> None:
        self._path = path
        self._observer = observer
        self._attempts: deque[Attempt] = deque(maxlen=ATTEMPTS)
        self._failure: Failure | None = None
        self._last_failure: Failure | None = None
        self._last_success: int | None = None
        self._next_attempt: int | None = None
        self._stopped = False
        self._delivered = self._deliveries = self._failed = self._dead = self._undecodable = self._late = 0
        self.changed = True
        """Whether anything happened since somebody set this to False."""

    @property
    def failure(self) -> Failure | None:
        """What is wrong now."""
        return self._failure

    def attempted(self, attempt: Attempt) -> None:
        """Note a request that was sent, and whether it succeeded."""
        self._attempts.append(attempt)
        if attempt.error:
            self._failed += 1
        else:
            self._deliveries += 1
        self._observer.attempted(self._path, attempt)
        self.changed = True

    def delivered(self, messages: int, undecodable: int, now: int) -> None:
        """Note that messages were acknowledged: nothing is wrong any more."""
        self._delivered += messages
        self._undecodable += undecodable
        self._last_success = now
        self.cleared()
        self._observer.delivered(self._path, messages)
        self.changed = True

    def dead_lettered(self) -> None:
        """Note that a message was put aside: nothing is wrong any more."""
        self._dead += 1
        self._failure = None  # told of as dead, not as recovered
        self._observer.dead_lettered(self._path)
        self.changed = True

    def late(self, failure: Failure) -> None:
        """Note an acknowledgement that came too late."""
        self._late += 1
        self._observer.late(self._path)
        self.failed(failure)

    def failed(self, failure: Failure, reason: str = "") -> None:
        """Note what is wrong; `reason` is what the log says of it when it is not the detail."""
        if self._failure is None:
            logger.warning(
                "push.failing",
                subscription=self._path,
                what=failure.what,
                status=failure.status,
                reason=reason or failure.detail,
            )
        self._failure = self._last_failure = failure
        self.changed = True

    def stopped(self, failure: Failure) -> None:
        """Note that there is nothing more to come, and why."""
        self._stopped = True
        self.failed(failure)

    def cleared(self) -> None:
        """Note that nothing is wrong; what was stays known (P5)."""
        if self._failure is not None:
            logger.info("push.recovered", subscription=self._path)
            self._failure = None
            self.changed = True

    def waiting(self, until: int | None) -> None:
        """Note when there will be another attempt; None: now."""
        self._next_attempt = until
        self.changed = True

    def state(self, circuit: str, batch: int) -> WorkerState:
        """Return all of it as a value, with what others know: how the circuit stands, and the size of a delivery."""
        return WorkerState(
            phase=STOPPED if self._stopped else RETRYING if self._failure else ACTIVE,
            failure=self._failure,
            last_failure=self._last_failure,
            last_success=self._last_success,
            next_attempt=self._next_attempt,
            circuit=circuit,
            batch=batch,
            delivered=self._delivered,
            deliveries=self._deliveries,
            failed=self._failed,
            dead=self._dead,
            undecodable=self._undecodable,
            late=self._late,
            attempts=tuple(self._attempts),
        )
