"""What does not count as it was measured: downtimes announced before, and recomputations asked for afterwards.

A downtime covers an endpoint. A recomputation request takes sites, metrics or monitoring hosts out for a time: what it
names counts as unknown then. A request that is `pending` or `rejected` changes nothing, one that is withdrawn gives the
figures back as they were.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, Self

import msgspec

from ams.pipeline.jobs.availability.documents import moment
from ams.pipeline.jobs.availability.timelines import DAY, Window
from ams.pipeline.jobs.availability.topology import Endpoint

State = Literal["pending", "approved", "rejected", "running", "done"]


class Period(msgspec.Struct, frozen=True):
    """From a time up to, and without, another, both written as `2024-03-05T10:20:30Z`."""

    start_time: str
    end_time: str

    def __post_init__(self) -> None:
        """Refuse times that cannot be read, or that end before they start."""
        if moment(self.end_time) < moment(self.start_time):
            raise ValueError("end_time lies before start_time")

    def on(self, day: str) -> Window:
        """Return it as seconds of a day, which may lie outside of the day."""
        midnight = moment(f"{day}T00:00:00Z")
        return Window(moment(self.start_time) - midnight, moment(self.end_time) - midnight)

    def touches(self, day: str) -> bool:
        """Whether it covers a second of the day."""
        window = self.on(day)
        return window.start < DAY and window.end > 0


class Downtime(Period, frozen=True):
    """When an endpoint was announced to be down."""

    hostname: str
    service: str


class MetricScope(msgspec.Struct, frozen=True):
    """A metric, everywhere or only on a host, for a service or in a site."""

    metric: str
    hostname: str = ""
    service: str = ""
    group: str = ""

    def covers(self, site: str, endpoint: Endpoint, metric: str) -> bool:
        """Whether it names this metric of this endpoint."""
        asked = (self.group, self.service, self.hostname)
        return metric == self.metric and all(
            not name or name == here for name, here in zip(asked, (site, *endpoint), strict=True)
        )


class MonitoringHost(Period, frozen=True):
    """A monitoring host whose results are not to be trusted for a time."""

    host: str


class Request(Period, frozen=True):
    """A request to compute a time anew without some of what was measured."""

    reason: str = ""
    status: State = "approved"
    report: str = ""
    exclude: list[str] = []
    """Sites."""
    exclude_metrics: list[MetricScope] = []
    exclude_monitoring_source: list[MonitoringHost] = []

    @property
    def stands(self) -> bool:
        """Whether it is to be followed."""
        return self.status not in ("pending", "rejected")

    def periods(self) -> Iterator[Period]:
        """Give the times it speaks of."""
        if self.exclude or self.exclude_metrics:
            yield self
        yield from self.exclude_monitoring_source


@dataclass(frozen=True, slots=True)
class Exceptions:
    """Downtimes and requests, to be asked about one day."""

    downtimes: tuple[Downtime, ...] = ()
    requests: tuple[Request, ...] = ()

    @classmethod
    def of(cls, downtimes: Iterable[Downtime], requests: Iterable[Request], report: str) -> Self:
        """Keep the requests that stand and that are about this report, or about none by name."""
        followed = tuple(request for request in requests if request.stands and request.report in ("", report))
        return cls(tuple(downtimes), followed)

    def about(self, day: str) -> Self:
        """Keep what touches a day or the one before it, whose last statuses go over into it."""
        eve = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
        return type(self)(
            tuple(each for each in self.downtimes if each.touches(day) or each.touches(eve)),
            tuple(r for r in self.requests if any(p.touches(day) or p.touches(eve) for p in r.periods())),
        )

    def down(self, day: str, endpoint: Endpoint) -> list[Window]:
        """Return when an endpoint was announced to be down."""
        return [each.on(day) for each in self.downtimes if (each.service, each.hostname) == endpoint]

    def site_excluded(self, day: str, site: str) -> list[Window]:
        """Return when a site counts as unknown."""
        return [request.on(day) for request in self.requests if site in request.exclude]

    def metric_excluded(self, day: str, site: str, endpoint: Endpoint, metric: str) -> list[Window]:
        """Return when a metric of an endpoint counts as unknown."""
        return [
            request.on(day)
            for request in self.requests
            if any(scope.covers(site, endpoint, metric) for scope in request.exclude_metrics)
        ]

    def distrusted(self) -> list[tuple[str, int, int]]:
        """Return the monitoring hosts not to be trusted: host, start and end in seconds since 1970."""
        return [
            (source.host, moment(source.start_time), moment(source.end_time))
            for request in self.requests
            for source in request.exclude_monitoring_source
        ]
