"""One site on one day: from results to the timelines of its metrics, endpoints and services, and its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.pipeline.jobs.availability.exceptions import Exceptions
from ams.pipeline.jobs.availability.profiles import Rules
from ams.pipeline.jobs.availability.statuses import SEVERITY
from ams.pipeline.jobs.availability.timelines import DAY, Timeline, combined, holding, overridden
from ams.pipeline.jobs.availability.topology import Endpoint


class Measured(NamedTuple):
    """A metric of an endpoint."""

    service: str
    hostname: str
    metric: str

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint it is measured at."""
        return Endpoint(self.service, self.hostname)


class Result(NamedTuple):
    """What a probe found."""

    second: int
    """Seconds from midnight of its day, UTC."""
    status: str
    monitoring_host: str = ""
    summary: str = ""
    message: str = ""


Results = Mapping[Measured, Iterable[Result]]
"""The results of one site on one day."""


@dataclass(frozen=True, slots=True)
class SiteDay:
    """The timelines of one site on one day."""

    metrics: Mapping[Measured, Timeline]
    endpoints: Mapping[Endpoint, Timeline]
    services: Mapping[str, Timeline]
    site: Timeline | None
    """None if no endpoint of the site counts on that day."""


@dataclass(frozen=True, slots=True)
class DayInputs:
    """All that holds on a day, apart from results."""

    day: str
    rules: Rules
    sites: Mapping[str, Mapping[Endpoint, str]]
    """The endpoints that count, of each site, and the page of each."""
    exceptions: Exceptions
    regions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The sites of each larger group."""
    until: int = DAY
    """The second of the day at which it was looked at; of a day that is over, its end."""

    def endpoints(self, site: str) -> list[Endpoint]:
        """The endpoints of a site whose services are in the profiles."""
        return [endpoint for endpoint in self.sites.get(site, {}) if endpoint.service in self.rules.metrics]


def site_day(inputs: DayInputs, site: str, today: Results, day_before: Results) -> SiteDay:
    """Compute the timelines of a site.

    A metric starts the day with its last status of the day before; without one it is missing until its first result.
    An announced downtime covers the endpoint and all above it; the metrics stay as they were measured.
    """
    carried = {measured: last.status for measured, last in _last(day_before).items()}
    metrics = {
        measured: _metric(inputs, site, measured, today.get(measured, ()), carried.get(measured))
        for endpoint in inputs.endpoints(site)
        for measured in _measured(endpoint, inputs.rules)
    }
    endpoints = {endpoint: _endpoint(inputs, endpoint, metrics) for endpoint in inputs.endpoints(site)}
    services = _services(inputs.rules, endpoints)
    return SiteDay(metrics, endpoints, services, _site(inputs, site, services))


def _last(results: Results) -> dict[Measured, Result]:
    return {
        measured: max(found, key=lambda result: (result.second, SEVERITY[result.status]))
        for measured, each in results.items()
        if (found := list(each))
    }


def _measured(endpoint: Endpoint, rules: Rules) -> list[Measured]:
    return [Measured(*endpoint, metric) for metric in rules.metrics[endpoint.service]]


def _metric(
    inputs: DayInputs, site: str, measured: Measured, results: Iterable[Result], carried: str | None
) -> Timeline:
    defaults = inputs.rules.defaults
    line = holding(carried or defaults.missing, ((result.second, result.status) for result in results))
    excluded = inputs.exceptions.metric_excluded(inputs.day, site, measured.endpoint, measured.metric)
    return overridden(line, excluded, defaults.unknown)


def _endpoint(inputs: DayInputs, endpoint: Endpoint, metrics: Mapping[Measured, Timeline]) -> Timeline:
    rules = inputs.rules
    joined = combined(rules.metric_operation, [metrics[each] for each in _measured(endpoint, rules)])
    return overridden(joined, inputs.exceptions.down(inputs.day, endpoint), rules.defaults.down)


def _services(rules: Rules, endpoints: Mapping[Endpoint, Timeline]) -> dict[str, Timeline]:
    """Join the endpoints of each service; a service in several groups comes together as its first group says."""
    operations = {name: operation for group in reversed(rules.groups) for name, operation in group.services.items()}
    lines: dict[str, list[Timeline]] = {}
    for endpoint, line in endpoints.items():
        lines.setdefault(endpoint.service, []).append(line)
    return {service: combined(operations[service], each) for service, each in sorted(lines.items())}


def _site(inputs: DayInputs, site: str, services: Mapping[str, Timeline]) -> Timeline | None:
    """Join services to groups and groups to the site; a group of which the site has no service does not count."""
    rules = inputs.rules
    groups = [
        combined(group.operation, present)
        for group in rules.groups
        if (present := [services[name] for name in group.services if name in services])
    ]
    if not groups:
        return None
    excluded = inputs.exceptions.site_excluded(inputs.day, site)
    return overridden(combined(rules.profile_operation, groups), excluded, rules.defaults.unknown)


NOTHING = SiteDay({}, {}, {}, None)
"""A day of which nothing is known."""
