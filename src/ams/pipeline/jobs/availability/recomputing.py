"""Which days have to be computed, and computing them: whatever a day stands on has a fingerprint.

The figures of a day follow from the results stored of it and of the two days before, and from the profiles, topology,
downtimes and requests that hold on it. The fingerprint of all these is kept beside the figures, and written last. A day
whose fingerprint has changed is computed anew and replaced whole: after results that came late, after a recomputation
request and after its withdrawal, and after a kill in the middle.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from ams.pipeline.jobs.availability.daily import computed, day_before
from ams.pipeline.jobs.availability.events import EVENT_LISTS, EVENT_WORDS
from ams.pipeline.jobs.availability.figures import FIGURES, figures, figures_of_groups
from ams.pipeline.jobs.availability.inputs import Inputs
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.sites import DayInputs
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.running import Run
from ams.pipeline.tables import Table
from ams.tables.files import File, Partition

STATUSES = StructType(
    [
        *(
            StructField(name, StringType())
            for name in ("report", "type", "endpoint_group", "service", "hostname", "metric")
        ),
        StructField("start", TimestampType()),
        StructField("end", TimestampType()),
        StructField("status", StringType()),
        StructField("date", StringType()),
    ]
)
"""A stretch of one status of a `metric`, `endpoint`, `service` or `endpoint_group`, from `start` up to `end`."""

EVENTS = StructType(
    [
        *(StructField(name, StringType()) for name in EVENT_WORDS if name != "date"),
        *(StructField(name, ArrayType(StringType())) for name in EVENT_LISTS),
        StructField("date", StringType()),
    ]
)
"""A status event; `date` is the day as in the other tables, with dashes."""

DAYS = StructType([StructField("fingerprint", StringType()), StructField("date", StringType())])

AT_ONCE = 7
"""Days computed in one pass: more would only need more memory, fewer would compute more days before as well."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the job writes: one partition a day, replaced whole."""

    statuses: Table
    figures: Table
    events: Table
    days: Table
    """The fingerprints of the days that are computed."""

    @classmethod
    def of(cls, run: Run) -> "Tables":
        """Name the tables of a run."""
        by_day = ("date",)
        return cls(
            run.result("statuses", STATUSES, by_day),
            run.result("figures", FIGURES, by_day),
            run.result("events", EVENTS, by_day),
            run.result("days", DAYS, by_day),
        )


@dataclass(frozen=True, slots=True)
class Day:
    """A day to compute."""

    inputs: DayInputs
    eve: DayInputs | None
    """What held on the day before; None if that day has no results."""
    fingerprint: str

    @property
    def date(self) -> str:
        """The day, as `2024-03-05`."""
        return self.inputs.day


def recompute(
    tables: Tables,
    stored: Table,
    inputs: Inputs,
    options: Options,
    now: int,
    tell: Callable[[DataFrame], None] | None = None,
) -> list[str]:
    """Compute what is not as it should be, a few days at a time.

    Args:
        tables: the tables to bring up to date.
        stored: the results received so far (`daily.RESULTS`, by `date`).
        inputs: what the files say now.
        options: the job's options.
        now: seconds since 1970; a day that is not over is marked `partial`, and computed again each time.
        tell: takes the events of the days computed, before these count as computed.

    Returns: the days computed.
    """
    known = {row["date"]: row["fingerprint"] for row in tables.days.read().collect()}
    days = [day for day in days_of(stored.files(), inputs, options, now) if known.get(day.date) != day.fingerprint]
    for start in range(0, len(days), AT_ONCE):
        some = days[start : start + AT_ONCE]
        _compute(tables, stored, some, options)
        if tell is not None:
            tell(tables.events.read().where(F.col("date").isin([day.date for day in some])))
        tables.days.replace(stored.spark.createDataFrame([(day.fingerprint, day.date) for day in some], DAYS))
    return [day.date for day in days]


def days_of(files: Iterable[File], inputs: Inputs, options: Options, now: int) -> list[Day]:
    """List all days with results, in order.

    A day without a single result of any site is not among them: then it was the monitoring that did not run.
    """
    stored: dict[str, list[File]] = {}
    for file in files:
        stored.setdefault(str(file.partition["date"]), []).append(file)
    return [_day(day, stored, inputs, options, now) for day in sorted(stored)]


def _day(day: str, stored: Mapping[str, Sequence[File]], inputs: Inputs, options: Options, now: int) -> Day:
    here = inputs.on(day, now)
    eve = inputs.on(day_before(day), now) if day_before(day) in stored else None
    data = [_extent(stored.get(day_before(day, back), ())) for back in range(3)]
    print_of = repr((data, here, eve, options.report, options.repeat_hours))
    return Day(here, eve, hashlib.sha256(print_of.encode()).hexdigest())


def _extent(files: Iterable[File]) -> tuple[int, int]:
    """Tell one stage of a table that only grows from another; merging its files does not change it."""
    held = list(files)
    return sum(each.rows for each in held), max((each.batch for each in held if each.batch is not None), default=-1)


def _compute(tables: Tables, stored: Table, days: Sequence[Day], options: Options) -> None:
    needed = sorted({day_before(day.date, back) for day in days for back in range(3)})
    results = stored.read([{"date": date} for date in needed])
    eves = {day.eve.day: day.eve for day in days if day.eve}
    rows = computed(results, [day.inputs for day in days], eves, options.report, options.repeat_hours * 3600).persist()
    dates = [day.date for day in days]
    try:
        rows.count()  # fills the cache with all cores; each result below is written by one task
        counted = figures(rows, _states(rows.sparkSession, days), options.report)
        tables.statuses.replace(statuses(rows, options.report), _partitions(dates))
        tables.figures.replace(counted.unionByName(figures_of_groups(counted, _regions(days))), _partitions(dates))
        tables.events.replace(events(rows), _partitions(dates))
    finally:
        rows.unpersist()


def statuses(rows: DataFrame, report: str) -> DataFrame:
    """Pick the stretches of statuses out of `daily.ROWS`. Returns: `STATUSES`."""
    midnight = F.unix_timestamp("date", "yyyy-MM-dd")
    return rows.where(F.col("event").isNull()).select(
        F.lit(report).alias("report"),
        *("type", "endpoint_group", "service", "hostname", "metric"),
        F.timestamp_seconds(midnight + F.col("start")).alias("start"),
        F.timestamp_seconds(midnight + F.col("end")).alias("end"),
        *("status", "date"),
    )


def events(rows: DataFrame) -> DataFrame:
    """Pick the events out of `daily.ROWS`. Returns: `EVENTS`."""
    told = rows.where(F.col("event").isNotNull()).select("date", F.from_json("event", EVENTS).alias("event"))
    return told.select(*(F.col("event").getField(name).alias(name) for name in EVENTS.names if name != "date"), "date")


def _states(spark: SparkSession, days: Iterable[Day]) -> DataFrame:
    """Say of each day which statuses count as what."""
    lines = []
    for day in days:
        rules = day.inputs.rules
        unknown = [rules.defaults.unknown, rules.defaults.missing]
        lines.append((day.date, list(rules.available), unknown, rules.defaults.down, day.inputs.until < DAY))
    columns = "date string, available array<string>, unknown array<string>, downtime string, partial boolean"
    return spark.createDataFrame(lines, columns)


def _regions(days: Iterable[Day]) -> list[tuple[str, str, str]]:
    return [(day.date, region, site) for day in days for region, sites in day.inputs.regions.items() for site in sites]


def _partitions(dates: Iterable[str]) -> list[Partition]:
    return [{"date": date} for date in dates]
