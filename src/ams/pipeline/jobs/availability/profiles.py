"""The three profiles of a report: which metrics count, how they come together, and what the statuses mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import msgspec

from ams.pipeline.jobs.availability.timelines import AND, OR, STATUSES, Operation

Status = Literal["OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL"]


class ServiceMetrics(msgspec.Struct, frozen=True):
    """The metrics of a service that count."""

    service: str
    metrics: list[str]


class MetricProfile(msgspec.Struct, frozen=True):
    """Which metrics of which services count."""

    services: list[ServiceMetrics]


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


class Row(msgspec.Struct, frozen=True):
    """A line of a truth table: `a` and `b` give `x`."""

    a: Status
    b: Status
    x: Status


class TruthTable(msgspec.Struct, frozen=True):
    """An operation as its truth table; a pair may stand in either order, a status with itself may be left out."""

    name: str
    truth_table: list[Row]

    def operation(self) -> Operation:
        """Return what it says; raises `ValueError` for a table that is not complete or depends on the order."""
        pairs: dict[tuple[str, str], str] = {(status, status): status for status in STATUSES}
        pairs.update({(row.b, row.a): row.x for row in self.truth_table})
        pairs.update({(row.a, row.b): row.x for row in self.truth_table})
        return Operation(self.name, pairs)


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


class NothingCounts(ValueError):
    """A metric profile has no service that is in a group of the aggregation profile."""


class Group(NamedTuple):
    """Services that can stand in for each other, with their operations."""

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

    def operation(self, service: str) -> Operation:
        """Say how the endpoints of a service come together; of one in several groups as its first group says."""
        return next(group.services[service] for group in self.groups if service in group.services)

    def counts(self, status: str) -> dict[str, bool]:
        """Say as what a status counts, by the columns that have its seconds."""
        return {
            "up_seconds": status in self.available,
            "unknown_seconds": status in (self.defaults.unknown, self.defaults.missing),
            "down_seconds": status == self.defaults.down,
        }

    @classmethod
    def of(cls, metrics: MetricProfile, aggregation: AggregationProfile, operations: OperationsProfile) -> Self:
        """Put three profiles together.

        Raises:
            ValueError: an operation is named that is not defined, or whose truth table is not complete; nothing counts.
        """
        known = {"AND": AND, "OR": OR, **{table.name: table.operation() for table in operations.operations}}

        def named(name: str) -> Operation:
            if name not in known:
                raise ValueError(f"operation {name} is not known; there are {', '.join(sorted(known))}")
            return known[name]

        groups = tuple(
            Group(named(group.operation), {each.name: named(each.operation) for each in group.services})
            for group in aggregation.groups
        )
        counting = {
            each.service: tuple(sorted({*each.metrics} - {""})) for each in metrics.services if any(each.metrics)
        }
        grouped = {service for group in groups for service in group.services}
        both = {service: counting[service] for service in sorted(counting.keys() & grouped)}
        if not both:
            raise NothingCounts("no service is both in the metric profile and in a group of the aggregation profile")
        return cls(
            both,
            named(aggregation.metric_operation),
            named(aggregation.profile_operation),
            groups,
            tuple(sorted(set(operations.available_states))),
            operations.defaults,
        )
