"""The condition of the push server: whether it can work, as it answers every client (push contract 4, P26).

Its figures for Prometheus (push contract 15, P25) are worked out for each request.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ams.core.observing import Figure, background_failures, figure
from ams.core.supervisor import Supervisor
from ams.push import report
from ams.push.report import Tally
from ams.web.listener import Listener, connection_counters, connection_gauges
from ams.wire.push import WorkerState

OK = "ok"
STARTING = ""
NO_WORKER = "Could not retrieve push worker user"
"""In the words of the contract; the service, or its answer to who the worker is, is missing."""

MISSES, HITS = 3, 2
"""Failures in a row after which what worked works no more, and successes after which it does again."""


class Condition:
    """Starts as `STARTING`; the first success makes it `OK`, and single failures do not end that."""

    def __init__(self, text: str = STARTING) -> None:
        self._text = text
        self._was_ok = text == OK
        self._missed = 0
        self._hit = 0
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self._text

    @property
    def is_ok(self) -> bool:
        """Whether calls are answered."""
        return self._text == OK

    def reached(self) -> None:
        """Note that the service answered as it should."""
        self._missed = 0
        self._hit += 1
        if not self._was_ok or self._hit >= HITS:
            self._was_ok = True
            self._set(OK)

    def missed(self) -> None:
        """Note that it did not."""
        self._hit = 0
        self._missed += 1
        if not self._was_ok or self._missed >= MISSES:
            self._set(NO_WORKER)

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change of the text. Take it before the text, or a change in between is missed."""
        return self._changed

    def _set(self, text: str) -> None:
        if text == self._text:
            return
        self._text = text
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


States = Callable[[], Mapping[str, WorkerState]]


@dataclass(slots=True)
class PushFigures:
    """What the operations port shows; `states` is None until the workers are there."""

    condition: Condition
    supervisor: Supervisor = field(default_factory=Supervisor)
    states: States | None = None
    tally: Tally = field(default_factory=lambda: Tally(by_path=True))
    listeners: list[Listener] = field(default_factory=list)
    draining: bool = False

    def why_not_ready(self) -> str | None:
        """Return why this server cannot be asked; None while it can."""
        if self.supervisor.failure:
            return self.supervisor.failure
        if self.draining:
            return "stopping"
        return None if self.condition.is_ok else self.condition.text or "starting"

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        yield figure("ams_push_service_reachable", "1 while the service answers.", self.condition.is_ok)
        yield from report.gauges(self.states() if self.states else {}, by_path=True)
        yield from connection_gauges("ams_push", self.listeners)

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while this server runs."""
        yield from report.counters(self.tally)
        yield background_failures(self.supervisor.survived)
        yield from connection_counters("ams_push", self.listeners)
