"""Computes the tables of days from stored results: timelines, events and figures, site by site.

Most results repeat the previous one. Spark drops those with a window over each metric, so that plain Python computes
only small data, site by site.

    up = seconds in the available states; unknown = seconds unknown or missing; down = seconds in announced downtime
    known = 86,400 - unknown
    availability = up / known x 100        reliability = up / (known - down) x 100        undefined is -1

Figures have five decimals, halves rounded up. They are computed in whole numbers, so no binary fraction ever decides
about a half.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DecimalType

from ams.pipeline.jobs.availability.documents import Place
from ams.pipeline.jobs.availability.inputs import DayInputs, day_before
from ams.pipeline.jobs.availability.sites import ProbeResult, Results, Timelines, events_of, timelines_of
from ams.pipeline.jobs.availability.timelines import DAY, SEVERITY
from ams.pipeline.jobs.base import columns

_SOURCE = columns(("string", "topic"), ("bigint", "offset"))  # null in rows stored before these columns existed

RESULTS = columns(
    ("string", "date"),
    ("timestamp", "timestamp"),
    ("string", "service hostname metric status monitoring_host summary message"),
    ("double", "response_time"),
    _SOURCE,
)  # a monitoring result as it is stored; `date` is the day of `timestamp`, `response_time` is in seconds

SYNCED = columns(("string", "type partition_date item"), _SOURCE)

_EVENT = columns(
    ("string", "report type endpoint_group service hostname metric status prev_status ts_monitored prev_ts"),
    ("string", "monitoring_host summary message hostname_url repeat reminder"),
    ("array<string>", "status_metric status_endpoint status_service status_egroup metric_names metric_statuses"),
    ("array<string>", "group_endpoints group_services group_statuses"),
)
EVENTS = columns(_EVENT, ("string", "date"))  # a status event; `date` is the day as in the other tables, with dashes

OUTBOX = columns(  # events to publish; those of one number go out together
    ("int", "number"),
    ("string", "report date type endpoint_group service hostname metric ts_monitored status repeat"),
    ("binary", "data"),
)
EVENT: Final = OUTBOX.names[1:-1]  # key of an event; an event with another text but the same key is not published again

ROWS = columns(
    ("string", "date type endpoint_group service hostname metric"),
    ("bigint", "start end"),
    ("string", "status"),
    ("bigint", "up_seconds unknown_seconds down_seconds"),
    ("boolean", "partial"),
    (_EVENT, "event"),
)
"""Computed rows: a span of one status, from second `start` of the day up to `end`, or an `event`.

The seconds are those of the stretch by what its status counts as; it may count as several.
"""

STATUSES = columns(
    ("string", "report type endpoint_group service hostname metric"),
    ("timestamp", "start end"),
    ("string", "status date"),
)

PERCENT: Final = DecimalType(8, 5)
FIGURES = columns(
    ("string", "report type endpoint_group service hostname"),
    (PERCENT, "availability reliability up unknown down"),
    ("int", "up_seconds unknown_seconds down_seconds"),
    ("boolean", "partial"),
    ("string", "date"),
)
"""The figures of an `endpoint`, a `service` or an `endpoint_group` on a day.

`availability` and `reliability` are percentages, `up`, `unknown` and `down` fractions of the day. `partial` says that
the day was not over when this was computed: its last statuses are taken to hold until its end.
"""

DAYS = columns(("string", "fingerprint date"))  # what a day was computed from

DAILY: Final = {"statuses": STATUSES, "events": EVENTS, "figures": FIGURES, "days": DAYS}  # results, by their names
_METRIC = ("service", "hostname", "metric")
_RESULT_COLUMNS = ("status", "monitoring_host", "summary", "message")
_SECONDS = ("up_seconds", "unknown_seconds", "down_seconds")
_DECIMALS = 100_000


def compute_rows(results: DataFrame, days: Sequence[DayInputs], report: str, repeat: int) -> DataFrame:
    """Compute `ROWS` of days, from results of them and of the two days before; `repeat` is in seconds."""
    spark, everything = results.sparkSession, [*days, *(day.eve for day in days if day.eve)]
    endpoints = {(site, *place[:2]) for each in everything for site in each.sites for place in each.endpoints(site)}
    if not endpoints:
        return spark.createDataFrame([], ROWS)
    places = spark.createDataFrame(sorted(endpoints), "endpoint_group string, service string, hostname string")
    found = status_changes(results, everything).join(F.broadcast(places), on=["service", "hostname"])
    # Sites without results are computed too: all their metrics are missing.
    silent = places.select("endpoint_group").distinct()

    def compute(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        held: dict[str, dict[Place, list[ProbeResult]]] = {}
        for row in rows:
            if row["date"] is not None:
                place = Place(*(row[name] for name in _METRIC))
                result = ProbeResult(row["second"], *(row[name] for name in _RESULT_COLUMNS))
                held.setdefault(row["date"], {}).setdefault(place, []).append(result)
        found = site_rows(rows[0]["endpoint_group"], held, days, report, repeat)
        return pa.Table.from_pylist(list(found), schema=to_arrow_schema(ROWS))

    grouped = found.unionByName(silent, allowMissingColumns=True).groupBy("endpoint_group")
    return grouped.applyInArrow(compute, ROWS)


def status_changes(results: DataFrame, days: Iterable[DayInputs]) -> DataFrame:
    """Drop duplicate and repeated results; the first result of a day stays."""
    status, now = F.col("status"), F.unix_timestamp("timestamp")
    for host, start, end, unknown in {each for day in days for each in day.distrusted}:
        status = F.when((F.col("monitoring_host") == host) & now.between(start, end - 1), unknown).otherwise(status)
    severity = F.array_position(F.lit([*SEVERITY]), F.col("status")).alias("severity")
    worst = F.max(F.struct(severity, *_RESULT_COLUMNS)).alias("worst")
    once = results.withColumn("status", status).groupBy("date", *_METRIC, "timestamp").agg(worst)
    before = F.lag("worst.status").over(Window.partitionBy("date", *_METRIC).orderBy("timestamp"))
    changed = once.withColumn("before", before).where("before IS NULL OR before != worst.status")
    return changed.select("date", *_METRIC, (F.unix_timestamp("timestamp") % DAY).alias("second"), "worst.*")


def site_rows(
    site: str, results: Mapping[str, Results], days: Sequence[DayInputs], report: str, repeat: int
) -> Iterator[dict[str, Any]]:
    """Yield the `ROWS` of one site; `results` are by day."""
    known: dict[str, Timelines] = {}

    def on(inputs: DayInputs) -> Timelines:
        if inputs.day not in known:
            today, before = (results.get(each, {}) for each in (inputs.day, day_before(inputs.day)))
            known[inputs.day] = timelines_of(inputs, site, today, before)
        return known[inputs.day]

    for inputs in days:
        lines, eve = on(inputs), on(inputs.eve) if inputs.eve else {}
        common = {"date": inputs.day, "endpoint_group": site, "partial": inputs.until < DAY}
        for place, span in ((place, span) for place, line in lines.items() for span in line.spans()):
            seconds = {name: (span.end - span.start) * yes for name, yes in inputs.rules.counts(span.status).items()}
            yield {**common, "type": place.level, **place._asdict(), **span._asdict(), **seconds}
        for event in events_of(report, site, inputs, eve, lines, results.get(inputs.day, {}), repeat):
            yield {**common, "type": event["type"], "event": event}


def statuses(rows: DataFrame, report: str) -> DataFrame:
    """Return the spans of statuses in `ROWS`, as `STATUSES`."""
    midnight = F.unix_timestamp("date", "yyyy-MM-dd")
    times = {name: F.timestamp_seconds(midnight + F.col(name)) for name in ("start", "end")}
    return rows.where("event IS NULL").withColumns({"report": F.lit(report), **times}).select(*STATUSES.names)


def events(rows: DataFrame) -> DataFrame:
    """Return the events in `ROWS`, as `EVENTS`."""
    return rows.where("event IS NOT NULL").select("event.*", "date")


def figures(rows: DataFrame, report: str) -> DataFrame:
    """Compute the figures of every endpoint, service and site from `ROWS`. Returns: `FIGURES`."""
    stretches = rows.where("event IS NULL AND type != 'metric'")
    sums = (F.sum(name).cast("int").alias(name) for name in _SECONDS)
    counted = stretches.groupBy("date", "type", "endpoint_group", "service", "hostname", "partial").agg(*sums)
    up, unknown, down = (F.col(name) for name in _SECONDS)
    known = DAY - unknown
    found = {
        "report": F.lit(report),
        "availability": ratio(up, known, 100),
        "reliability": ratio(up, known - down, 100),
        **{name.removesuffix("_seconds"): ratio(F.col(name), F.lit(DAY)) for name in _SECONDS},
    }
    return counted.withColumns(found).select(*FIGURES.names)


def figures_of_groups(counted: DataFrame, members: Sequence[tuple[str, str, str]]) -> DataFrame:
    """Compute the figures of groups: the mean of those of their sites; `members` are day, group and site."""
    known = counted.sparkSession.createDataFrame(list(members), "date string, region string, endpoint_group string")
    sites = counted.where("type = 'endpoint_group'").join(F.broadcast(known), on=["date", "endpoint_group"])
    means = sites.groupBy("report", "date", F.col("region").alias("endpoint_group"), "partial").agg(
        *(_mean(name).alias(name) for name in ("availability", "reliability")),
        *(ratio(F.sum(name), F.count("*") * DAY).alias(name.removesuffix("_seconds")) for name in _SECONDS),
    )
    others = {"type": F.lit("group"), "service": F.lit(""), "hostname": F.lit("")}
    nothing = {name: F.lit(None).cast("int") for name in _SECONDS}
    return means.withColumns({**others, **nothing}).select(*FIGURES.names)


def _mean(name: str) -> Column:
    defined = F.when(F.col(name) >= 0, (F.col(name) * _DECIMALS).cast("long"))
    # A mean of five decimals is again a ratio of integers; without values it is null.
    return F.coalesce(ratio(F.sum(defined), F.count(defined) * _DECIMALS), F.lit(-1).cast(PERCENT))


def ratio(part: Column, whole: Column, scale: int = 1) -> Column:
    """Divide whole numbers to five decimals, halves rounded up; -1 if there is nothing to divide by."""
    doubled = 2 * scale * _DECIMALS * part.cast("long") + whole
    rounded = F.call_function("div", doubled, 2 * whole).cast("decimal(18,0)") / F.lit(_DECIMALS).cast("decimal(6,0)")
    return F.when(whole > 0, rounded).otherwise(-1).cast(PERCENT)
