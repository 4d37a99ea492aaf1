"""Counting messages."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.archive.table import dated

FIGURES = ("messages", "bytes", "p95_bytes", "largest_bytes", "busiest_minute", "first", "last")
"""Of a group of messages: how many; the bytes of their data; the size that 95 of 100 do not exceed, between two sizes
interpolated; the largest size; how many were published in the minute with the most; the first and last publish time."""
BY_DAY = ("project", "topic", "date", "publisher")
BY_MONTH = ("project", "topic", "publisher")


def sizes(messages: DataFrame, publisher: str) -> DataFrame:
    """Return what is counted of each message: `project`, `topic`, `date`, `publisher`, `publish_time`, `bytes`.

    Args:
        messages: `columns.MESSAGES`, or rows of an archive.
        publisher: the attribute that says who published; the service itself does not tell. Empty: nobody is named.
    """
    who: Column = F.coalesce(F.col("attributes")[publisher], F.lit("")) if publisher else F.lit("")
    days = messages if "date" in messages.columns else dated(messages)
    return days.select(
        "project",
        "topic",
        "date",
        who.alias("publisher"),
        "publish_time",
        F.length("data").cast("long").alias("bytes"),
    )


def figures(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return `keys` and `FIGURES` of each group of `sizes`."""
    totals = counted.groupBy(*keys).agg(
        F.count("*").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.percentile("bytes", 0.95).alias("p95_bytes"),
        F.max("bytes").alias("largest_bytes"),
        F.min("publish_time").alias("first"),
        F.max("publish_time").alias("last"),
    )
    minutes = counted.groupBy(*keys, F.date_trunc("minute", "publish_time").alias("minute")).count()
    busiest = minutes.groupBy(*keys).agg(F.max("count").alias("busiest_minute"))
    return totals.join(busiest, on=list(keys), how="inner").select(*keys, *FIGURES)
