"""Figures of the push server for Prometheus (push contract 15, P25); nothing is worked out before somebody asks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ams.observing import Figure, figure
from ams.push.state import ACTIVE, WorkerState
from ams.push_server.condition import Condition

States = Callable[[], Mapping[str, WorkerState]]
"""How all deliveries go, by the resource names of their subscriptions."""


@dataclass(slots=True)
class PushFigures:
    """What the operations port tells; `states` is None until the workers are there."""

    condition: Condition
    states: States | None = None
    draining: bool = False

    def why_not_ready(self) -> str | None:
        """Return why this server cannot be asked; None while it can."""
        if self.draining:
            return "stopping"
        return None if self.condition.is_ok else self.condition.text or "starting"

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        found = self.states() if self.states else {}
        yield figure("ams_push_service_reachable", "1 while the service answers.", self.condition.is_ok)
        yield figure("ams_push_subscriptions", "Subscriptions delivered here.", len(found))
        failing = sum(state.phase != ACTIVE for state in found.values())
        yield figure("ams_push_failing_subscriptions", "Of these, the ones whose last attempt failed.", failing)
        yield _of_each("ams_push_backlog", "Messages not acknowledged.", found, lambda state: state.backlog)
        success = "Unix time of the last delivery that was acknowledged."
        yield _of_each("ams_push_last_success", success, found, lambda state: _seconds(state.last_success))
        failure = "Unix time of the last failure."
        yield _of_each("ams_push_last_failure", failure, found, lambda state: _failed(state))

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while a delivery goes on."""
        found = self.states() if self.states else {}
        yield _of_each("ams_push_delivered_messages", "Messages delivered.", found, lambda state: state.delivered)
        yield _of_each("ams_push_deliveries", "Requests that succeeded.", found, lambda state: state.deliveries)
        yield _of_each("ams_push_failed_deliveries", "Requests that failed.", found, lambda state: state.failed)
        yield _of_each("ams_push_dead_messages", "Messages put aside as dead letters.", found, lambda state: state.dead)
        yield _of_each("ams_push_late_acknowledgements", "Deliveries repeated, acknowledged too late.", found, _late)


def _of_each(name: str, text: str, states: Mapping[str, WorkerState], value: Callable[[WorkerState], Any]) -> Figure:
    values = [({"subscription": path}, value(state)) for path, state in states.items()]
    return Figure(name, text, [(labels, number) for labels, number in values if number is not None])


def _seconds(moment: int | None) -> float | None:
    return None if moment is None else moment / 1000


def _failed(state: WorkerState) -> float | None:
    return _seconds(state.last_failure.time) if state.last_failure else None


def _late(state: WorkerState) -> int:
    return state.late
