"""The three profiles of a report: which metrics count, how they come together, and what the statuses mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import msgspec

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.availability.documents import single
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.statuses import AND, OR, STATUSES, Operation

Status = Literal["OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL"]


class ServiceMetrics(msgspec.Struct, frozen=True):
    """The metrics of a service that count."""

    service: str
    metrics: list[str]


class MetricProfile(msgspec.Struct, frozen=True):
    """Which metrics of which services count."""

    services: list[ServiceMetrics]
    name: str = ""


class ServiceOperation(msgspec.Struct, frozen=True):
    """How the endpoints of a service come together."""

    name: str
    operation: str


class ServiceGroup(msgspec.Struct, frozen=True):
    """Services that can stand in for each other, and how they come together."""

    name: str
    operation: str
    services: list[ServiceOperation]


class AggregationProfile(msgspec.Struct, frozen=True):
    """How metrics become endpoints, endpoints services, services groups, and groups a site."""

    groups: list[ServiceGroup]
    metric_operation: str = "AND"
    profile_operation: str = "AND"
    endpoint_group: str = "sites"
    name: str = ""


class NothingCounts(ValueError):
    """A metric profile has no service that is in a group of the aggregation profile."""


class Row(msgspec.Struct, frozen=True):
    """A line of a truth table: `a` and `b` give `x`."""

    a: Status
    b: Status
    x: Status


class TruthTable(msgspec.Struct, frozen=True):
    """An operation as its truth table; a pair may stand in either order."""

    name: str
    truth_table: list[Row]


class Defaults(msgspec.Struct, frozen=True):
    """The statuses of what is in downtime, without any result, and not to be counted."""

    down: Status = "DOWNTIME"
    missing: Status = "MISSING"
    unknown: Status = "UNKNOWN"


class OperationsProfile(msgspec.Struct, frozen=True):
    """What the statuses mean, and the truth tables of the operations."""

    available_states: tuple[Status, ...] = ("OK", "WARNING")
    defaults: Defaults = Defaults()
    operations: tuple[TruthTable, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of services with its operations resolved."""

    operation: Operation
    services: Mapping[str, Operation]


@dataclass(frozen=True, slots=True)
class Rules:
    """The profiles as a computation uses them."""

    metrics: Mapping[str, tuple[str, ...]]
    """The metrics of each service that counts: one that is in the metric profile and in a group."""
    metric_operation: Operation
    profile_operation: Operation
    groups: tuple[Group, ...]
    available: tuple[str, ...] = ("OK", "WARNING")
    defaults: Defaults = Defaults()

    @classmethod
    def of(cls, metrics: MetricProfile, aggregation: AggregationProfile, operations: OperationsProfile) -> Self:
        """Put three profiles together.

        Raises:
            ValueError: an operation is named that is not defined, or whose truth table is not complete; nothing counts.
        """
        known = {"AND": AND, "OR": OR, **{table.name: _operation(table) for table in operations.operations}}
        groups = tuple(
            Group(_named(known, group.operation), {s.name: _named(known, s.operation) for s in group.services})
            for group in aggregation.groups
        )
        grouped = {service for group in groups for service in group.services}
        counting = {s.service: tuple(sorted(set(s.metrics))) for s in metrics.services if s.metrics}
        both = {service: counting[service] for service in sorted(counting.keys() & grouped)}
        if not both:
            raise NothingCounts("no service is both in the metric profile and in a group of the aggregation profile")
        return cls(
            metrics=both,
            metric_operation=_named(known, aggregation.metric_operation),
            profile_operation=_named(known, aggregation.profile_operation),
            groups=groups,
            available=tuple(sorted(set(operations.available_states))),
            defaults=operations.defaults,
        )


class Operations(NamedTuple):
    """How statuses come together, as two files say."""

    aggregation: AggregationProfile
    operations: OperationsProfile
    option: str
    """The option to name when the two do not fit."""

    @classmethod
    def read(cls, options: Options) -> Self:
        """Read the files; without an operations profile the usual statuses and orders hold.

        Raises:
            WrongOption: a file cannot be used; names the file and the field.
        """
        aggregation = single("aggregation_profile", options.aggregation_profile, AggregationProfile)
        if not options.operations_profile:
            return cls(aggregation, OperationsProfile(), "aggregation_profile")
        operations = single("operations_profile", options.operations_profile, OperationsProfile)
        return cls(aggregation, operations, "operations_profile")

    def rules(self, metrics: MetricProfile) -> Rules:
        """Put a metric profile to it; raises `WrongOption` if they do not fit."""
        try:
            return Rules.of(metrics, self.aggregation, self.operations)
        except ValueError as error:
            raise WrongOption(self.option, str(error)) from error


def _operation(table: TruthTable) -> Operation:
    """Read a truth table: a pair holds in both orders, and a status with itself gives itself if the table is silent."""
    pairs: dict[tuple[str, str], str] = {(status, status): status for status in STATUSES}
    for row in table.truth_table:
        pairs[row.b, row.a] = row.x
    for row in table.truth_table:
        pairs[row.a, row.b] = row.x
    return Operation(table.name, pairs)


def _named(known: Mapping[str, Operation], name: str) -> Operation:
    if name not in known:
        raise ValueError(f"operation {name} is not known; there are {', '.join(sorted(known))}")
    return known[name]
