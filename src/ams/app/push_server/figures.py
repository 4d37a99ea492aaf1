"""Figures of the push server for Prometheus (push contract 15, P25); nothing is worked out before somebody asks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ams.app.push_server.condition import Condition
from ams.core.observing import Figure, background_failures, figure
from ams.core.supervisor import Supervisor
from ams.push import report
from ams.push.report import Tally
from ams.wire.push import WorkerState

States = Callable[[], Mapping[str, WorkerState]]
"""How all deliveries go, by the resource names of their subscriptions."""


@dataclass(slots=True)
class PushFigures:
    """What the operations port tells; `states` is None until the workers are there."""

    condition: Condition
    supervisor: Supervisor = field(default_factory=Supervisor)
    states: States | None = None
    tally: Tally = field(default_factory=lambda: Tally(by_path=True))
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

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while this server runs."""
        yield from report.counters(self.tally)
        yield background_failures(self.supervisor.survived)
