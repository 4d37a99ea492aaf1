"""Profiles, topology, downtimes and recomputation requests, from files and messages.

Three profiles define the metrics that count, how they are combined and what statuses mean. The topology has the
endpoints and groups of sites. A downtime, announced before, covers an endpoint. A recomputation request, made
afterwards, excludes sites, metrics or monitoring hosts for a time: they count as unknown. A request that is `pending`
or `rejected` changes nothing; a withdrawn one restores the figures.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

import msgspec

from ams.pipeline.jobs.availability.timelines import AND, OR, STATUSES, Operation, StatusSpan

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
Status = Literal["OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL"]
Profile = Mapping[str, list[str]]


class Document(msgspec.Struct, frozen=True):
    """Base of documents of the monitoring API."""

    NOT_TAKEN: ClassVar[frozenset[str]] = frozenset()
    """Ignored fields; `*` is any. All other unknown fields are an error."""


def unknown_field(kind: Any, value: Any, path: str = "$") -> str | None:
    """Return the path of an unknown field in a document; None if there is none."""
    if isinstance(value, list):
        [inner] = get_args(kind)[:1] or [None]
        return next(filter(None, (unknown_field(inner, each, f"{path}[{n}]") for n, each in enumerate(value))), None)
    if get_origin(kind) is not None or not isinstance(value, dict) or not issubclass(kind, Document):
        return None
    fields = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    for name, inner in value.items():
        if name in fields:
            found = unknown_field(fields[name], inner, f"{path}.{name}")
        else:
            found = None if kind.NOT_TAKEN & {name, "*"} else f"{path}.{name}"
        if found:
            return found
    return None


class _ServiceMetrics(Document, frozen=True):
    service: str
    metrics: list[str]


class MetricProfile(Document, frozen=True):
    """Which metrics of which services count."""

    NOT_TAKEN = frozenset({"id", "date", "name", "description"})
    services: list[_ServiceMetrics]


class _ServiceOperation(Document, frozen=True):
    name: str
    operation: str


class _ServiceGroup(_ServiceOperation, frozen=True):
    services: list[_ServiceOperation]


class AggregationProfile(Document, frozen=True):
    """Operations that combine metrics to endpoints, endpoints to services, services to groups, groups to a site."""

    NOT_TAKEN = frozenset({"id", "date", "name", "namespace", "endpoint_group", "metric_profile"})
    groups: list[_ServiceGroup]
    metric_operation: str = "AND"
    profile_operation: str = "AND"


class _Row(Document, frozen=True):
    a: Status
    b: Status
    x: Status


class _TruthTable(Document, frozen=True):
    """An operation as its truth table; a pair may stand in either order, a status with itself may be left out."""

    name: str
    truth_table: list[_Row]

    def operation(self) -> Operation:
        pairs: dict[tuple[str, str], str] = {(status, status): status for status in STATUSES}
        pairs.update({(row.b, row.a): row.x for row in self.truth_table})
        pairs.update({(row.a, row.b): row.x for row in self.truth_table})
        return Operation(self.name, pairs)


class Defaults(Document, frozen=True):
    """Statuses for downtime, for missing results, and for results that do not count."""

    down: Status = "DOWNTIME"
    missing: Status = "MISSING"
    unknown: Status = "UNKNOWN"


class OperationsProfile(Document, frozen=True):
    """Meaning of statuses, and truth tables of operations."""

    NOT_TAKEN = frozenset({"id", "date", "name"})
    available_states: tuple[Status, ...] = ("OK", "WARNING")
    defaults: Defaults = Defaults()
    operations: tuple[_TruthTable, ...] = ()


class ServiceGroup(NamedTuple):
    """Services that can stand in for each other, with their operations."""

    operation: Operation
    services: Mapping[str, Operation]


@dataclass(frozen=True, slots=True)
class ProfileRules:
    """The three profiles, combined for the computation."""

    metrics: Mapping[str, tuple[str, ...]]  # metrics by service, for services in the metric profile and in a group
    metric_operation: Operation
    profile_operation: Operation
    groups: tuple[ServiceGroup, ...]
    available: tuple[str, ...] = ("OK", "WARNING")
    defaults: Defaults = Defaults()

    def operation(self, service: str) -> Operation:
        """Return the operation that combines a service's endpoints; of several groups the first counts."""
        return next(group.services[service] for group in self.groups if service in group.services)

    def counts(self, status: str) -> dict[str, bool]:
        """Return which columns of seconds a status counts for."""
        return {
            "up_seconds": status in self.available,
            "unknown_seconds": status in (self.defaults.unknown, self.defaults.missing),
            "down_seconds": status == self.defaults.down,
        }

    @classmethod
    def of(cls, metrics: Profile, aggregation: AggregationProfile, operations: OperationsProfile) -> Self:
        """Combine three profiles. Raises `ValueError` for an undefined or incomplete operation."""
        known = {"AND": AND, "OR": OR, **{table.name: table.operation() for table in operations.operations}}

        def find(name: str) -> Operation:
            if name not in known:
                raise ValueError(f"operation {name} is not known; there are {', '.join(sorted(known))}")
            return known[name]

        groups = tuple(
            ServiceGroup(find(group.operation), {each.name: find(each.operation) for each in group.services})
            for group in aggregation.groups
        )
        grouped = {service for group in groups for service in group.services}
        counting = {
            service: tuple(sorted({*names} - {""}))
            for service, names in sorted(metrics.items())
            if service in grouped and any(names)
        }
        metric, profile = find(aggregation.metric_operation), find(aggregation.profile_operation)
        available = tuple(sorted(set(operations.available_states)))
        return cls(counting, metric, profile, groups, available, operations.defaults)


class Place(NamedTuple):
    """A place in a site: a metric of an endpoint, an endpoint, a service, or the site itself."""

    service: str = ""
    hostname: str = ""
    metric: str = ""

    @property
    def level(self) -> str:
        """Its level, as tables and events name it."""
        return ("endpoint_group", "service", "endpoint", "metric")[sum(map(bool, self))]

    def above(self) -> "tuple[Place, Place, Place, Place]":
        """Return it, its endpoint, its service and its site."""
        return self, Place(self.service, self.hostname), Place(self.service), Place()


class Tags(Document, frozen=True):
    """The tags of an endpoint that this computation reads."""

    NOT_TAKEN = frozenset({"*"})
    monitored: str = ""
    production: str = ""
    info_url: str = msgspec.field(name="info_URL", default="")


class EndpointItem(Document, frozen=True):
    """An endpoint of a site, as the topology lists it."""

    NOT_TAKEN = frozenset({"type", "notifications", "tenant"})
    group: str
    service: str
    hostname: str
    date: str = ""  # since which day, `2024-03-05`; items without one hold from ever on
    tags: Tags = Tags()


class GroupItem(Document, frozen=True):
    """A site as part of a larger group."""

    NOT_TAKEN = frozenset({"type", "tags", "notifications", "tenant"})
    group: str
    subgroup: str
    date: str = ""


def sites_of(items: Iterable[EndpointItem]) -> dict[str, dict[Place, str]]:
    """Return the monitored production endpoints of each site, with the URLs of their pages, which may be empty."""
    held: dict[str, dict[Place, str]] = {}
    for item in items:
        if item.service and item.hostname and item.tags.monitored == item.tags.production == "1":
            held.setdefault(item.group, {})[Place(item.service, item.hostname)] = item.tags.info_url
    return {site: dict(sorted(endpoints.items())) for site, endpoints in sorted(held.items())}


def moment(text: str) -> int:
    """Read a UTC time, `2024-03-05T10:20:30Z`, as seconds since 1970. Raises `ValueError`."""
    if not _WRITTEN.fullmatch(text):
        raise ValueError("a time is written as 2024-03-05T10:20:30Z")
    return int(datetime.fromisoformat(text).timestamp())


def midnight(day: str) -> int:
    """Return the beginning of a day, `2024-03-05`, in seconds since 1970."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


class Period(Document, frozen=True):
    """A period [start, end), with times such as `2024-03-05T10:20:30Z`."""

    start_time: str
    end_time: str

    def __post_init__(self) -> None:
        moment(self.start_time), moment(self.end_time)

    @property
    def is_reversed(self) -> bool:
        """True if it ends before it starts."""
        return moment(self.end_time) < moment(self.start_time)

    def on(self, day: str, status: str) -> StatusSpan:
        """Return the period in seconds of a day; it may exceed the day."""
        return StatusSpan(moment(self.start_time) - midnight(day), moment(self.end_time) - midnight(day), status)


class Downtime(Period, frozen=True):
    """An announced downtime of an endpoint."""

    NOT_TAKEN = frozenset({"classification", "description"})
    hostname: str
    service: str
    severity: str = ""  # `OUTAGE`, which is meant where nothing is said, or `WARNING`, in any case

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.severity.upper() not in ("", "OUTAGE", "WARNING"):
            raise ValueError(f"severity {self.severity[:20]!r} is neither OUTAGE nor WARNING")


class DowntimesOfDate(Document, frozen=True):
    """The downtimes that were known on a day, as the web API lists them."""

    NOT_TAKEN = frozenset({"id", "name"})
    date: str
    endpoints: list[Downtime] | None = None


class _MetricScope(Document, frozen=True):  # a metric, everywhere or only on a host, for a service or in a site
    metric: str
    hostname: str = ""
    service: str = ""
    group: str = ""
    timestamp: str = ""  # the hostname, where a version of the web API calls it so


class _StatusChange(Document, frozen=True):  # replaces measured results of a group, service, endpoint or metric
    state: Literal["OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL", "EXCLUDED"]
    group: str = ""
    service: str = ""
    hostname: str = ""
    metric: str = ""
    endpoint: str = ""  # the hostname, where it is called so

    def __post_init__(self) -> None:
        if not any(self.names):
            raise ValueError("names no group, service, hostname or metric")

    @property
    def names(self) -> tuple[str, str, str, str]:
        return self.group, self.service, self.hostname or self.endpoint, self.metric

    def over(self, span: StatusSpan) -> "Override":
        """Return it as an `Override` on the level of the last name it has."""
        last = max(place for place, name in enumerate(self.names) if name)
        names = (name or None if place <= last else "" for place, name in enumerate(self.names))
        return Override(("endpoint_group", "service", "endpoint", "metric")[last], tuple(names), span)


class _MonitoringHost(Period, frozen=True):  # its results do not count for the period
    host: str


class RecomputationRequest(Period, frozen=True):
    """A request to recompute a period without some results."""

    NOT_TAKEN = frozenset({"id", "requester_name", "requester_email", "timestamp", "history"})
    reason: str = ""
    status: Literal["pending", "approved", "rejected", "running", "done"] = "approved"
    report: str = ""
    exclude: list[str] = []  # sites
    exclude_metrics: list[_MetricScope] = []
    exclude_monitoring_source: list[_MonitoringHost] = []
    applied_status_changes: list[_StatusChange] = []

    def is_about(self, report: str) -> bool:
        """Return whether it applies to a report; without a name it applies to all."""
        return self.status not in ("pending", "rejected") and self.report in ("", report)


class Override(NamedTuple):
    """A status that replaces measured results for a period."""

    level: str
    names: tuple[str | None, ...]  # site, service, hostname and metric; None is any
    span: StatusSpan

    def covers(self, site: str, place: Place) -> bool:
        """Return whether it covers a place in a site."""
        named = zip(self.names, (site, *place), strict=True)
        return self.level == place.level and all(asked in (None, name) for asked, name in named)


def overrides(
    day: str, downtimes: Iterable[Downtime], requests: Iterable[RecomputationRequest], defaults: Defaults
) -> Iterator[Override]:
    """Return the overrides of downtimes and requests, in seconds of a day."""
    for each in downtimes:
        if each.severity.upper() != "WARNING":  # which only means a risk: measured results count
            yield Override("endpoint", (None, each.service, each.hostname, ""), each.on(day, defaults.down))
    for request in requests:
        span = request.on(day, defaults.unknown)
        yield from (Override("endpoint_group", (site, "", "", ""), span) for site in request.exclude)
        for scope in request.exclude_metrics:
            hostname = scope.hostname or scope.timestamp
            names = (scope.group or None, scope.service or None, hostname or None, scope.metric)
            yield Override("metric", names, span)
        # More specific ones come later and win; of equal ones the last wins.
        for change in sorted(request.applied_status_changes, key=lambda each: sum(map(bool, each.names))):
            state = defaults.unknown if change.state == "EXCLUDED" else change.state
            yield change.over(request.on(day, state))
