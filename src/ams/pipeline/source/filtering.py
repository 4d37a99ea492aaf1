"""Filters on offsets and publish times, which say that less needs to be read.

Spark looks at the rows all the same: a filter is only used to leave out what cannot pass it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

SKEW = timedelta(minutes=1)
"""How far the clocks of Kafka's brokers may be apart, and so the times of messages out of order."""

_EQUAL = (EqualTo, EqualNullSafe)
_LOWER = (GreaterThan, GreaterThanOrEqual, *_EQUAL)
_UPPER = (LessThan, LessThanOrEqual, *_EQUAL)


@dataclass(frozen=True, slots=True)
class Window:
    """What may pass the filters: offsets from `start` on, before `stop`, of messages published `since` to `until`."""

    start: int = 0
    stop: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def window(filters: Iterable[Filter]) -> Window:
    """Return what may pass all the filters, taken a little too wide."""
    found = Window()
    for each in filters:
        attribute, value = getattr(each, "attribute", ()), getattr(each, "value", None)
        if attribute == ("offset",) and isinstance(value, int):
            found = _by_offset(found, each, value)
        elif attribute == ("publish_time",) and isinstance(value, datetime) and value.tzinfo is not None:
            found = _by_time(found, each, value)
    return found


def _by_offset(found: Window, given: Filter, value: int) -> Window:
    if isinstance(given, _LOWER):
        found = replace(found, start=max(found.start, value))
    if isinstance(given, _UPPER):
        found = replace(found, stop=value + 1 if found.stop is None else min(found.stop, value + 1))
    return found


def _by_time(found: Window, given: Filter, value: datetime) -> Window:
    if isinstance(given, _LOWER):
        since = value - SKEW
        found = replace(found, since=since if found.since is None else max(found.since, since))
    if isinstance(given, _UPPER):
        until = value + SKEW
        found = replace(found, until=until if found.until is None else min(found.until, until))
    return found
