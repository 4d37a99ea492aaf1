"""The figures of push: what metrics say of the workers of a process, in the service and in `ams push` alike."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ams.core.observing import Figure, Labels, figure
from ams.push.state import ACTIVE, RETRYING, STOPPED
from ams.push.tally import Sums, Tally
from ams.wire.push import WorkerState

States = Mapping[str, WorkerState]
"""How deliveries go, by the resource name of the subscription."""

_COUNTED: Mapping[str, tuple[str, Callable[[Sums], float]]] = {
    "ams_push_delivered_messages": ("Messages delivered by push and acknowledged.", lambda sums: sums.messages),
    "ams_push_dead_letters": ("Messages put aside as dead letters.", lambda sums: sums.dead),
    "ams_push_late_acknowledgements": ("Deliveries acknowledged too late, so repeated.", lambda sums: sums.late),
    "ams_push_seconds": ("Seconds that requests to endpoints took, together.", lambda sums: sums.seconds),
}


def gauges(states: States, *, by_path: bool) -> Iterator[Figure]:
    """Yield what goes up and down."""
    phases = Counter(each.phase for each in states.values())
    values = [({"state": phase}, phases[phase]) for phase in (ACTIVE, RETRYING, STOPPED)]
    yield Figure("ams_push_subscriptions", "Subscriptions delivered by this process, by how it goes.", values)
    if not by_path:
        return
    succeeded = [(_labels(path), each.last_success / 1000) for path, each in states.items() if each.last_success]
    yield Figure("ams_push_last_success_seconds", "When a delivery last succeeded, since the epoch.", succeeded)
    failed = [(_labels(path), each.last_failure.time / 1000) for path, each in states.items() if each.last_failure]
    yield Figure("ams_push_last_failure_seconds", "When a delivery last failed, since the epoch.", failed)


def counters(tally: Tally) -> Iterator[Figure]:
    """Yield what only grows while the process runs."""
    for name, (help_text, value) in _COUNTED.items():
        if tally.by_path:
            yield Figure(name, help_text, [(_labels(path), value(sums)) for path, sums in tally.each.items()])
        else:
            yield figure(name, help_text, value(tally.total))
    sums = tally.each.items() if tally.by_path else [("", tally.total)]
    requests = [
        ({**_labels(path), "outcome": outcome}, count)
        for path, each in sums
        for outcome, count in (("succeeded", each.succeeded), ("failed", each.failed))
    ]
    yield Figure("ams_push_requests", "Requests to endpoints, by what came of them.", requests)


def _labels(path: str) -> Labels:
    if not path:
        return {}
    _, _, project, _, subscription = path.split("/")
    return {"project": project, "subscription": subscription}
