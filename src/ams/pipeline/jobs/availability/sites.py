"""One site on one day: timelines of all its places from results, and status events from timelines.

An event tells that a status changed, and again that a bad one lasts. It belongs to a level (`metric`, `endpoint`,
`service`, `endpoint_group`). On the higher levels it also names its cause: the metric whose change at that second moved
the level, or only the endpoint if a downtime did.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from ams.pipeline.jobs.availability import timelines
from ams.pipeline.jobs.availability.documents import Place, midnight
from ams.pipeline.jobs.availability.inputs import DayInputs
from ams.pipeline.jobs.fields import group


class ProbeResult(NamedTuple):
    """Result of a probe."""

    second: int  # seconds from midnight of its day, UTC
    status: str
    monitoring_host: str = ""
    summary: str = ""
    message: str = ""


Results = Mapping[Place, Iterable[ProbeResult]]
Timelines = Mapping[Place, timelines.Timeline]  # of a site on one day, by place; empty if no endpoint counts


def timelines_of(inputs: DayInputs, site: str, today: Results, day_before: Results) -> Timelines:
    """Compute the timelines of a site.

    A metric starts the day with its last status of the day before, or is missing until its first result. An announced
    downtime covers the endpoint and all above it; the metrics stay as they were measured.
    """
    lines: dict[Place, timelines.Timeline] = {}

    def put(place: Place, line: timelines.Timeline) -> None:
        lines[place] = timelines.overridden(line, inputs.laid_over(site, place))

    rules, endpoints = inputs.rules, inputs.endpoints(site)
    named = rules.metrics
    metrics = {each: [each._replace(metric=name) for name in named[each.service]] for each in endpoints}
    for place in chain.from_iterable(metrics.values()):
        last = max(day_before.get(place, ()), key=lambda it: (it.second, timelines.SEVERITY[it.status]), default=None)
        results = ((each.second, each.status) for each in today.get(place, ()))
        put(place, timelines.holding(last.status if last else rules.defaults.missing, results))
    for endpoint, below in metrics.items():
        put(endpoint, timelines.combine(rules.metric_operation, [lines[each] for each in below]))
    for service, below in sorted(group((Place(endpoint.service), endpoint) for endpoint in metrics).items()):
        put(service, timelines.combine(rules.operation(service.service), [lines[each] for each in below]))
    groups = [
        timelines.combine(each.operation, present)
        for each in rules.groups
        if (present := [lines[Place(name)] for name in each.services if Place(name) in lines])
    ]
    if groups:  # groups without a service at the site do not count
        put(Place(), timelines.combine(rules.profile_operation, groups))
    return lines


class _Happening(NamedTuple):
    second: int
    status: str
    previous: timelines.StatusChange  # what held, and since when, at the earliest since the beginning of the day before
    reminder: bool = False


def events_of(
    report: str, site: str, inputs: DayInputs, eve: Timelines, today: Timelines, results: Results, repeat: int
) -> Iterator[dict[str, Any]]:
    """Yield a site's events (`figures.EVENTS`) by level; bad statuses repeat each `repeat` seconds."""
    lines = {place: timelines.join_days(eve.get(place), line) for place, line in today.items()}
    below = group((place, each) for each in lines if each.hostname for place in {*each.above()})
    teller = _Teller(report, site, inputs, lines, below, results)
    for place, line in lines.items():
        for happening in _happenings(line, inputs.rules.available, repeat):
            if happening.second <= inputs.until:  # on a day that is not over, repeats must not be early
                yield teller.event(place, happening)


def _happenings(line: timelines.Timeline, available: Collection[str], repeat: int) -> Iterator[_Happening]:
    previous = None
    for start, end, status in line.spans():
        change = timelines.StatusChange(start, status)
        if start >= 0 and previous:
            yield _Happening(start, status, previous)
        if status not in available:
            for second in range(start + repeat, end, repeat):
                if second >= 0:
                    yield _Happening(second, status, change, reminder=True)
        previous = change


class _Teller(NamedTuple):
    report: str
    site: str
    inputs: DayInputs
    lines: Timelines  # of two days; seconds count from the midnight between
    below: Mapping[Place, Sequence[Place]]
    results: Results

    def event(self, place: Place, happening: _Happening) -> dict[str, Any]:
        second, repeat = happening.second, str(happening.reminder).lower()
        now = {each: self._last_two(each, happening.second)[0] for each in self.below[place]}
        moved = [each for each, change in now.items() if change.second == happening.second]
        same = [each for each in moved or now if now[each].status == happening.status]
        cause = (same or moved or [Place(place.service)])[0]
        found = [each for each in self.results.get(cause, ()) if each.second == second]
        result = max(found, key=lambda each: timelines.SEVERITY[each.status], default=ProbeResult(second, ""))
        return {
            "report": self.report,
            "type": place.level,
            "endpoint_group": self.site,
            **cause._asdict(),
            "status": happening.status,
            "prev_status": happening.status if happening.reminder else happening.previous.status,
            "ts_monitored": self._time(second),
            "prev_ts": self._time(happening.previous.second),
            "monitoring_host": result.monitoring_host,
            "summary": result.summary,
            "message": result.message,
            "hostname_url": self.inputs.sites[self.site].get(cause.above()[1], ""),
            "repeat": repeat,
            "reminder": repeat,
            **self._status_pairs(cause, second),
            **self._neighbours(place, cause, second),
        }

    def _last_two(self, place: Place, second: int) -> tuple[timelines.StatusChange, timelines.StatusChange]:
        changes = self.lines[place].changes
        number = self.lines[place].number(second)
        return changes[number], changes[max(number - 1, 0)]

    def _status_pairs(self, cause: Place, second: int) -> dict[str, list[str]]:
        fours: dict[str, list[str]] = {f"status_{name}": [] for name in ("metric", "endpoint", "service", "egroup")}
        for place in cause.above():
            now, previous = self._last_two(place, second)
            four = [now.status, previous.status, self._time(now.second), self._time(previous.second)]
            fours["status_egroup" if place == Place() else f"status_{place.level}"] = four
        return fours

    def _neighbours(self, place: Place, cause: Place, second: int) -> dict[str, Sequence[str]]:
        metrics = [each for each in self.below[cause.above()[1]] if each.metric] if cause.hostname else []
        around = [each for each in self.below[place] if not each.metric] if place == Place() else []
        return {
            "metric_names": [each.metric for each in metrics],
            "metric_statuses": [self.lines[each].at(second) for each in metrics],
            "group_endpoints": [each.hostname for each in around],
            "group_services": [each.service for each in around],
            "group_statuses": [self.lines[each].at(second) for each in around],
        }

    def _time(self, second: int) -> str:
        return _format_second(self.inputs.day, second)


@lru_cache(maxsize=100_000)
def _format_second(day: str, second: int) -> str:
    return f"{datetime.fromtimestamp(midnight(day) + second, UTC):%Y-%m-%dT%H:%M:%SZ}"
