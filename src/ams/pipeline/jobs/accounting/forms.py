"""The forms usage records are written in: which keys each knows, which column a key fills, and what must hold.

A form is a table; `record` turns the keys and values of one record, whichever syntax they came in, into a row of
`columns.RECORD`. Whatever breaks a rule raises `Broken` with the key and the rule.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import values
from ams.pipeline.jobs.accounting.values import NOTHING

AHEAD: Final = timedelta(days=2)
"""How far ahead of our clock an end may be: clocks of sites are off."""

Row = dict[str, Any]
Key = tuple[str, Callable[[object], Any]]
Finish = Callable[[Row, datetime], None]
"""Checks a row against itself and the time now, and adds what follows from it, the month first of all."""


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of record in one syntax."""

    kind: str
    keys: Mapping[str, Key]
    required: frozenset[str]
    finish: Finish
    tolerant: bool = False
    """Whether keys that are not known are passed over, as in XML, where others may add their own."""


def record(form: Form, pairs: Iterable[tuple[str, object]], now: datetime) -> Row:
    """Return a record as a row; raises `Broken`."""
    row: Row = {"kind": form.kind}
    keys = form.keys
    seen = set()
    for name, value in pairs:
        key = keys.get(name)
        if key is None:
            if form.tolerant:
                continue
            raise Broken(f"unknown key {name[:40]!r}")
        if name in seen:
            raise Broken(f"{name} is given twice")
        seen.add(name)
        if value is None or (value.__class__ is str and value in NOTHING):
            continue
        try:
            row[key[0]] = key[1](value)
        except ValueError as error:
            raise Broken(f"{name} {error}") from None
    _need(form, row)
    form.finish(row, now)
    return row


def _need(form: Form, row: Row) -> None:
    for name in form.required:
        if row.get(form.keys[name][0]) is None:
            raise Broken(f"{name} is missing")


# What rows are finished with.


def take_apart_fqan(row: Row) -> None:
    """Fill VO, group and role from the first name of an FQAN, where the record does not say them itself.

    `/atlas/Role=production/Capability=NULL` is VO `atlas`, group `/atlas`, role `Role=production`; a text without a
    leading slash is the VO itself; `Role=NULL` is no role.
    """
    fqan = row.get("fqan")
    if fqan is None:
        return
    first = fqan.split(";", 1)[0].strip()
    if not first.startswith("/"):
        _fill(row, vo=first)
        return
    parts = first.split("/")[1:]
    groups = [part for part in parts if "=" not in part]
    role = next((part for part in parts if part.startswith("Role=") and part != "Role=NULL"), None)
    _fill(row, vo=groups[0] if groups else None, vo_group="/" + "/".join(groups) if groups else None, vo_role=role)


def _fill(row: Row, **found: str | None) -> None:
    for name, value in found.items():
        if value and row.get(name) is None:
            row[name] = value


def take_level(row: Row) -> None:
    """Turn ServiceLevelType and ServiceLevel, or the map of newer texts, into `levels`; both are there or neither."""
    benchmark, level = row.pop("benchmark_name", None), row.pop("service_level", None)
    if level is not None and not isinstance(level, str):
        level = str(level)
    try:
        if level is not None and level.startswith("{"):
            row["levels"] = values.levels(level)
        elif benchmark is not None and level is not None:
            row["levels"] = values.one_level(benchmark, level)
    except ValueError as error:
        raise Broken(f"ServiceLevel {error}") from None
    if (benchmark is None) != (level is None) and not (level or "").startswith("{"):
        raise Broken("ServiceLevel and ServiceLevelType go together")


def check_span(row: Row, now: datetime) -> None:
    """Check that the end is not before the start, nor more than two days ahead."""
    start, end = row.get("start_time"), row.get("end_time")
    if end is None:
        return
    if start is not None and end < start:
        raise Broken("EndTime is before StartTime")
    if end > now + AHEAD:
        raise Broken("EndTime is more than two days ahead")


def take_month(row: Row, now: datetime) -> None:
    """Turn Year and Month into `month`, which has begun."""
    try:
        row["month"] = values.month(row.pop("year"), row.pop("month_number"))
    except ValueError as error:
        raise Broken(str(error)) from None
    if row["month"] > values.month_of(now):
        raise Broken("Month is in the future")


def month_at(row: Row, time: datetime, now: datetime) -> None:
    """Set the month to that of a time which must not lie ahead."""
    if time > now + AHEAD:
        raise Broken("the time it is of is more than two days ahead")
    row["month"] = values.month_of(time)


def check_inside_month(row: Row, *names: str) -> None:
    """Check that times lie in the month of the record."""
    for name in names:
        if row.get(name) is not None and values.month_of(row[name]) != row["month"]:
            raise Broken(f"{name} is not inside the month")
