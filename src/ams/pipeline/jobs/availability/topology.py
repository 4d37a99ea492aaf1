"""What is monitored: sites, their endpoints and larger groups; and when something does not count as it was measured.

A downtime, announced before, covers an endpoint. A recomputation request, made afterwards, takes sites, metrics or
monitoring hosts out for a time: what it names counts as unknown then. A request that is `pending` or `rejected` changes
nothing, one that is withdrawn gives the figures back as they were.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from ams.pipeline.jobs.availability.profiles import Defaults
from ams.pipeline.jobs.availability.timelines import Span

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


class Place(NamedTuple):
    """Where in a site a status holds: at a metric of an endpoint, an endpoint, a service, or the site itself."""

    service: str = ""
    hostname: str = ""
    metric: str = ""

    @property
    def level(self) -> str:
        """What it is, in the word that tables and events have for it."""
        return ("endpoint_group", "service", "endpoint", "metric")[sum(map(bool, self))]

    def above(self) -> "tuple[Place, Place, Place, Place]":
        """Return it, its endpoint, its service and its site."""
        return self, Place(self.service, self.hostname), Place(self.service), Place()


class Tags(msgspec.Struct, frozen=True):
    """The tags of an endpoint that this computation reads."""

    monitored: str = ""
    production: str = ""
    info_url: str = msgspec.field(name="info_URL", default="")


class EndpointItem(msgspec.Struct, frozen=True):
    """An endpoint of a site, as the topology lists it."""

    group: str
    service: str
    hostname: str
    date: str = ""
    """Since which day, `2024-03-05`; items without one hold from ever on."""
    tags: Tags = Tags()


class GroupItem(msgspec.Struct, frozen=True):
    """A site as part of a larger group."""

    group: str
    subgroup: str
    date: str = ""


def sites_of(items: Iterable[EndpointItem]) -> dict[str, dict[Place, str]]:
    """Return of each site the endpoints that are monitored and in production, with their pages, which may be empty.

    An item without service or host is no endpoint.
    """
    held: dict[str, dict[Place, str]] = {}
    for item in items:
        if item.service and item.hostname and item.tags.monitored == item.tags.production == "1":
            held.setdefault(item.group, {})[Place(item.service, item.hostname)] = item.tags.info_url
    return {site: dict(sorted(endpoints.items())) for site, endpoints in sorted(held.items())}


def moment(text: str) -> int:
    """Read a time in UTC, `2024-03-05T10:20:30Z`, as seconds since 1970.

    Raises:
        ValueError: it is written otherwise, or there is no such time.
    """
    if not _WRITTEN.fullmatch(text):
        raise ValueError("a time is written as 2024-03-05T10:20:30Z")
    return int(datetime.fromisoformat(text).timestamp())


def midnight(day: str) -> int:
    """Return the beginning of a day, `2024-03-05`, in seconds since 1970."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


class Period(msgspec.Struct, frozen=True):
    """From a time up to, and without, another, both written as `2024-03-05T10:20:30Z`."""

    start_time: str
    end_time: str

    def __post_init__(self) -> None:
        """Refuse times that cannot be read, or that end before they start."""
        if moment(self.end_time) < moment(self.start_time):
            raise ValueError("end_time lies before start_time")

    def on(self, day: str, status: str) -> Span:
        """Return it as seconds of a day, which may lie outside of the day."""
        return Span(moment(self.start_time) - midnight(day), moment(self.end_time) - midnight(day), status)


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


class MonitoringHost(Period, frozen=True):
    """A monitoring host whose results are not to be trusted for a time."""

    host: str


class Request(Period, frozen=True):
    """A request to compute a time anew without some of what was measured."""

    reason: str = ""
    status: Literal["pending", "approved", "rejected", "running", "done"] = "approved"
    report: str = ""
    exclude: list[str] = []
    """Sites."""
    exclude_metrics: list[MetricScope] = []
    exclude_monitoring_source: list[MonitoringHost] = []

    def is_about(self, report: str) -> bool:
        """Whether it is to be followed for a report; one that names none is about all."""
        return self.status not in ("pending", "rejected") and self.report in ("", report)


class Override(NamedTuple):
    """A status that holds for a time, whatever was measured."""

    level: str
    names: tuple[str | None, ...]
    """Site, service, hostname and metric; None is any."""
    span: Span

    def covers(self, site: str, place: Place) -> bool:
        """Whether it is about a place in a site."""
        named = zip(self.names, (site, *place), strict=True)
        return self.level == place.level and all(asked in (None, name) for asked, name in named)


def overrides(
    day: str, downtimes: Iterable[Downtime], requests: Iterable[Request], defaults: Defaults
) -> Iterator[Override]:
    """Give what downtimes and requests put in the place of what was measured, in seconds of a day."""
    for each in downtimes:
        yield Override("endpoint", (None, each.service, each.hostname, ""), each.on(day, defaults.down))
    for request in requests:
        span = request.on(day, defaults.unknown)
        yield from (Override("endpoint_group", (site, "", "", ""), span) for site in request.exclude)
        for scope in request.exclude_metrics:
            names = (scope.group or None, scope.service or None, scope.hostname or None, scope.metric)
            yield Override("metric", names, span)
