"""One site on one day: from results to the timelines of its metrics, endpoints and services, and its own."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from ams.pipeline.jobs.availability.inputs import DayInputs
from ams.pipeline.jobs.availability.timelines import SEVERITY, Timeline, combined, holding, overridden
from ams.pipeline.jobs.availability.topology import Place


class Result(NamedTuple):
    """What a probe found."""

    second: int
    """Seconds from midnight of its day, UTC."""
    status: str
    monitoring_host: str = ""
    summary: str = ""
    message: str = ""


Results = Mapping[Place, Iterable[Result]]
"""The results of one site on one day, by metric."""
Timelines = Mapping[Place, Timeline]
"""All of one site on one day: metrics, endpoints, services, the site. Empty if no endpoint of the site counts."""


def timelines_of(inputs: DayInputs, site: str, today: Results, day_before: Results) -> Timelines:
    """Compute the timelines of a site.

    A metric starts the day with its last status of the day before; without one it is missing until its first result.
    An announced downtime covers the endpoint and all above it; the metrics stay as they were measured.
    """
    lines: dict[Place, Timeline] = {}

    def put(place: Place, line: Timeline) -> None:
        lines[place] = overridden(line, inputs.laid_over(site, place))

    rules, services = inputs.rules, dict[Place, list[Place]]()
    metrics = {
        each: [each._replace(metric=name) for name in rules.metrics[each.service]] for each in inputs.endpoints(site)
    }
    for place in chain.from_iterable(metrics.values()):
        put(place, _measured(today.get(place, ()), day_before.get(place, ()), rules.defaults.missing))
    for endpoint, below in metrics.items():
        put(endpoint, combined(rules.metric_operation, [lines[each] for each in below]))
        services.setdefault(Place(endpoint.service), []).append(endpoint)
    for service, below in sorted(services.items()):
        put(service, combined(rules.operation(service.service), [lines[each] for each in below]))
    groups = [
        combined(group.operation, present)
        for group in rules.groups
        if (present := [lines[Place(name)] for name in group.services if Place(name) in lines])
    ]
    if groups:  # one of which the site has no service does not count
        put(Place(), combined(rules.profile_operation, groups))
    return lines


def _measured(today: Iterable[Result], day_before: Iterable[Result], missing: str) -> Timeline:
    """Make the day of a metric, which begins with its last status of the day before."""
    last = max(day_before, key=lambda result: (result.second, SEVERITY[result.status]), default=None)
    return holding(last.status if last else missing, ((result.second, result.status) for result in today))
