"""From stored results to the timelines and events of days, in Spark: site by site, several days in one pass.

Most results say what the result before said. Spark leaves those out with a window over each metric before anything
reaches Python, so that what is computed site by site in plain Python is small.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from ams.pipeline.jobs.availability.columns import ROWS
from ams.pipeline.jobs.availability.events import teller, to_json
from ams.pipeline.jobs.availability.sites import NOTHING, DayInputs, Measured, Result, Results, SiteDay, site_day
from ams.pipeline.jobs.availability.statuses import SEVERITY
from ams.pipeline.jobs.availability.timelines import Timeline

_METRIC = ("service", "hostname", "metric")
_TOLD = ("status", "monitoring_host", "summary", "message")


def day_before(day: str, days: int = 1) -> str:
    """Return the day so many days before, as `2024-03-05`."""
    return (date.fromisoformat(day) - timedelta(days=days)).isoformat()


def computed(
    results: DataFrame, days: Sequence[DayInputs], eves: Mapping[str, DayInputs], report: str, repeat: int
) -> DataFrame:
    """Compute the timelines and the events of days.

    Args:
        results: stored results (`columns.RESULTS`) of those days and of the two days before each.
        days: what holds on each of the days.
        eves: what holds on the day before each, by that day; without those days that have no results.
        report: the name of the report, which events carry.
        repeat: after how many seconds of a bad status an event is repeated.

    Returns: `ROWS`.
    """
    everything = [*days, *eves.values()]
    endpoints = sorted(
        {(site, *endpoint) for each in everything for site in each.sites for endpoint in each.endpoints(site)}
    )
    if not endpoints:
        return results.sparkSession.createDataFrame([], ROWS)
    told = _told(results, everything)
    places = results.sparkSession.createDataFrame(endpoints, "endpoint_group string, service string, hostname string")
    found = told.join(F.broadcast(places), on=["service", "hostname"], how="inner")
    # A site without any result must be computed as well: all it should have been measured for is missing.
    silent = places.select("endpoint_group").distinct()
    grouped = found.unionByName(silent, allowMissingColumns=True).groupBy("endpoint_group")
    return grouped.applyInArrow(_by_site(days, eves, report, repeat), ROWS)


def _told(results: DataFrame, days: Iterable[DayInputs]) -> DataFrame:
    """Leave out doubled results and those that say what the result before them said.

    The first result of a day always stays: what goes over from a day to the next is decided by whether there was one.
    """
    unknown = {source: each.rules.defaults.unknown for each in days for source in each.exceptions.distrusted()}
    status = F.col("status")
    for (host, start, end), put in unknown.items():
        during = F.unix_timestamp("timestamp").between(start, end - 1)
        status = F.when((F.col("monitoring_host") == host) & during, F.lit(put)).otherwise(status)
    trusted = results.withColumn("status", status)
    worst = F.max(F.struct(_severity().alias("severity"), *_TOLD)).alias("worst")
    once = trusted.groupBy("date", *_METRIC, "timestamp").agg(worst)
    before = F.lag("worst.status").over(Window.partitionBy("date", *_METRIC).orderBy("timestamp"))
    changed = once.withColumn("before", before).where(
        F.col("before").isNull() | (F.col("before") != F.col("worst.status"))
    )
    second = (F.unix_timestamp("timestamp") % 86_400).alias("second")
    return changed.select("date", *_METRIC, second, *(F.col(f"worst.{name}").alias(name) for name in _TOLD))


def _severity() -> Column:
    ranks = [F.when(F.col("status") == status, F.lit(rank)) for status, rank in SEVERITY.items()]
    return F.coalesce(*ranks)


def _by_site(
    days: Sequence[DayInputs], eves: Mapping[str, DayInputs], report: str, repeat: int
) -> Callable[[pa.Table], pa.Table]:
    def compute(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        site = rows[0]["endpoint_group"]
        lines = list(site_rows(site, _results(rows), days, eves, report, repeat))
        return pa.Table.from_pylist(lines, schema=to_arrow_schema(ROWS))

    return compute


def _results(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[Measured, list[Result]]]:
    held: dict[str, dict[Measured, list[Result]]] = {}
    for row in rows:
        if row["date"] is None:
            continue
        measured = Measured(row["service"], row["hostname"], row["metric"])
        result = Result(row["second"], *(row[name] for name in _TOLD))
        held.setdefault(row["date"], {}).setdefault(measured, []).append(result)
    return held


def site_rows(
    site: str,
    results: Mapping[str, Results],
    days: Sequence[DayInputs],
    eves: Mapping[str, DayInputs],
    report: str,
    repeat: int,
) -> Iterator[dict[str, Any]]:
    """Give the `ROWS` of one site; `results` are by day."""
    known: dict[str, SiteDay] = {}

    def on(inputs: DayInputs) -> SiteDay:
        day = inputs.day
        if day not in known:
            known[day] = site_day(inputs, site, results.get(day, {}), results.get(day_before(day), {}))
        return known[day]

    for inputs in days:
        today = on(inputs)
        before = eves.get(day_before(inputs.day))
        eve = on(before) if before else NOTHING
        common = {"date": inputs.day, "endpoint_group": site}
        yield from ({**common, **row} for row in _stretches(today))
        told = teller(report, site, inputs, eve, today, results.get(inputs.day, {}))
        for event in told.events(repeat) if told else ():
            yield {**common, "type": event["type"], "event": to_json(event)}


def _stretches(day: SiteDay) -> Iterator[dict[str, Any]]:
    for measured, line in day.metrics.items():
        yield from _spans({"type": "metric", **measured._asdict()}, line)
    for endpoint, line in day.endpoints.items():
        yield from _spans({"type": "endpoint", **endpoint._asdict()}, line)
    for service, line in day.services.items():
        yield from _spans({"type": "service", "service": service}, line)
    if day.site is not None:
        yield from _spans({"type": "endpoint_group"}, day.site)


def _spans(place: Mapping[str, str], line: Timeline) -> Iterator[dict[str, Any]]:
    empty = {"service": "", "hostname": "", "metric": ""}
    return ({**empty, **place, **span._asdict()} for span in line.spans())
