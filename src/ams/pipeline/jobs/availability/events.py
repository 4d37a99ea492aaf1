"""Status events: what to tell when a status changes, and again while a bad one lasts.

An event belongs to a level (`metric`, `endpoint`, `service`, `endpoint_group`). On the higher levels it also names its
cause: the metric whose change at that second moved the level, or only the endpoint if a downtime did.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ams.pipeline.jobs.availability.documents import moment, written
from ams.pipeline.jobs.availability.sites import DayInputs, Measured, Result, Results, SiteDay
from ams.pipeline.jobs.availability.statuses import SEVERITY
from ams.pipeline.jobs.availability.timelines import DAY, Change, Timeline
from ams.pipeline.jobs.availability.topology import Endpoint


class Happening(NamedTuple):
    """A change of a level, or its reminder."""

    second: int
    status: str
    previous: Change
    """What held before, and since when, at the earliest since the beginning of the day before."""
    reminder: bool = False


class Line(NamedTuple):
    """The statuses of a level over two days; seconds count from the midnight between, so the day before is negative."""

    changes: tuple[Change, ...]

    @classmethod
    def of(cls, eve: Timeline | None, today: Timeline) -> "Line":
        """Put two days together; a level that did not exist on the day before begins with the day itself."""
        before = [Change(second - DAY, status) for second, status in eve.changes] if eve else []
        after = list(today.changes)
        if before and before[-1].status == after[0].status:
            del after[0]
        return cls((*before, *after))

    def happenings(self, available: Collection[str], repeat: int) -> Iterator[Happening]:
        """Give what happens on the day itself: changes, and each `repeat` seconds that a bad status has lasted."""
        for number, change in enumerate(self.changes):
            previous = self.changes[max(number - 1, 0)]
            if change.second >= 0 and number > 0:
                yield Happening(change.second, change.status, previous)
            if change.status in available:
                continue
            end = self.changes[number + 1].second if number + 1 < len(self.changes) else DAY
            for second in range(change.second + repeat, end, repeat):
                if second >= 0:
                    yield Happening(second, change.status, change, reminder=True)

    def at(self, second: int) -> str:
        """Say which status holds at a second."""
        return self.changes[self._place(second)].status

    def four(self, second: int) -> tuple[Change, Change]:
        """Return the status that holds at a second and the one before it, each with its beginning."""
        place = self._place(second)
        return self.changes[place], self.changes[max(place - 1, 0)]

    def changed(self, second: int) -> bool:
        """Whether a status began at exactly this second."""
        return self.changes[self._place(second)].second == second

    def _place(self, second: int) -> int:
        return max(bisect_right(self.changes, second, key=lambda change: change.second) - 1, 0)


class Place(NamedTuple):
    """Where something happened; the parts below its level tell the cause and may be empty."""

    service: str = ""
    hostname: str = ""
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Teller:
    """Makes the events of one site on one day."""

    report: str
    site: str
    inputs: DayInputs
    metrics: Mapping[Measured, Line]
    endpoints: Mapping[Endpoint, Line]
    services: Mapping[str, Line]
    own: Line
    results: Results
    measured: Mapping[Endpoint, Sequence[Measured]]
    """The metrics of each endpoint."""

    def events(self, repeat: int) -> Iterator[dict[str, Any]]:
        """Give all events, level by level, each in the shape that status events have as JSON."""
        available = self.inputs.rules.available
        for level, name, line in self._lines():
            # A reminder of a day that is not over must not be told before its time.
            due = (each for each in line.happenings(available, repeat) if each.second <= self.inputs.until)
            for happening in due:
                yield self._event(level, name, happening)

    def _lines(self) -> Iterator[tuple[str, Measured | Endpoint | str, Line]]:
        yield from (("metric", name, line) for name, line in self.metrics.items())
        yield from (("endpoint", name, line) for name, line in self.endpoints.items())
        yield from (("service", name, line) for name, line in self.services.items())
        yield "endpoint_group", self.site, self.own

    def _event(self, level: str, name: Measured | Endpoint | str, happening: Happening) -> dict[str, Any]:
        second = happening.second
        place = self._cause(level, name, happening)
        result = self._result(place, second)
        repeat = "true" if happening.reminder else "false"
        return {
            "report": self.report,
            "type": level,
            "date": self.inputs.day.replace("-", ""),
            "endpoint_group": self.site,
            **place._asdict(),
            "status": happening.status,
            "prev_status": happening.status if happening.reminder else happening.previous.status,
            "ts_monitored": self._time(second),
            "prev_ts": self._time(happening.previous.second),
            "monitoring_host": result.monitoring_host,
            "summary": result.summary,
            "message": result.message,
            "hostname_url": self.inputs.sites[self.site].get(Endpoint(place.service, place.hostname), ""),
            "repeat": repeat,
            "reminder": repeat,
            **self._fours(place, second),
            **self._neighbours(level, place, second),
        }

    def _cause(self, level: str, name: Measured | Endpoint | str, happening: Happening) -> Place:
        """Find what moved the level, or holds it: of what changed at that second, first what now has its status."""
        if isinstance(name, Measured):
            return Place(*name)
        below = self._below(level, name)
        moved = [each for each in below if self._line(each).changed(happening.second)]
        same = [each for each in moved or below if self._line(each).at(happening.second) == happening.status]
        if same or moved:
            return Place(*(same or moved)[0])
        return Place(name) if level == "service" and isinstance(name, str) else Place()

    def _below(self, level: str, name: Endpoint | str) -> list[Measured | Endpoint]:
        """List the metrics of a level, and then its endpoints."""
        endpoints = [each for each in self.endpoints if level == "endpoint_group" or name in (each, each.service)]
        return [*(metric for each in endpoints for metric in self.measured[each]), *endpoints]

    def _line(self, name: Measured | Endpoint) -> Line:
        return self.metrics[name] if isinstance(name, Measured) else self.endpoints[name]

    def _result(self, place: Place, second: int) -> Result:
        found = [each for each in self.results.get(Measured(*place), ()) if each.second == second]
        return max(found, key=lambda each: SEVERITY[each.status], default=Result(second, ""))

    def _fours(self, place: Place, second: int) -> dict[str, list[str]]:
        """Tell of each level on the way up: status, previous status, and since when each."""
        lines = {
            "status_metric": self.metrics.get(Measured(*place)),
            "status_endpoint": self.endpoints.get(Endpoint(place.service, place.hostname)),
            "status_service": self.services.get(place.service),
            "status_egroup": self.own,
        }
        return {name: self._four(line, second) for name, line in lines.items()}

    def _four(self, line: Line | None, second: int) -> list[str]:
        if line is None:
            return []
        now, previous = line.four(second)
        return [now.status, previous.status, self._time(now.second), self._time(previous.second)]

    def _neighbours(self, level: str, place: Place, second: int) -> dict[str, Sequence[str]]:
        """Tell the metrics of the endpoint, and on the level of the site all its endpoints."""
        here = Endpoint(place.service, place.hostname)
        metrics = {each.metric: self.metrics[each].at(second) for each in self.measured.get(here, ())}
        around = {each: line.at(second) for each, line in self.endpoints.items()} if level == "endpoint_group" else {}
        return {
            "metric_names": list(metrics),
            "metric_statuses": list(metrics.values()),
            "group_endpoints": [each.hostname for each in around],
            "group_services": [each.service for each in around],
            "group_statuses": list(around.values()),
        }

    def _time(self, second: int) -> str:
        return _written(self.inputs.day, second)


@lru_cache(maxsize=DAY)
def _written(day: str, second: int) -> str:
    """Write a second of a day as a time; the same few are written over and over."""
    return written(moment(f"{day}T00:00:00Z") + second)


def teller(report: str, site: str, inputs: DayInputs, eve: SiteDay, today: SiteDay, results: Results) -> Teller | None:
    """Put two days of a site together; None if no endpoint of it counts on the day."""
    if today.site is None:
        return None
    measured: dict[Endpoint, list[Measured]] = {}
    for each in today.metrics:
        measured.setdefault(each.endpoint, []).append(each)
    return Teller(
        report,
        site,
        inputs,
        {name: Line.of(eve.metrics.get(name), line) for name, line in today.metrics.items()},
        {name: Line.of(eve.endpoints.get(name), line) for name, line in today.endpoints.items()},
        {name: Line.of(eve.services.get(name), line) for name, line in today.services.items()},
        Line.of(eve.site, today.site),
        results,
        measured,
    )


EVENT_WORDS = (
    *("report", "type", "date", "endpoint_group", "service", "hostname", "metric", "status", "prev_status"),
    *("ts_monitored", "prev_ts", "monitoring_host", "summary", "message", "hostname_url", "repeat", "reminder"),
)
EVENT_LISTS = (
    *("status_metric", "status_endpoint", "status_service", "status_egroup", "metric_names", "metric_statuses"),
    *("group_endpoints", "group_services", "group_statuses"),
)
"""The fields of an event: words, and lists of words."""


def to_json(event: Mapping[str, Any]) -> str:
    """Write an event as it goes over the wire."""
    return msgspec.json.encode(event).decode()
