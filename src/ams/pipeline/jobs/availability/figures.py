"""From what was computed of days (`columns.ROWS`) to the tables: statuses, events, and figures.

Figures are availability and reliability, from the seconds of each status:

    up = seconds in the available states; unknown = seconds unknown or missing; down = seconds in announced downtime
    known = 86,400 - unknown
    availability = up / known x 100        reliability = up / (known - down) x 100        undefined is -1

Figures have five decimals, halves rounded up. They are computed in whole numbers, so no binary fraction ever decides
about a half.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from ams.pipeline.jobs.availability.columns import EVENTS, PERCENT
from ams.pipeline.jobs.availability.timelines import DAY

STATES = "date string, available array<string>, unknown array<string>, downtime string, partial boolean"
"""What counts as what on a day; `partial` says that the day is not over."""

_UNDEFINED = -1
_DECIMALS = 100_000


def statuses(rows: DataFrame, report: str) -> DataFrame:
    """Pick the stretches of statuses out of `columns.ROWS`. Returns: `columns.STATUSES`."""
    midnight = F.unix_timestamp("date", "yyyy-MM-dd")
    return rows.where(F.col("event").isNull()).select(
        F.lit(report).alias("report"),
        *("type", "endpoint_group", "service", "hostname", "metric"),
        F.timestamp_seconds(midnight + F.col("start")).alias("start"),
        F.timestamp_seconds(midnight + F.col("end")).alias("end"),
        *("status", "date"),
    )


def events(rows: DataFrame) -> DataFrame:
    """Pick the events out of `columns.ROWS`. Returns: `columns.EVENTS`."""
    told = rows.where(F.col("event").isNotNull()).select("date", F.from_json("event", EVENTS).alias("event"))
    return told.select(*(F.col("event").getField(name).alias(name) for name in EVENTS.names if name != "date"), "date")


def figures(rows: DataFrame, states: DataFrame, report: str) -> DataFrame:
    """Compute the figures of every endpoint, service and site.

    Args:
        rows: stretches of statuses (`columns.ROWS`).
        states: of each day what counts as what (`STATES`).
        report: the report's name.

    Returns: `columns.FIGURES`.
    """
    stretches = rows.where(F.col("event").isNull() & (F.col("type") != "metric"))
    held = stretches.join(F.broadcast(states), on="date", how="inner").withColumn("held", F.col("end") - F.col("start"))
    counted = held.groupBy("date", "type", "endpoint_group", "service", "hostname", "partial").agg(
        _seconds(F.array_contains("available", F.col("status"))).alias("up_seconds"),
        _seconds(F.array_contains("unknown", F.col("status"))).alias("unknown_seconds"),
        _seconds(F.col("status") == F.col("downtime")).alias("down_seconds"),
    )
    up, unknown, down = (F.col(f"{name}_seconds") for name in ("up", "unknown", "down"))
    known = F.lit(DAY) - unknown
    return counted.select(
        F.lit(report).alias("report"),
        *("type", "endpoint_group", "service", "hostname"),
        ratio(up, known, 100).alias("availability"),
        ratio(up, known - down, 100).alias("reliability"),
        ratio(up, F.lit(DAY)).alias("up"),
        ratio(unknown, F.lit(DAY)).alias("unknown"),
        ratio(down, F.lit(DAY)).alias("down"),
        *(F.col(f"{name}_seconds").cast("int").alias(f"{name}_seconds") for name in ("up", "unknown", "down")),
        *("partial", "date"),
    )


def figures_of_groups(counted: DataFrame, regions: Sequence[tuple[str, str, str]]) -> DataFrame:
    """Compute the figures of the groups of sites: the plain mean of those of their sites that have one.

    Args:
        counted: figures of sites, among others (`columns.FIGURES`).
        regions: day, group and site of each membership.

    Returns: `columns.FIGURES` of type `group`, without seconds, which a group does not have.
    """
    members = counted.sparkSession.createDataFrame(list(regions), "date string, region string, endpoint_group string")
    sites = counted.where(F.col("type") == "endpoint_group")
    joined = sites.join(F.broadcast(members), on=["date", "endpoint_group"], how="inner")
    means = joined.groupBy("report", "date", "region", "partial").agg(
        *(_mean(name).alias(name) for name in ("availability", "reliability")),
        *(_share(name).alias(name) for name in ("up", "unknown", "down")),
    )
    empty = [F.lit(None).cast("int").alias(f"{name}_seconds") for name in ("up", "unknown", "down")]
    return means.select(
        "report",
        F.lit("group").alias("type"),
        F.col("region").alias("endpoint_group"),
        F.lit("").alias("service"),
        F.lit("").alias("hostname"),
        *("availability", "reliability", "up", "unknown", "down"),
        *empty,
        *("partial", "date"),
    )


def _mean(name: str) -> Column:
    defined = F.when(F.col(name) >= 0, (F.col(name) * _DECIMALS).cast("long"))
    # A mean of five decimals is the ratio of whole numbers once more.
    return F.coalesce(ratio(F.sum(defined), F.count(defined) * _DECIMALS), F.lit(_UNDEFINED).cast(PERCENT))


def _share(name: str) -> Column:
    return ratio(F.sum(f"{name}_seconds"), F.count("*") * DAY)


def ratio(part: Column, whole: Column, scale: int = 1) -> Column:
    """Divide whole numbers to five decimals, halves rounded up; -1 if there is nothing to divide by."""
    doubled = F.lit(2 * scale * _DECIMALS) * part + whole
    rounded = F.call_function("div", doubled, F.lit(2) * whole).cast(DecimalType(18, 0)) / F.lit(_DECIMALS).cast(
        DecimalType(6, 0)
    )
    return F.when(whole > 0, rounded).otherwise(F.lit(_UNDEFINED)).cast(PERCENT)


def _seconds(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("held")).otherwise(F.lit(0)))
